//! Tests of `weft serve` over real connections, with the clients that people use. The library tests which files are
//! served.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::process::{Weft, output};

/// A directory of its own for each test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("weft-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("sub")).unwrap();
        fs::write(path.join("hello.txt"), "hello").unwrap();
        fs::write(path.join(".secret"), "secret").unwrap();
        Folder(path)
    }

    pub(crate) fn path(&self) -> std::path::Display<'_> {
        self.0.display()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn files_are_served() {
    let folder = Folder::new("serve");
    let weft = Weft::start(&format!("serve {} --port 0", folder.path()));
    assert_eq!(weft.lines[0], format!("weft {} serve {}", env!("CARGO_PKG_VERSION"), folder.path()));
    let mut client = weft.connect();
    let file = client.ask("GET /hello.txt");
    assert_eq!((file.status, file.text()), (200, "hello"));
    assert!(client.ask("GET /").text().contains("<a href=\"hello.txt\">"));
    assert_eq!(client.ask("GET /sub").field("location"), Some("/sub/"));
    for path in ["/.secret", "/missing", "/%2e%2e/", "/../"] {
        let answer = client.ask(&format!("GET {path}"));
        assert_eq!((answer.status, answer.text()), (404, "there is no such file\n"), "{path}");
        assert_eq!(answer.field("content-type"), Some("text/plain; charset=utf-8"));
    }
    let refused = client.ask("DELETE /hello.txt");
    assert_eq!((refused.status, refused.text()), (405, "405 Method Not Allowed\n"));
    assert_eq!(refused.field("allow"), Some("GET, HEAD"));
}

#[test]
fn flags() {
    let folder = Folder::new("flags");
    fs::write(folder.0.join("app.html"), "the page").unwrap();
    fs::write(folder.0.join("sub/home.htm"), "the index").unwrap();
    std::os::unix::fs::symlink("hello.txt", folder.0.join("link")).unwrap();
    let flags = "--no-listing --hidden --symlinks --index home.htm --spa app.html --cache-control max-age=60";
    let weft = Weft::start(&format!("serve {} --port 0 {flags}", folder.path()));
    let mut client = weft.connect();
    for (path, text) in [
        ("/.secret", "secret"),
        ("/link", "hello"),
        ("/sub/", "the index"),
        ("/", "the page"),
        ("/users/7", "the page"),
    ] {
        let answer = client.ask(&format!("GET {path}"));
        assert_eq!((answer.status, answer.text()), (200, text), "{path}");
    }
    assert_eq!(client.ask("GET /hello.txt").field("cache-control"), Some("max-age=60"));
    assert_eq!(client.ask("GET /lost.js").status, 404);

    let weft = Weft::start(&format!("serve {}/hello.txt --port 0", folder.path()));
    assert_eq!(weft.connect().ask("GET /any").text(), "hello");

    let flags = "--cache-control max-age=60 --spa hello.txt";
    let weft = Weft::start(&format!("serve {}/hello.txt --port 0 {flags}", folder.path()));
    assert_eq!(weft.connect().ask("GET /any").field("cache-control"), Some("no-cache"), "its own page");
}

#[test]
fn flags_of_a_directory_are_refused_with_one_file() {
    let folder = Folder::new("one-file");
    let path = format!("{}/hello.txt", folder.path());
    for flag in ["--no-listing", "--hidden", "--symlinks", "--index hello.txt", "--spa other.txt"] {
        let output = output(&format!("serve {path} --port 0 {flag}"), &[]);
        let name = flag.split(' ').next().unwrap();
        let said = format!("weft: {name} works only with a directory, and {path} is a file\n");
        assert_eq!(
            (output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()),
            (Some(2), &*said)
        );
    }
}

#[test]
fn mistakes_are_named() {
    let folder = Folder::new("mistakes");
    std::os::unix::fs::symlink("hello.txt", folder.0.join("link.html")).unwrap();
    for (line, said) in [
        ("serve missing-folder", "cannot serve files from missing-folder: No such file"),
        (
            &format!("serve {} --spa lost.html", folder.path()),
            "invalid --spa \"lost.html\": expected a file in",
        ),
        (
            &format!("serve {}/sub --spa ../hello.txt", folder.path()),
            "invalid --spa \"../hello.txt\": expected a file in",
        ),
        (
            &format!("serve {} --index a/b.html", folder.path()),
            "invalid --index \"a/b.html\": expected a name",
        ),
        (&format!("serve {} --index=", folder.path()), "invalid --index \"\": expected a name"),
        (&format!("serve {} --index .", folder.path()), "invalid --index \".\": expected a name"),
        (&format!("serve {} --index ..", folder.path()), "invalid --index \"..\": expected a name"),
        // Links are followed only with `--symlinks`.
        (
            &format!("serve {} --spa link.html", folder.path()),
            "invalid --spa \"link.html\": expected a file in",
        ),
    ] {
        let output = output(&format!("{line} --port 0"), &[]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && text.contains(said), "{line}: {text}");
    }
}

/// If curl is installed, it downloads files, resumes them, and revalidates them.
#[test]
fn curl_resumes_a_download() {
    if Command::new("curl").arg("--version").output().is_err() {
        println!("not checked: curl is not installed");
        return;
    }
    let folder = Folder::new("curl");
    let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    fs::write(folder.0.join("large.bin"), &bytes).unwrap();
    let weft = Weft::start(&format!("serve {} --port 0", folder.path()));
    let url = format!("http://{}/large.bin", weft.address());
    let into = folder.0.join("got.bin");
    fs::write(&into, &bytes[..1_000_000]).unwrap();
    let curl = |args: &[&str]| {
        let into = into.to_string_lossy().into_owned();
        let output = Command::new("curl")
            .args(["-sS", "-m", "20", "-o", &into, "-w", "%{http_code} %{size_download}"])
            .args(args)
            .arg(&url)
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(curl(&["-C", "-"]), "206 2000000");
    assert!(fs::read(&into).unwrap() == bytes, "the two halves make the file");
    assert_eq!(curl(&["-C", "-"]).split(' ').next(), Some("416"), "nothing is left to get");
    assert!(fs::read(&into).unwrap() == bytes, "and nothing was added");
    assert_eq!(curl(&["-z", &http_date(&folder.0.join("large.bin"))]), "304 0");
    assert_eq!(curl(&["-r", "0-9,2999990-"]).split(' ').next(), Some("206"));
    assert_eq!(curl(&[]), "200 3000000");
}

/// Sets the time of a file to a fixed date in the past, and returns it as curl accepts it.
fn http_date(path: &Path) -> String {
    let changed = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(784_111_777);
    fs::File::options().write(true).open(path).unwrap().set_modified(changed).unwrap();
    "Sun, 06 Nov 1994 08:49:37 GMT".to_owned()
}

/// A browser gets a page and its compressed script. Its second visit transfers no body.
#[test]
fn a_browser_revalidates_a_cached_file() {
    let folder = Folder::new("browser");
    fs::write(folder.0.join("index.html"), "<script src=app.js></script>").unwrap();
    fs::write(folder.0.join("app.js"), "plain").unwrap();
    fs::write(folder.0.join("app.js.br"), "as br").unwrap();
    let weft = Weft::start(&format!("serve {} --port 0", folder.path()));
    let mut client = weft.connect();
    let common = "User-Agent: Mozilla/5.0\nAccept-Language: en\nAccept-Encoding: gzip, deflate, br, zstd";
    let page = client.ask(&format!("GET /\nAccept: text/html,application/xhtml+xml,*/*;q=0.8\n{common}"));
    assert_eq!((page.status, page.field("content-type")), (200, Some("text/html; charset=utf-8")));
    let script = client.ask(&format!("GET /app.js\nAccept: */*\nSec-Fetch-Dest: script\n{common}"));
    assert_eq!((script.text(), script.field("content-encoding")), ("as br", Some("br")));
    for (path, first) in [("/", &page), ("/app.js", &script)] {
        let (tag, date) = (first.field("etag").unwrap(), first.field("last-modified").unwrap());
        let again = format!("GET {path}\n{common}\nIf-None-Match: {tag}\nIf-Modified-Since: {date}");
        assert_eq!(client.ask(&again).status, 304, "{path}");
    }
    assert_eq!(client.ask(&format!("GET /favicon.ico\n{common}")).status, 404);
}

#[test]
fn an_error_is_a_page_for_browsers() {
    let folder = Folder::new("error-page");
    let weft = Weft::start(&format!("serve {} --port 0", folder.path()));
    let mut client = weft.connect();
    let page = client.ask("GET /missing\nAccept: text/html,*/*;q=0.8");
    assert_eq!((page.status, page.field("content-type")), (404, Some("text/html; charset=utf-8")));
    assert!(page.text().contains("<h1>404</h1>\n<p>there is no such file"), "{}", page.text());
    assert_eq!(client.ask("GET /missing\nAccept: */*").text(), "there is no such file\n");
}

#[test]
fn other_origins_read_the_files_if_that_is_asked_for() {
    let folder = Folder::new("cors");
    for (flag, allowed) in [("", None), ("--cors", Some("*"))] {
        let weft = Weft::start(&format!("serve {} --port 0 {flag}", folder.path()));
        let answer = weft.connect().ask("GET /hello.txt\nOrigin: https://app.example");
        assert_eq!((answer.status, answer.field("access-control-allow-origin")), (200, allowed));
    }
}

/// The program of the desktop gets the address.
#[test]
fn a_browser_is_opened_if_that_is_asked_for() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("open");
    let name = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let (program, told) = (folder.0.join(name), folder.0.join("told"));
    fs::write(&program, format!("#!/bin/sh\necho \"$1\" >{0}.part && mv {0}.part {0}\n", told.display()))
        .unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path(), std::env::var("PATH").unwrap());
    let line = format!("serve {} --port 0 --open", folder.path());
    let weft = Weft::start_with(&line, &[("PATH", &path)]);
    let until = Instant::now() + Duration::from_secs(60);
    while !told.exists() {
        assert!(Instant::now() < until, "no browser is opened");
        std::thread::yield_now();
    }
    assert_eq!(fs::read_to_string(told).unwrap(), format!("http://{}/\n", weft.address()));
}

#[test]
fn a_qr_code_is_shown_if_that_is_asked_for() {
    let folder = Folder::new("qr");
    let mut weft = Weft::start(&format!("serve {} --port 0 --qr", folder.path()));
    let line = weft.wait_for("--qr");
    assert!(line.contains("no address can be reached from a local network"), "{line}");
    let is_in_network = std::net::UdpSocket::bind("0.0.0.0:0").unwrap().connect(("192.0.2.1", 9)).is_ok();
    let mut weft = Weft::start(&format!("serve {} --host 0.0.0.0 --port 0 --qr", folder.path()));
    if is_in_network {
        let line = weft.says("in the local network");
        assert!(line.contains(": http://") && !line.contains("0.0.0.0"), "{line}");
        assert!(weft.says("\u{2588}\u{2588}\u{2588}\u{2588} ").starts_with('\u{2588}'));
    }
}
