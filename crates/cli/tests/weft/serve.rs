//! `weft serve DIR` over a real connection. What is served and what not is tested with the library.

use std::fs;

use crate::process::Weft;

#[test]
fn files_are_served() {
    let dir = std::env::temp_dir().join(format!("weft-serve-{}", std::process::id()));
    fs::create_dir_all(dir.join("sub")).unwrap();
    fs::write(dir.join("hello.txt"), "hello").unwrap();
    fs::write(dir.join(".secret"), "secret").unwrap();
    let weft = Weft::start(&format!("serve {} --port 0", dir.display()));
    assert_eq!(weft.lines[0], format!("weft {} serve {}", env!("CARGO_PKG_VERSION"), dir.display()));
    let mut client = weft.connect();
    let file = client.ask("GET /hello.txt");
    assert_eq!((file.status, file.text()), (200, "hello"));
    assert!(client.ask("GET /").text().contains("<a href=\"hello.txt\">"));
    assert_eq!(client.ask("GET /sub").field("location"), Some("/sub/"));
    for path in ["/.secret", "/missing", "/%2e%2e/", "/../"] {
        assert_eq!(client.ask(&format!("GET {path}")).status, 404, "{path}");
    }
    fs::remove_dir_all(dir).unwrap();
}
