//! Does a typed route see each path that leads to a file behind it?

use weftwork::prelude::*;
use weftwork::{TestClient, embedded};

#[derive(Routes)]
enum Guard {
    #[get("/c++ [ü]|^/{*rest}")]
    Plain { rest: String },
}

static FILES: &[(&str, &[u8])] = &[("c++ [\u{fc}]|^/x", b"file")];

#[test]
fn no_spelling_leads_around_a_typed_route() {
    let guard = routes(|Guard::Plain { rest }: Guard, _: &mut Request| format!("guarded {rest}"));
    let mut client = TestClient::new(Router::new().mount("/", guard).mount("/", embedded(FILES)));
    let form = "/c++%20%5B%C3%BC%5D%7C%5E/x";
    assert_eq!(client.get(form).send().text(), "guarded x");
    for path in ["/c++%20[%C3%BC]|^/x", "/c%2B+%20[%c3%bc]|%5e/x", "/c%2b%2b%20%5b%c3%bc%5d%7c%5e/%78"] {
        let answer = client.get(path).send();
        assert_eq!((answer.status.as_u16(), answer.header("location")), (301, Some(form)), "{path}");
    }
}
