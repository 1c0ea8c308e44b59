//! Tests that cookies are read as browsers mean them, and that no cookie can be forged or hidden.

use std::time::Duration;

use super::*;
use crate::app::cookie_header::COOKIES_MAX;
use crate::message::testing::Canned;

fn sent(lines: &[&str]) -> CookieJar {
    let fields: Vec<_> = lines.iter().map(|line| ("Cookie", *line)).collect();
    let mut canned = Canned::asking("GET", "/", &fields);
    canned.request(0).cookies()
}

#[track_caller]
fn check(lines: &[&str], expected: &[(&str, &str)]) {
    let jar = sent(lines);
    let mut found: Vec<_> = jar.iter().map(|cookie| (cookie.name(), cookie.value())).collect();
    found.sort_unstable();
    assert_eq!(found, expected, "{lines:?}");
}

#[test]
fn what_browsers_send() {
    check(&[], &[]);
    check(&["a=1"], &[("a", "1")]);
    check(&["a=1; b=2;c=3 ;  d = 4"], &[("a", "1"), ("b", "2"), ("c", "3")]);
    check(&["a=1", "b=2"], &[("a", "1"), ("b", "2")]);
    check(&["a=", "b=x=y"], &[("a", ""), ("b", "x=y")]);
    check(&["a=%C3%BC%20%3B"], &[("a", "\u{fc} ;")]);
    check(&["a=50%"], &[("a", "50%")]);
    check(&["a=\"quoted\"; b=%22own%22; c=\""], &[("a", "quoted"), ("b", "\"own\""), ("c", "\"")]);
    check(&["a", "=b", "", ";;", "a b=1", "\u{fc}=1", "b=\u{fc}"], &[("b", "\u{fc}")]);
    check(&["a=%ff"], &[]);
}

/// A cookie of a neighbouring site beside ours: the server cannot tell which is which.
#[test]
fn a_name_that_came_twice_is_left_out() {
    check(&["session=ours; session=theirs; other=1"], &[("other", "1")]);
    check(&["session=ours", "session=theirs"], &[]);
    check(&["session=same; session=same"], &[("session", "same")]);
    check(&["session=ours; Session=theirs"], &[("Session", "theirs"), ("session", "ours")]);
    check(&["session=a; session=%61"], &[("session", "a")]);
    check(&["session=100%FF; session=theirs; other=%FF"], &[]);
    let junk: String = (1..COOKIES_MAX).map(|number| format!("n{number}=; ")).collect();
    let jar = sent(&[&format!("{junk}session=theirs; session=ours")]);
    assert_eq!((jar.iter().count(), jar.get("session")), (COOKIES_MAX - 1, None));
}

/// Ways in which a name that a page may set was turned into a name that it may not set.
#[test]
fn no_name_is_read_as_another() {
    for name in [
        "__%48ost-a",
        "\u{2000}__Host-a",
        "\u{a0}__Host-a",
        "__Host-a\u{3000}",
        "\u{85}__Host-a",
        "__Host-a[",
        "$Version",
    ] {
        let jar = sent(&[&format!("{name}=1")]);
        assert_eq!(jar.get("__Host-a"), None, "{name:?}");
    }
    check(
        &["$Version=1; a=\"x; __Host-b=1; c=y\""],
        &[("$Version", "1"), ("__Host-b", "1"), ("a", "\"x"), ("c", "y\"")],
    );
}

#[test]
fn of_a_thousand_cookies_the_first_are_kept() {
    let many: String = (0..1000).map(|number| format!("n{number}={number}; ")).collect();
    let jar = sent(&[&many]);
    assert_eq!(jar.iter().count(), COOKIES_MAX);
    assert!(jar.get("n99").is_some());
}

fn set(cookie: impl Into<Cookie<'static>>) -> Result<String> {
    let response = Response::text("x").with_cookie(cookie)?;
    Ok(response.header(header::SET_COOKIE).unwrap().to_owned())
}

#[test]
fn cookies_are_set_as_they_are_built() {
    assert_eq!(set(("a", "1")).unwrap(), "a=1");
    assert_eq!(set(("a", "\u{fc}; b=\r\n")).unwrap(), "a=%C3%BC%3B%20b%3D%0D%0A");
    let session =
        Cookie::build(("__Host-id", "7")).path("/").secure(true).http_only(true).same_site(SameSite::Lax);
    assert_eq!(set(session).unwrap(), "__Host-id=7; HttpOnly; SameSite=Lax; Secure; Path=/");
}

#[test]
fn every_value_comes_back() {
    for value in ["", "plain", "50%", "a;b", "a,b", "\"q\"", " x ", "\u{1f980}", "%41", "a=b", "\0\r\n\x7f"] {
        let line = set(("a", value)).unwrap();
        assert_eq!(sent(&[&line]).get("a").unwrap().value(), value);
    }
}

#[test]
fn what_would_not_do_what_it_says_is_refused() {
    let refused = |cookie: Cookie<'static>| {
        let error = set(cookie.clone()).unwrap_err();
        assert!(error.message().contains("cannot be set"), "{cookie:?}: {error}");
    };
    for name in ["", "a b", "a=b", "a;b", "a\r\nSet-Cookie: b", "\u{fc}", "a%41", "a,b", "a\"b"] {
        refused(Cookie::new(name, "1"));
    }
    for attribute in ["/; Domain=evil.example", "/\r\nX: y", "/\u{fc}", "/ ", &"x".repeat(1025)] {
        refused(Cookie::build(("a", "1")).path(attribute.to_owned()).build());
        refused(Cookie::build(("a", "1")).domain(attribute.to_owned()).build());
    }
    for path in ["", "shop", "./", "*"] {
        let cookie = Cookie::build(("a", "1")).path(path).build();
        refused(cookie.clone());
        assert!(Response::text("x").without_cookie(cookie.clone()).is_err(), "{path:?}");
        let mut jar = CookieJar::new();
        jar.add(cookie);
        assert!(Response::text("x").with_cookies(&jar).is_err(), "{path:?}");
    }
    refused(Cookie::new("a", "x".repeat(4096)));
    assert!(set(Cookie::new("a", "x".repeat(4095))).is_ok());
    refused(Cookie::build(("a", "1")).same_site(SameSite::None).build());
    refused(Cookie::new("__Secure-a", "1"));
    refused(Cookie::build(("__Host-a", "1")).path("/").build());
    refused(Cookie::build(("__host-a", "1")).secure(true).build());
    refused(Cookie::build(("__Host-a", "1")).path("/").secure(true).domain("a.example").build());
}

#[test]
fn a_jar_sends_what_changed() {
    let mut jar = sent(&["old=1; stays=2"]);
    jar.add(("new", "3"));
    jar.remove(Cookie::build("old").path("/"));
    let response = Response::text("x").with_cookies(&jar).unwrap();
    let mut lines: Vec<_> =
        response.header_values(header::SET_COOKIE).map(|value| value.to_str().unwrap()).collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0], "new=3");
    assert!(lines[1].starts_with("old=; Path=/; Max-Age=0; Expires="), "{}", lines[1]);
}

/// The guarantees of the cookie crate hold end to end, with our encoding in between.
#[test]
fn encrypted_cookies_survive_the_way_and_nothing_else() {
    let (key, other) = (Key::derive_from(&[7; 32]), Key::derive_from(&[8; 32]));
    let mut jar = CookieJar::new();
    jar.private_mut(&key).add(("private", "secret; \u{fc}"));
    let response = Response::text("x").with_cookies(&jar).unwrap();
    let lines: Vec<_> =
        response.header_values(header::SET_COOKIE).map(|value| value.to_str().unwrap()).collect();
    assert!(!lines.concat().contains("secret"));
    let back = sent(&lines);
    assert_eq!(back.private(&key).get("private").unwrap().value(), "secret; \u{fc}");
    assert_eq!(back.private(&other).get("private"), None);
    let forged = sent(&[&lines[0].replacen('=', "=A", 1)]);
    assert_eq!(forged.private(&key).get("private"), None);
    let renamed = sent(&[&lines[0].replacen("private", "admin", 1)]);
    assert_eq!(renamed.private(&key).get("admin"), None, "a value belongs to its name");
}

/// The value must end a session at the first attempt, wherever the cookie was set and wherever the logout is.
#[test]
fn a_cookie_is_removed_where_it_was_set() {
    let removed = |cookie: Cookie<'static>| {
        let response = Response::text("x").without_cookie(cookie).unwrap();
        let line = response.header(header::SET_COOKIE).unwrap().to_owned();
        line.split_once("; Expires=").unwrap().0.to_owned()
    };
    assert_eq!(removed("a".into()), "a=; Path=/; Max-Age=0");
    assert_eq!(removed("__Host-a".into()), "__Host-a=; Secure; Path=/; Max-Age=0");
    assert_eq!(removed("__secure-a".into()), "__secure-a=; Secure; Path=/; Max-Age=0");
    let deep = Cookie::build(("a", "its value")).path("/shop").domain("shop.example").build();
    assert_eq!(removed(deep), "a=; Path=/shop; Domain=shop.example; Max-Age=0");
    assert!(Response::text("x").without_cookie("a b").is_err());
    assert!(Response::text("x").without_cookie(Cookie::build("__Host-a").path("/x")).is_err());
}

/// The prefix already defines the attributes that the removal needs.
#[test]
fn a_jar_removes_a_cookie_with_a_prefix() {
    let mut jar = sent(&["__Host-a=1; __Secure-b=2; c=3"]);
    for name in ["__Host-a", "__Secure-b", "c"] {
        jar.remove(name);
    }
    let response = Response::text("x").with_cookies(&jar).unwrap();
    let mut lines: Vec<_> = response
        .header_values(header::SET_COOKIE)
        .map(|value| value.to_str().unwrap().split_once("; Expires=").unwrap().0)
        .collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        ["__Host-a=; Secure; Path=/; Max-Age=0", "__Secure-b=; Secure; Max-Age=0", "c=; Max-Age=0"]
    );
}

#[test]
fn a_key_is_made_of_a_secret_that_is_long_enough() {
    let secret = "0123456789abcdef0123456789abcdef";
    assert_eq!(key(secret).unwrap(), Key::derive_from(secret.as_bytes()));
    let error = key(&secret[1..]).unwrap_err().to_string();
    assert!(error.contains("31 bytes") && error.contains("openssl rand"), "{error}");
    assert!(!error.contains(&secret[1..]), "a secret is not for logs");
}

type Sets = fn(Response, &Key, Cookie<'static>, Duration) -> Result<Response>;
type Reads = fn(&crate::Request<'_>, &Key, &str) -> Option<String>;

const PRIVATE: (Sets, Reads) =
    (Response::with_private_cookie, |req, key, name| req.private_cookie(key, name));
const SIGNED: (Sets, Reads) = (Response::with_signed_cookie, |req, key, name| req.signed_cookie(key, name));
const MINUTE: Duration = Duration::from_secs(60);

/// Returns the `Set-Cookie` line of a cookie that is valid for a minute.
fn protected(sets: Sets, key: &Key, name: &'static str, value: &'static str) -> String {
    let response = sets(Response::text("x"), key, Cookie::new(name, value), MINUTE).unwrap();
    response.header(header::SET_COOKIE).unwrap().to_owned()
}

/// Reads the cookie `name` of a request with this pair, after a wait.
fn read_after(wait: Duration, reads: Reads, key: &Key, name: &'static str, pair: &str) -> Option<String> {
    let key = key.clone();
    let mut client = crate::TestClient::new(move |req: &mut crate::Request<'_>| reads(req, &key, name));
    client.advance(wait);
    let answer = client.get("/").header("cookie", pair).send();
    (answer.status == 200).then(|| answer.text().to_owned())
}

fn pair(line: &str) -> &str {
    line.split(';').next().unwrap()
}

#[test]
fn the_server_expires_a_protected_cookie() {
    let key = Key::generate();
    for (sets, reads) in [PRIVATE, SIGNED] {
        let line = protected(sets, &key, "user", "a:d;a");
        assert!(line.ends_with("; Max-Age=60"), "{line}");
        let read = |wait| read_after(wait, reads, &key, "user", pair(&line));
        assert_eq!(read(MINUTE / 2).as_deref(), Some("a:d;a"));
        assert_eq!(read(MINUTE), None, "the client still sends it");
    }
}

#[test]
fn a_protected_cookie_cannot_be_forged() {
    let (key, other) = (Key::generate(), Key::generate());
    for (sets, reads) in [PRIVATE, SIGNED] {
        let line = protected(sets, &key, "a", "b:c");
        let read =
            |key: &Key, name: &'static str, pair: &str| read_after(Duration::ZERO, reads, key, name, pair);
        assert_eq!(read(&key, "a", pair(&line)).as_deref(), Some("b:c"));
        assert_eq!(read(&other, "a", pair(&line)), None, "another key");
        assert_eq!(read(&key, "b", &pair(&line).replacen("a=", "b=", 1)), None, "another name");
        assert_eq!(read(&key, "a", &format!("{}x", pair(&line))), None, "another value");
        let longer = pair(&line).replacen("%3Aa%3A", "%3Aaa%3A", 1).replacen(":a:", ":aa:", 1);
        assert_eq!(read(&key, "aa", &longer.replacen("a=", "aa=", 1)), None, "a name in the value");
        assert_eq!(read(&key, "a", "a=b%3Ac"), None, "no protection");
    }
    let line = protected(PRIVATE.0, &key, "a", "1");
    assert_eq!(read_after(Duration::ZERO, SIGNED.1, &key, "a", pair(&line)), None, "private is not signed");
    let endless = Response::text("x").with_signed_cookie(&key, ("a", "1"), Duration::MAX).unwrap();
    let line = endless.header(header::SET_COOKIE).unwrap().to_owned();
    assert_eq!(read_after(MINUTE, SIGNED.1, &key, "a", pair(&line)).as_deref(), Some("1"));
}
