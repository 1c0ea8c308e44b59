//! Checks of the public collection of RealWorld, and of what the specification says beside them: over sockets, on
//! every engine.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU32;
use std::time::Duration;

use serde_json::{Value, json};
use weftwork::{Engine, Server, TestClient};
use weftwork_realworld::{App, in_shape, site};

const SECRET: &str = "a secret of 32 bytes or more, kept";

/// A client, with the token of its user if it has one.
struct Client {
    address: SocketAddr,
    token: Option<String>,
}

impl Client {
    /// Returns the status, and the JSON of the body.
    fn send(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let (head, body) = self.exchange(method, path, &body);
        let status = head["HTTP/1.1 ".len()..][..3].parse().unwrap();
        if status == 204 {
            assert_eq!(body, "");
            return (status, Value::Null);
        }
        assert!(head.to_ascii_lowercase().contains("\r\ncontent-type: application/json"), "{head}");
        (status, serde_json::from_str(&body).unwrap())
    }

    fn exchange(&self, method: &str, path: &str, body: &Value) -> (String, String) {
        let mut socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let token = self.token.iter().map(|token| format!("Authorization: Token {token}\r\n"));
        let request = format!(
            "{method} /api{path} HTTP/1.1\r\nHost: conduit\r\nConnection: close\r\n{}Content-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            token.collect::<String>(),
            body.len()
        );
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    /// Returns the body of an answer with this status.
    fn expect(&self, status: u16, method: &str, path: &str, body: Value) -> Value {
        let (given, value) = self.send(method, path, body);
        assert_eq!(given, status, "{method} {path}: {value}");
        value
    }

    fn get(&self, path: &str) -> Value {
        self.expect(200, "GET", path, Value::Null)
    }

    /// Checks that the answer is an error in the shape of the specification, about `field`.
    fn refused(&self, status: u16, method: &str, path: &str, body: Value, field: &str) {
        let value = self.expect(status, method, path, body);
        assert!(value["errors"][field][0].is_string(), "{method} {path}: {value}");
    }
}

/// Checks that `value` has these members and no others.
fn members(value: &Value, names: &[&str]) {
    let mut given: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    let mut names = names.to_vec();
    given.sort_unstable();
    names.sort_unstable();
    assert_eq!(given, names, "{value}");
}

fn is_user(answer: &Value) -> &Value {
    members(answer, &["user"]);
    members(&answer["user"], &["email", "username", "bio", "image", "token"]);
    &answer["user"]
}

fn is_profile(answer: &Value) -> &Value {
    members(answer, &["profile"]);
    members(&answer["profile"], &["username", "bio", "image", "following"]);
    &answer["profile"]
}

fn is_timestamp(value: &Value) {
    let shape = value.as_str().unwrap().replace(|c: char| c.is_ascii_digit(), "0");
    assert_eq!(shape, "0000-00-00T00:00:00.000Z");
}

const LISTED: [&str; 9] = [
    "slug",
    "title",
    "description",
    "tagList",
    "createdAt",
    "updatedAt",
    "favorited",
    "favoritesCount",
    "author",
];

fn check_article(article: &Value, names: &[&str]) {
    members(article, names);
    members(&article["author"], &["username", "bio", "image", "following"]);
    is_timestamp(&article["createdAt"]);
    is_timestamp(&article["updatedAt"]);
    assert!(article["tagList"].is_array() && article["favoritesCount"].is_u64(), "{article}");
    assert!(article["favorited"].is_boolean(), "{article}");
}

fn is_article(answer: &Value) -> &Value {
    members(answer, &["article"]);
    check_article(&answer["article"], &[&LISTED[..], &["body"]].concat());
    &answer["article"]
}

/// Checks a list with this number of articles, all of which are in it. Articles of a list have no body.
fn are_articles(answer: &Value, count: usize) -> &Value {
    members(answer, &["articles", "articlesCount"]);
    assert_eq!(answer["articlesCount"], count, "{answer}");
    let articles = answer["articles"].as_array().unwrap();
    assert_eq!(articles.len(), count);
    articles.iter().for_each(|article| check_article(article, &LISTED));
    &answer["articles"]
}

fn check_comment(comment: &Value) {
    members(comment, &["id", "createdAt", "updatedAt", "body", "author"]);
    members(&comment["author"], &["username", "bio", "image", "following"]);
    is_timestamp(&comment["createdAt"]);
    is_timestamp(&comment["updatedAt"]);
    assert!(comment["id"].is_u64(), "{comment}");
}

/// Serves an empty database on `engine`, and calls `check` with a client that is not signed in.
fn on(engine: &str, check: fn(Client)) {
    let engine: Engine = engine.parse().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let app = App::open(&folder.path().join("conduit.sqlite"), SECRET, NonZeroU32::MIN).unwrap();
    let server = Server::bind("127.0.0.1:0").unwrap().engine(engine).problems(in_shape);
    let server = server.start(site(app).unwrap()).unwrap();
    check(Client { address: server.local_addr().unwrap(), token: None });
}

/// Registers a user, and returns a client that is signed in.
fn register(guest: &Client, name: &str) -> Client {
    let body =
        json!({"user": {"username": name, "email": format!("{name}@mail.example"), "password": "sesame"}});
    let answer = guest.expect(201, "POST", "/users", body);
    let user = is_user(&answer);
    assert_eq!((&user["username"], &user["bio"], &user["image"]), (&json!(name), &json!(""), &Value::Null));
    Client { address: guest.address, token: user["token"].as_str().map(str::to_owned) }
}

fn conduit(guest: Client) {
    accounts(&guest);
    let jo = register(&guest, "jo");
    are_articles(&guest.get("/articles"), 0);
    profiles(&guest, &jo);
    articles(&guest, &jo);
    rules(&guest, &jo);
}

fn accounts(guest: &Client) {
    let ann = register(guest, "ann");
    let login = json!({"user": {"email": "ann@mail.example", "password": "sesame"}});
    let answer = guest.expect(200, "POST", "/users/login", login);
    let token = is_user(&answer)["token"].as_str().map(str::to_owned);
    let again = Client { token, ..*guest };
    assert_eq!(is_user(&again.get("/user"))["username"], "ann");
    let changes = json!({"user": {"email": "ann@post.example", "bio": "reads", "password": "mustard"}});
    let answer = ann.expect(200, "PUT", "/user", changes);
    assert_eq!(
        (&is_user(&answer)["email"], &answer["user"]["bio"]),
        (&json!("ann@post.example"), &json!("reads"))
    );
    for (password, status) in [("mustard", 200), ("sesame", 422)] {
        let login = json!({"user": {"email": "ann@post.example", "password": password}});
        guest.expect(status, "POST", "/users/login", login);
    }
    let unknown = json!({"user": {"email": "nobody@mail.example", "password": "sesame"}});
    guest.refused(422, "POST", "/users/login", unknown, "email or password");
    let user = |name: &str, email: &str| json!({"user": {"username": name, "email": email, "password": "x"}});
    guest.refused(422, "POST", "/users", user("ann", "new@mail.example"), "username");
    guest.refused(422, "POST", "/users", user("new", "ann@post.example"), "email");
    guest.refused(422, "POST", "/users", user(" ", "new@mail.example"), "username");
    guest.refused(422, "POST", "/users", json!({"user": {}}), "user.username");
    guest.refused(401, "GET", "/user", Value::Null, "token");
    let forged = Client { token: again.token.map(|token| token + "x"), ..*guest };
    forged.refused(401, "GET", "/user", Value::Null, "token");
}

fn profiles(guest: &Client, jo: &Client) {
    for (client, method, path, following) in [
        (guest, "GET", "/profiles/ann", false),
        (jo, "GET", "/profiles/ann", false),
        (jo, "POST", "/profiles/ann/follow", true),
        (jo, "POST", "/profiles/ann/follow", true),
        (jo, "GET", "/profiles/ann", true),
        (guest, "GET", "/profiles/ann", false),
        (jo, "DELETE", "/profiles/ann/follow", false),
    ] {
        let answer = client.expect(200, method, path, Value::Null);
        assert_eq!(is_profile(&answer)["following"], following, "{method} {path}");
    }
    guest.refused(404, "GET", "/profiles/nobody", Value::Null, "profile");
    guest.refused(401, "POST", "/profiles/ann/follow", Value::Null, "token");
    jo.refused(404, "POST", "/profiles/nobody/follow", Value::Null, "profile");
}

fn articles(guest: &Client, jo: &Client) {
    let tea = json!({"article": {"title": "A Pot of Tea", "description": "d", "body": "b", "tagList": ["water", "leaf"]}});
    let answer = jo.expect(201, "POST", "/articles", tea);
    assert_eq!(
        (&is_article(&answer)["slug"], &answer["article"]["author"]["username"]),
        (&json!("a-pot-of-tea"), &json!("jo"))
    );
    assert_eq!(answer["article"]["tagList"], json!(["leaf", "water"]));
    let path = "/articles/a-pot-of-tea";
    assert_eq!(is_article(&guest.get(path))["body"], "b");
    assert_eq!(guest.get("/tags"), json!({"tags": ["leaf", "water"]}));
    for client in [guest, jo] {
        for query in ["", "?author=jo", "?tag=leaf", "?limit=1&offset=0"] {
            let answer = client.get(&format!("/articles{query}"));
            assert_eq!(are_articles(&answer, 1)[0]["slug"], "a-pot-of-tea", "{query}");
        }
        for query in ["?author=ann", "?author=johnjacob", "?tag=milk", "?favorited=jo"] {
            are_articles(&client.get(&format!("/articles{query}")), 0);
        }
    }
    are_articles(&jo.get("/articles/feed"), 0);
    let answer = jo.expect(200, "PUT", path, json!({"article": {"body": "with milk"}}));
    assert_eq!(
        (&is_article(&answer)["body"], &answer["article"]["description"]),
        (&json!("with milk"), &json!("d"))
    );
    for _ in 0..2 {
        let answer = jo.expect(200, "POST", &format!("{path}/favorite"), Value::Null);
        assert_eq!(
            (&is_article(&answer)["favorited"], &answer["article"]["favoritesCount"]),
            (&json!(true), &json!(1))
        );
    }
    for (client, is_favorite) in [(guest, false), (jo, true)] {
        let answer = client.get("/articles?favorited=jo");
        let article = &are_articles(&answer, 1)[0];
        assert_eq!((&article["favorited"], &article["favoritesCount"]), (&json!(is_favorite), &json!(1)));
    }
    let answer = jo.expect(200, "DELETE", &format!("{path}/favorite"), Value::Null);
    assert_eq!(
        (&is_article(&answer)["favorited"], &answer["article"]["favoritesCount"]),
        (&json!(false), &json!(0))
    );
    comments(guest, jo, &format!("{path}/comments"));
    let answer = jo.expect(200, "PUT", path, json!({"article": {"title": "Two Pots"}}));
    assert_eq!(is_article(&answer)["slug"], "two-pots");
    guest.refused(404, "GET", path, Value::Null, "article");
    jo.expect(204, "DELETE", "/articles/two-pots", Value::Null);
    are_articles(&guest.get("/articles"), 0);
    assert_eq!(guest.get("/tags"), json!({"tags": []}));
}

fn comments(guest: &Client, jo: &Client, path: &str) {
    assert_eq!(guest.get(path), json!({"comments": []}));
    let answer = jo.expect(200, "POST", path, json!({"comment": {"body": "Thanks"}}));
    members(&answer, &["comment"]);
    check_comment(&answer["comment"]);
    for client in [guest, jo] {
        let listed = client.get(path);
        assert_eq!(listed, json!({"comments": [answer["comment"]]}));
    }
    let one = format!("{path}/{}", answer["comment"]["id"]);
    guest.refused(401, "DELETE", &one, Value::Null, "token");
    guest.refused(401, "POST", path, json!({"comment": {"body": "x"}}), "token");
    jo.refused(422, "POST", path, json!({"comment": {"body": ""}}), "body");
    jo.expect(204, "DELETE", &one, Value::Null);
    jo.refused(404, "DELETE", &one, Value::Null, "comment");
    assert_eq!(guest.get(path), json!({"comments": []}));
}

/// Checks the feed, the order and the pages of lists, and what belongs to others.
fn rules(guest: &Client, jo: &Client) {
    let eve = register(guest, "eve");
    let article = |title: &str| json!({"article": {"title": title, "description": "d", "body": "b"}});
    for title in ["One", "Two", "Three"] {
        eve.expect(201, "POST", "/articles", article(title));
    }
    jo.expect(200, "POST", "/profiles/eve/follow", Value::Null);
    let feed = jo.get("/articles/feed");
    let slugs: Vec<_> = are_articles(&feed, 3).as_array().unwrap().iter().map(|one| &one["slug"]).collect();
    assert_eq!(slugs, ["three", "two", "one"]);
    assert_eq!(feed["articles"][0]["author"]["following"], true);
    let page = jo.get("/articles/feed?limit=1&offset=1");
    assert_eq!((&page["articles"][0]["slug"], &page["articlesCount"]), (&json!("two"), &json!(3)));
    let beyond = guest.get("/articles?offset=9");
    assert_eq!((&beyond["articles"], &beyond["articlesCount"]), (&json!([]), &json!(3)));
    let answer = eve.expect(200, "POST", "/articles/one/comments", json!({"comment": {"body": "mine"}}));
    let comment = format!("/articles/one/comments/{}", answer["comment"]["id"]);
    jo.refused(403, "DELETE", &comment, Value::Null, "comment");
    jo.refused(403, "PUT", "/articles/one", article("Stolen"), "article");
    jo.refused(403, "DELETE", "/articles/one", Value::Null, "article");
    jo.refused(422, "POST", "/articles", article("one"), "title");
    jo.refused(422, "POST", "/articles", article("?!"), "title");
    jo.refused(404, "POST", "/articles/none/favorite", Value::Null, "article");
    guest.refused(401, "POST", "/articles", article("Four"), "token");
    guest.refused(401, "GET", "/articles/feed", Value::Null, "token");
    // An article is deleted with its comments and favorites.
    jo.expect(200, "POST", "/articles/one/favorite", Value::Null);
    eve.expect(204, "DELETE", "/articles/one", Value::Null);
    are_articles(&guest.get("/articles"), 2);
}

#[test]
fn conduit_on_adaptive() {
    on("adaptive", conduit);
}

#[test]
fn conduit_on_reactor() {
    on("reactor", conduit);
}

#[test]
fn conduit_on_workers() {
    on("workers", conduit);
}

#[test]
fn conduit_on_pool() {
    on("pool", conduit);
}

#[test]
fn conduit_on_fibers() {
    on("fibers", conduit);
}

/// Checks that pages of any site may send every method of the API, and the token.
#[test]
fn pages_of_other_sites_may_use_the_api() {
    let folder = tempfile::tempdir().unwrap();
    let app = App::open(&folder.path().join("conduit.sqlite"), SECRET, NonZeroU32::MIN).unwrap();
    let mut client = TestClient::new(site(app).unwrap());
    for (path, method) in [("/user", "PUT"), ("/articles/one", "DELETE"), ("/articles", "POST")] {
        let preflight = client.options(format!("/api{path}")).header("origin", "https://page.example");
        let preflight = preflight.header("access-control-request-method", method);
        let answer = preflight.header("access-control-request-headers", "authorization").send();
        let allowed = answer.header("access-control-allow-methods").unwrap_or_default();
        assert!(allowed.split(", ").any(|one| one == method), "{method} {path}: {answer:?}");
        assert!(answer.header("access-control-allow-headers").unwrap().contains("authorization"));
    }
}

#[test]
fn a_short_secret_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    assert!(App::open(&folder.path().join("conduit.sqlite"), "short", NonZeroU32::MIN).is_err());
}
