//! Is each argument taken from its place, and is what cannot be taken named?
#![cfg(feature = "json")]

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::*;
use crate::testing::{TestClient, TestResponse};
use crate::{Problem, Router};

#[derive(Debug, Deserialize, Serialize, PartialEq)]
struct Search {
    q: String,
    page: Option<u32>,
    #[serde(default)]
    tag: Vec<String>,
    #[serde(default)]
    exact: bool,
    order: Option<Order>,
}

#[derive(Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Order {
    Up,
    Down,
}

#[derive(Debug, Deserialize)]
#[allow(dead_code)]
struct Place {
    b: i8,
    a: String,
}

#[derive(Debug, Deserialize)]
struct Id(u64);

fn site() -> Router {
    Router::new()
        .get("/one/{id}", |Path(id): Path<u64>| format!("{id}"))
        .get("/new/{id}", |Path(id): Path<Id>| format!("{}", id.0))
        .get("/text/{text}", |Path(text): Path<String>| text)
        .get("/order/{order}", |Path(order): Path<Order>| format!("{order:?}"))
        .get("/two/{a}/{b}", |Path((a, b)): Path<(String, i8)>| format!("{a} {b}"))
        .get("/struct/{a}/{b}", |Path(place): Path<Place>| format!("{place:?}"))
        .get("/wrong/{a}", |Path((a, b)): Path<(u8, u8)>| format!("{a} {b}"))
        .get("/search", |Query(search): Query<Search>| crate::json(&search))
        .post("/form", |Form(search): Form<Search>| crate::json(&search))
        .post("/json", |Json(search): Json<Search>| Json(search))
        .post("/text", |text: String| text)
        .post("/bytes", |bytes: Bytes| bytes)
        .post("/both/{id}", |Path(id): Path<u8>, req: &mut Request| -> Result<String> {
            Ok(format!("{id} {}", req.body().text()?))
        })
}

#[derive(Deserialize)]
struct Answered {
    detail: String,
    field: Option<String>,
}

#[track_caller]
fn get(target: &str) -> TestResponse {
    TestClient::new(site()).get(target).send()
}

#[track_caller]
fn refused(answer: &TestResponse, status: u16, field: Option<&str>, detail: &str) {
    assert_eq!(
        (answer.status.as_u16(), answer.header("content-type")),
        (status, Some("application/problem+json"))
    );
    let problem: Answered = answer.json();
    assert_eq!((problem.field.as_deref(), problem.detail.as_str()), (field, detail));
}

#[test]
fn captures_are_taken_as_one_as_a_tuple_or_by_name() {
    for (target, wanted) in [
        ("/one/7", "7"),
        ("/new/7", "7"),
        ("/text/a%2Fb%20c+", "a/b c+"),
        ("/order/down", "Down"),
        ("/two/x/-3", "x -3"),
        ("/struct/x/-3", "Place { b: -3, a: \"x\" }"),
    ] {
        assert_eq!(get(target).text(), wanted, "{target}");
    }
    let number = "invalid digit found in string";
    refused(&get("/one/x"), 400, Some("id"), &format!("the path parameter `id` is \"x\": {number}"));
    refused(&get("/two/x/y"), 400, Some("b"), &format!("the path parameter `b` is \"y\": {number}"));
    refused(&get("/struct/x/y"), 400, Some("b"), &format!("the path parameter `b` is \"y\": {number}"));
    refused(&get("/text/%FF"), 400, None, "the path parameters: one of them is not UTF-8");
    refused(&get("/wrong/1"), 400, None, "the path parameters: there are 1 of them, and 2 are taken");
    refused(
        &get("/order/x"),
        400,
        Some("order"),
        "the path parameter `order` is \"x\": unknown variant `x`, expected `up` or `down`",
    );
}

#[test]
fn queries_are_structs_with_repeated_keys() {
    let search: Search = get("/search?tag=a&q=x+y%26&tag=b&page=&unknown=1&order=up&exact=on").json();
    let tag = vec!["a".to_owned(), "b".to_owned()];
    assert_eq!(search, Search { q: "x y&".into(), page: None, tag, exact: true, order: Some(Order::Up) });
    let search: Search = get("/search?q=1&q=2&page=3").json();
    assert_eq!((search.q.as_str(), search.page), ("1", Some(3)));
    refused(&get("/search"), 400, Some("q"), "the query parameter `q` is missing");
    let page = get("/search?q=&page=-1");
    refused(&page, 400, Some("page"), "the query parameter `page` is \"-1\": invalid digit found in string");
    refused(&get("/search?q=%FF"), 400, None, "the query parameters: one of them is not UTF-8");
    let many = "q=1&".repeat(1001);
    refused(
        &get(&format!("/search?{many}")),
        400,
        None,
        "the query parameters: there are more than 1000 of them",
    );
}

#[test]
fn bodies_are_taken_by_their_type() {
    let mut client = TestClient::new(site());
    assert_eq!(client.post("/text").body("ü").send().text(), "ü");
    assert_eq!(client.post("/bytes").body(*b"\xff").send().bytes(), &b"\xff"[..]);
    assert_eq!(client.post("/text").body(*b"\xff").send().status, 400);
    assert_eq!(client.post("/both/7").body("x").send().text(), "7 x");
    let form: Search = client.post("/form").form([("q", "a b"), ("tag", "1"), ("tag", "2")]).send().json();
    assert_eq!((form.q.as_str(), form.tag.len()), ("a b", 2));
    let form = client.post("/form").form([("page", "1")]).send();
    refused(&form, 422, Some("q"), "the form's field `q` is missing");
    let untyped = client.post("/form").body("q=1").send();
    let wanted = "the body has to be application/x-www-form-urlencoded, as Content-Type says";
    refused(&untyped, 415, Some("content-type"), wanted);
}

#[test]
fn json_is_taken_where_it_is_said_to_be() {
    let mut client = TestClient::new(site());
    let mut post =
        |kind: &str, body: &str| client.post("/json").header("content-type", kind).body(body).send();
    for kind in ["application/json", "Application/JSON; charset=utf-8", "application/vnd.x+json"] {
        let echo: Search = post(kind, r#"{"q":"x","page":2}"#).json();
        assert_eq!((echo.q.as_str(), echo.page), ("x", Some(2)));
    }
    let wanted = "the body has to be application/json, as Content-Type says";
    refused(&post("text/plain", "{}"), 415, Some("content-type"), wanted);
    let json = "application/json";
    refused(
        &post(json, r#"{"q":"x","page":"y"}"#),
        422,
        Some("page"),
        "the JSON of the body: invalid type: string \"y\", expected u32 at line 1 column 19",
    );
    refused(&post(json, "{}"), 422, Some("."), "the JSON of the body: missing field `q` at line 1 column 2");
    assert_eq!(post(json, "{").status, 400);
    assert_eq!(post(json, r#"{"q":"x"} x"#).status, 400);
}

#[test]
fn cookies_and_fields_are_structs() {
    #[derive(Deserialize)]
    struct Session {
        id: u32,
        theme: Option<String>,
    }
    #[derive(Deserialize)]
    struct Seen {
        x_list: Vec<String>,
        user_agent: Option<String>,
    }
    let router = Router::new()
        .get("/cookie", |Cookie(session): Cookie<Session>| format!("{} {:?}", session.id, session.theme))
        .get("/field", |Header(seen): Header<Seen>| format!("{:?} {:?}", seen.x_list, seen.user_agent));
    let mut client = TestClient::new(router);
    let answer = client.get("/cookie").header("cookie", "a=b; theme=\"dark\"; id=7").send();
    assert_eq!(answer.text(), "7 Some(\"dark\")");
    let answer = client.get("/cookie").header("cookie", "id=7; theme=%C3%BC").send();
    assert_eq!(answer.text(), "7 Some(\"\u{fc}\")");
    for tossed in ["id=7; id=8", "\u{2000}id=7", "%69d=7"] {
        let answer = client.get("/cookie").header("cookie", tossed).send();
        refused(&answer, 400, Some("id"), "the cookie `id` is missing");
    }
    let answer = client.get("/cookie").header("cookie", "id=x").send();
    refused(&answer, 400, Some("id"), "the cookie `id` is \"x\": invalid digit found in string");
    refused(&client.get("/cookie").send(), 400, Some("id"), "the cookie `id` is missing");
    let answer = client.get("/field").header("X-List", "1").header("x-list", "2").send();
    assert_eq!(answer.text(), "[\"1\", \"2\"] None");
    refused(&client.get("/field").send(), 400, Some("x_list"), "the field `x_list` is missing");
}

#[derive(Default)]
struct App {
    name: String,
}

impl App {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn greet(&self, Path(who): Path<String>, State(_): State<App>, req: &mut Request<'_>) -> String {
        format!("{} greets {who} at {}", self.name, req.path())
    }

    fn taken(&self, Path(who): Path<String>) -> Result<String> {
        Err(Problem::new(http::StatusCode::CONFLICT).detail(format!("{who} is taken")))?
    }
}

#[test]
fn methods_of_a_state_are_handlers() {
    let app = App { name: "Ada".into() };
    let router = Router::new()
        .get("/", App::name)
        .get("/greet/{who}", App::greet)
        .get("/taken/{who}", App::taken)
        .get("/kept", |State(app): State<App>| app.name.clone())
        .state(app);
    let mut client = TestClient::new(router);
    assert_eq!(client.get("/").send().text(), "Ada");
    assert_eq!(client.get("/greet/Bob").send().text(), "Ada greets Bob at /greet/Bob");
    assert_eq!(client.get("/kept").send().text(), "Ada");
    let answer = client.get("/taken/Bob").send();
    assert_eq!((answer.status.as_u16(), answer.json::<Answered>().detail.as_str()), (409, "Bob is taken"));
}

#[test]
fn a_function_of_arguments_is_a_handler_without_a_router_too() {
    let mut client = TestClient::new(handler(|Query(search): Query<Search>| search.q));
    assert_eq!(client.get("/?q=x").send().text(), "x");
    let mut client = TestClient::new(handler(|app: State<App>| app.name.clone()));
    assert_eq!(client.get("/").send().status, 500);
}
