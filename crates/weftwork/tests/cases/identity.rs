// Tests that tokens, sessions and protected cookies survive the wire.

#[cfg(feature = "cookies")]
use std::time::Duration;

use weftwork::http::StatusCode;
use weftwork::middleware::BearerAuth;
use weftwork::{Handler, HandlerExt, Problem, Request, Running};

use super::CASE;
use crate::support::Client;

fn start(handler: impl Handler) -> Running {
    CASE.bind("127.0.0.1:0").start(handler).expect("the server starts")
}

#[test]
fn a_bearer_token_is_verified_before_the_handler() {
    #[derive(Clone)]
    struct Account(&'static str);
    let verify = |token: &str| {
        let account = (token == "t0ken").then_some(Account("ada"));
        account.ok_or_else(|| Problem::new(StatusCode::UNAUTHORIZED).detail("unknown token"))
    };
    let name = |req: &mut Request| req.extensions().get::<Account>().map(|account| account.0);
    let running = start(name.with(BearerAuth::new("here", verify).unwrap()));
    let mut clients = [Client::connect(&running), Client::connect(&running)];
    for (field, status, challenge) in [
        ("Authorization: Bearer t0ken\r\n", 200, None),
        ("", 401, Some("Bearer realm=\"here\"")),
        ("Authorization: Bearer guess\r\n", 401, Some("Bearer realm=\"here\", error=\"invalid_token\"")),
    ] {
        for client in &mut clients {
            client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{field}\r\n"));
        }
        for client in &mut clients {
            let answer = client.answer();
            assert_eq!((answer.status, answer.field("www-authenticate")), (status, challenge), "{field:?}");
        }
    }
}

/// Each request is on another connection, and so on another loop or thread. Responses that come later have the cookie, too.
#[cfg(feature = "sessions")]
#[test]
fn a_session_follows_its_browser() {
    use weftwork::cookies::Key;
    use weftwork::middleware::{MemoryStore, Session, Sessions};
    use weftwork::{Response, Result, Router};

    let count = |session: Session| -> Result<Response> {
        let count: u32 = session.get("count")?.unwrap_or(0) + 1;
        session.insert("count", count)?;
        let (sender, response) = Response::later(Duration::from_secs(60), StatusCode::NO_CONTENT);
        std::thread::spawn(move || sender.send(count.to_string()));
        Ok(response)
    };
    let logout = |session: Session| session.destroy();
    let site = Router::new().get("/", count).get("/logout", logout);
    let running = start(site.with(Sessions::new(MemoryStore::new(), Key::generate())));
    let ask = |path: &str, cookie: &str| {
        let mut client = Client::connect(&running);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nCookie: theme=dark; {cookie}\r\n\r\n"));
        let answer = client.answer();
        let set = answer.field("set-cookie").map(|line| line.split(';').next().unwrap().to_owned());
        (answer.text().to_owned(), set)
    };
    let (first, cookie) = ask("/", "");
    let cookie = cookie.expect("a session begins");
    assert_eq!((first.as_str(), ask("/", &cookie).0.as_str(), ask("/", "").0.as_str()), ("1", "2", "1"));
    assert_eq!(ask("/logout", &cookie).1.as_deref(), Some("__Host-session="));
    assert_eq!(ask("/", &cookie).0, "1", "the old cookie is of no use");
}

#[cfg(feature = "cookies")]
#[test]
fn protected_cookies_come_back() {
    use weftwork::cookies::{Cookie, Key};
    use weftwork::{Response, Result};

    let key = Key::generate();
    let handler = move |req: &mut Request| -> Result<Response> {
        let read = (req.private_cookie(&key, "p"), req.signed_cookie(&key, "s"));
        let response = Response::text(format!("{read:?}"));
        let response = response.with_private_cookie(&key, Cookie::new("p", "\u{fc};1"), Duration::from_secs(60))?;
        response.with_signed_cookie(&key, Cookie::new("s", "2=,\""), Duration::from_secs(60))
    };
    let running = start(handler);
    let mut client = Client::connect(&running);
    let first = client.get("/");
    assert_eq!(first.text(), "(None, None)");
    let pairs = first.values("set-cookie").into_iter().map(|line| line.split(';').next().unwrap());
    let pairs: Vec<_> = pairs.collect();
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: {}\r\n\r\n", pairs.join("; ")));
    assert_eq!(client.answer().text(), "(Some(\"\u{fc};1\"), Some(\"2=,\\\"\"))");
}
