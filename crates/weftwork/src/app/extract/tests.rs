//! Tests that each argument is read from its part of the request, and that an error names the argument.
#![cfg(feature = "json")]

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::*;
use crate::BodyError;
use crate::message::testing::Canned;
use crate::testing::{TestClient, TestResponse};
use crate::{HandlerExt, Next, Problem, Response, Router};

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
struct Position {
    b: i8,
    a: String,
}

#[derive(Debug, Deserialize)]
struct Id(u64);

/// A type with rules of its own, which serde's types do not know.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Code(String);

impl TryFrom<String> for Code {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Code, &'static str> {
        if text.len() == 3 { Ok(Code(text)) } else { Err("a code has three letters") }
    }
}

fn site() -> Router {
    Router::new()
        .get("/one/{id}", |Path(id): Path<u64>| format!("{id}"))
        .get("/new/{id}", |Path(id): Path<Id>| format!("{}", id.0))
        .get("/code/{code}", |Path(code): Path<Code>| code.0)
        .get("/text/{text}", |Path(text): Path<String>| text)
        .get("/order/{order}", |Path(order): Path<Order>| format!("{order:?}"))
        .get("/two/{a}/{b}", |Path((a, b)): Path<(String, i8)>| format!("{a} {b}"))
        .get("/struct/{a}/{b}", |Path(position): Path<Position>| format!("{position:?}"))
        .get("/wrong/tuple/{a}", |Path((a, b)): Path<(u8, u8)>| format!("{a} {b}"))
        .get("/wrong/one", |Path(a): Path<u8>| format!("{a}"))
        .get("/wrong/name/{a}", |Path(position): Path<Position>| format!("{position:?}"))
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
        ("/code/eur", "eur"),
        ("/text/a%2Fb%20c+", "a/b c+"),
        ("/order/down", "Down"),
        ("/two/x/-3", "x -3"),
        ("/struct/x/-3", "Position { b: -3, a: \"x\" }"),
    ] {
        assert_eq!(get(target).text(), wanted, "{target}");
    }
    let number = "invalid digit found in string";
    refused(&get("/one/x"), 400, Some("id"), &format!("the path parameter `id` is \"x\": {number}"));
    let rule = "the path parameter `code` is \"euro\": a code has three letters";
    refused(&get("/code/euro"), 400, Some("code"), rule);
    refused(&get("/two/x/y"), 400, Some("b"), &format!("the path parameter `b` is \"y\": {number}"));
    refused(&get("/struct/x/y"), 400, Some("b"), &format!("the path parameter `b` is \"y\": {number}"));
    refused(&get("/text/%FF"), 400, Some("text"), "the path parameter `text` is not UTF-8");
    for target in ["/two/x/%FF", "/struct/x/%FF"] {
        refused(&get(target), 400, Some("b"), "the path parameter `b` is not UTF-8");
    }
    refused(
        &get("/order/x"),
        400,
        Some("order"),
        "the path parameter `order` is \"x\": unknown variant `x`, expected `up` or `down`",
    );
}

/// The rest would be reported as a bad request, and the client cannot fix that.
#[test]
fn a_body_that_was_read_before_is_no_argument() {
    let reads = |count: usize| {
        move |req: &mut Request<'_>, next: Next<'_>| -> Result<Response> {
            std::io::Read::read_exact(&mut req.body(), &mut vec![0; count])?;
            Ok(next.run(req))
        }
    };
    for (path, kind, body) in [
        ("/form", "application/x-www-form-urlencoded", "q=x"),
        ("/json", "application/json", r#"{"q":"x"}"#),
        ("/text", "text/plain", "text"),
        ("/bytes", "text/plain", "text"),
    ] {
        for (count, status) in [(0, 200), (1, 500), (body.len(), 500)] {
            let mut client = TestClient::new(site().with(reads(count)));
            let answer = client.post(path).header("content-type", kind).body(body).send();
            assert_eq!(answer.status.as_u16(), status, "{path} {count}: {}", answer.text());
        }
    }
    let mut client = TestClient::new(site().with(reads(2)));
    assert_eq!(client.post("/both/1").body("text").send().text(), "1 xt");
}

/// The client cannot fix it, so the author of the route must get the error.
#[test]
fn other_captures_than_the_route_has_are_our_mistake() {
    for path in ["/wrong/tuple/1", "/wrong/one", "/wrong/name/1"] {
        let answer = get(path);
        assert_eq!(
            (answer.status.as_u16(), answer.text()),
            (
                500,
                r#"{"title":"Internal Server Error","status":500,"detail":"something went wrong on the server"}"#
            ),
            "{path}"
        );
    }
}

#[test]
fn queries_are_structs_with_repeated_keys() {
    let search: Search = get("/search?tag=a&q=x+y%26&tag=b&page=&unknown=1&order=up&exact=on").json();
    let tag = vec!["a".to_owned(), "b".to_owned()];
    assert_eq!(search, Search { q: "x y&".into(), page: None, tag, exact: true, order: Some(Order::Up) });
    let search: Search = get("/search?q=1&q=2&page=3").json();
    assert_eq!((search.q.as_str(), search.page, search.tag), ("1", Some(3), vec![]));
    refused(&get("/search"), 400, Some("q"), "the query parameter `q` is missing");
    let page = get("/search?q=&page=-1");
    refused(&page, 400, Some("page"), "the query parameter `page` is \"-1\": invalid digit found in string");
    refused(&get("/search?q=%FF"), 400, None, "the query parameters: a name or value is not UTF-8");
    let many = "q=1&".repeat(1001);
    refused(&get(&format!("/search?{many}")), 400, None, "the query parameters: more than 1000");
}

/// Also if a name occurs again after another one.
#[test]
fn pairs_are_taken_in_their_order() {
    type Texts = Vec<(String, String)>;
    let site = Router::new()
        .get("/texts", |Query(pairs): Query<Texts>| format!("{pairs:?}"))
        .get("/values", |Query(values): Query<Vec<String>>| format!("{values:?}"))
        .get("/numbers", |Query(pairs): Query<Vec<(String, Option<u32>)>>| format!("{pairs:?}"))
        .get("/names", |Query(pairs): Query<Vec<(u8, char)>>| format!("{pairs:?}"))
        .get("/list", |Query(lists): Query<std::collections::HashMap<String, Texts>>| format!("{lists:?}"))
        .get("/path/{b}/{a}", |Path(pairs): Path<Texts>| format!("{pairs:?}"))
        .get("/path/{b}", |Path(pairs): Path<Vec<(u8, String)>>| format!("{pairs:?}"))
        .post("/form", |Form(pairs): Form<Texts>| format!("{pairs:?}"));
    let mut client = TestClient::new(site);
    let all = r#"[("a", "1"), ("b", "2"), ("a", "3")]"#;
    let form = client.post("/form").form([("a", "1"), ("b", "2"), ("a", "3")]).send();
    assert_eq!(form.text(), all, "a form");
    for (target, wanted) in [
        ("/texts?a=1&b=2&a=3", all),
        ("/texts", "[]"),
        ("/values?b=1&a=2&b=3", r#"["1", "2", "3"]"#),
        ("/numbers?b=1&a=&b=3", r#"[("b", Some(1)), ("a", None), ("b", Some(3))]"#),
        ("/names?7=x&6=y", "[(7, 'x'), (6, 'y')]"),
        ("/path/1/x", r#"[("b", "1"), ("a", "x")]"#),
    ] {
        assert_eq!(client.get(target).send().text(), wanted, "{target}");
    }
    let number = "invalid digit found in string";
    let wanted = format!("the query parameter `b` is \"x\": {number}");
    refused(&client.get("/numbers?a=1&b=x").send(), 400, Some("b"), &wanted);
    let wanted = format!("the query parameter `a` has an invalid name: {number}");
    refused(&client.get("/names?1=x&a=y").send(), 400, Some("a"), &wanted);
    // A route names its captures, and a text names none.
    assert_eq!(client.get("/path/1").send().status, 500);
    assert_eq!(client.get("/list?a=1").send().status, 400);
}

#[test]
fn bodies_are_taken_by_their_type() {
    let mut client = TestClient::new(site());
    assert_eq!(client.post("/text").body("ü").send().text(), "ü");
    assert_eq!(client.post("/bytes").body(*b"\xff").send().bytes(), &b"\xff"[..]);
    refused(&client.post("/text").body(*b"\xff").send(), 400, None, "the request body is not UTF-8 text");
    assert_eq!(client.post("/both/7").body("x").send().text(), "7 x");
    let form: Search = client.post("/form").form([("q", "a b"), ("tag", "1"), ("tag", "2")]).send().json();
    assert_eq!((form.q.as_str(), form.tag.len()), ("a b", 2));
    let form = client.post("/form").form([("page", "1")]).send();
    refused(&form, 422, Some("q"), "the form's field `q` is missing");
    let untyped = client.post("/form").body("q=1").send();
    let wanted = "Content-Type must be application/x-www-form-urlencoded";
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
    let wanted = "Content-Type must be application/json";
    refused(&post("text/plain", "{}"), 415, Some("content-type"), wanted);
    let json = "application/json";
    refused(
        &post(json, r#"{"q":"x","page":"y"}"#),
        422,
        Some("page"),
        "invalid JSON in the body: invalid type: string \"y\", expected u32 at line 1 column 19",
    );
    refused(
        &post(json, "{}"),
        422,
        Some("q"),
        "invalid JSON in the body: missing field `q` at line 1 column 2",
    );
    let wanted =
        "invalid JSON in the body: invalid type: integer `7`, expected struct Search at line 1 column 1";
    refused(&post(json, "7"), 422, None, wanted);
    refused(
        &post(json, "{"),
        400,
        None,
        "invalid JSON in the body: EOF while parsing an object at line 1 column 1",
    );
    let wanted = "invalid JSON in the body: trailing characters at line 1 column 11";
    refused(&post(json, r#"{"q":"x"} x"#), 400, None, wanted);
    #[derive(Deserialize)]
    struct List {
        positions: Vec<Position>,
    }
    let list = handler(|Json(list): Json<List>| list.positions.len().to_string());
    let mut client = TestClient::new(list);
    let mut post = |body: &str| client.post("/").header("content-type", json).body(body).send();
    assert_eq!(post(r#"{"positions":[{"a":"","b":1}]}"#).text(), "1");
    let answer: Answered = post(r#"{"positions":[{"a":"","b":1},{"a":""}]}"#).json();
    assert_eq!(answer.field.as_deref(), Some("positions[1].b"));
    let answer: Answered = post(r#"{"positions":[{"a":"","b":"x"}]}"#).json();
    assert_eq!(answer.field.as_deref(), Some("positions[0].b"));
}

/// Every argument that reads the body reports the same problem for the same error.
#[test]
fn a_body_that_does_not_come_whole_is_a_problem() {
    let errors = [
        (BodyError::TooLarge { limit: 4 }, 413),
        (BodyError::Timeout, 408),
        (BodyError::Disconnected, 400),
        (BodyError::Malformed(crate::Fault::ChunkSizeInvalid), 400),
        (BodyError::ShuttingDown, 503),
    ];
    let form = "application/x-www-form-urlencoded";
    for (path, kind) in [("/text", ""), ("/bytes", ""), ("/json", "application/json"), ("/form", form)] {
        for (error, status) in &errors {
            let mut canned = Canned::asking("POST", path, &[("Content-Type", kind)]);
            canned.parts.push(Err(error.clone()));
            let response = canned.call(&site());
            assert_eq!(response.status().as_u16(), *status, "{path}");
            assert_eq!(response.header("content-type"), Some("application/problem+json"), "{path}");
            let problem: Answered = serde_json::from_slice(&canned.body_of(response)).unwrap();
            assert_eq!((problem.detail, problem.field), (error.to_string(), None), "{path}");
        }
    }
}

#[test]
fn a_list_may_have_no_value() {
    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    struct Numbers(Vec<u8>);
    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    #[allow(dead_code)]
    struct Lists {
        all_tags: Vec<String>,
        q: String,
        numbers: Numbers,
        #[serde(default)]
        exact: bool,
        set: std::collections::BTreeSet<char>,
    }
    let site = Router::new()
        .get("/", |Query(lists): Query<Lists>| format!("{lists:?}"))
        .post("/", |Form(lists): Form<Lists>| format!("{lists:?}"));
    let mut client = TestClient::new(site);
    let none = "Lists { all_tags: [], q: \"x\", numbers: Numbers([]), exact: false, set: {} }";
    assert_eq!(client.get("/?q=x").send().text(), none);
    assert_eq!(client.post("/").form([("q", "x")]).send().text(), none);
    assert_eq!(
        client.get("/?numbers=1&all-tags=a&q=x&numbers=2&set=b&exact=true").send().text(),
        "Lists { all_tags: [\"a\"], q: \"x\", numbers: Numbers([1, 2]), exact: true, set: {'b'} }"
    );
    refused(&client.get("/").send(), 400, Some("q"), "the query parameter `q` is missing");
    refused(&client.get("/?set=a").send(), 400, Some("q"), "the query parameter `q` is missing");
    let number = "invalid digit found in string";
    let answer = client.get("/?numbers=1&numbers=x&q=x").send();
    refused(&answer, 400, Some("numbers"), &format!("the query parameter `numbers` is \"x\": {number}"));
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
    #[derive(Deserialize)]
    struct One {
        x_count: u8,
    }
    let router = Router::new()
        .get("/cookie", |Cookies(session): Cookies<Session>| format!("{} {:?}", session.id, session.theme))
        .get("/field", |Header(seen): Header<Seen>| format!("{:?} {:?}", seen.x_list, seen.user_agent))
        .get("/count", |Header(one): Header<One>| format!("{}", one.x_count));
    let mut client = TestClient::new(router);
    let answer = client.get("/cookie").header("cookie", "a=b; theme=\"dark\"; id=7").send();
    assert_eq!(answer.text(), "7 Some(\"dark\")");
    let answer = client.get("/cookie").header("cookie", "id=7; theme=%C3%BC").send();
    assert_eq!(answer.text(), "7 Some(\"\u{fc}\")");
    // Encoded quotes belong to the value, as `Request::cookies` reads it.
    let answer = client.get("/cookie").header("cookie", "id=7; theme=%22dark%22").send();
    assert_eq!(answer.text(), "7 Some(\"\\\"dark\\\"\")");
    for tossed in ["id=7; id=8", "\u{2000}id=7", "%69d=7"] {
        let answer = client.get("/cookie").header("cookie", tossed).send();
        refused(&answer, 400, Some("id"), "the cookie `id` is missing");
    }
    let answer = client.get("/cookie").header("cookie", "id=x").send();
    refused(&answer, 400, Some("id"), "the cookie `id` is \"x\": invalid digit found in string");
    refused(&client.get("/cookie").send(), 400, Some("id"), "the cookie `id` is missing");
    // A client that sends `x_count` would get the same error again.
    refused(&client.get("/count").send(), 400, Some("x-count"), "the field `x-count` is missing");
    let answer = client.get("/count").header("X-Count", "x_x").send();
    let wanted = "the field `x-count` is \"x_x\": invalid digit found in string";
    refused(&answer, 400, Some("x-count"), wanted);
    let answer = client.get("/field").header("X-List", "1").header("x-list", "2").send();
    assert_eq!(answer.text(), "[\"1\", \"2\"] None");
    // A proxy that removes `User-Agent` lets `User_Agent` through.
    let answer = client.get("/field").header("x_list", "1").header("User_Agent", "x").send();
    assert_eq!(answer.text(), "[] None");
    assert_eq!(client.get("/field").send().text(), "[] None");
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
    let alone = handler(|app: State<App>| app.name.clone());
    assert_eq!(crate::message::testing::get("/", &alone).status(), 500);
}

#[test]
fn a_handler_may_decide_what_happens_without_an_argument() {
    fn read(note: Result<Json<Search>>, id: Result<Path<u64>>) -> String {
        match (note, id) {
            (Ok(Json(note)), Ok(Path(id))) => format!("{} of {id}", note.q),
            (note, id) => format!("{:?} {:?}", note.err().map(|e| e.status()), id.err().map(|e| e.status())),
        }
    }
    fn pass_on(id: Result<Path<u64>>) -> Result<String> {
        Ok(id?.0.to_string())
    }
    let mut client = TestClient::new(Router::new().post("/{id}", read).get("/{id}", pass_on));
    let json = serde_json::json!({"q": "x"});
    assert_eq!(client.post("/7").json(&json).send().text(), "x of 7");
    assert_eq!(client.post("/x").json(&json).send().text(), "None Some(400)");
    assert_eq!(client.post("/x").body("{}").send().text(), "Some(415) Some(400)");
    assert_eq!(client.get("/7").send().text(), "7");
    let refused = client.get("/x").send();
    assert!(refused.status == 400 && refused.text().contains("path parameter"), "{}", refused.text());
}

#[test]
fn what_it_is_a_result_of_says_the_rest() {
    const { assert!(<Result<Json<Search>> as Extract>::IS_BODY) };
    const { assert!(!<Result<Path<u64>> as Extract>::IS_BODY) };
    assert!(<Result<State<u64>> as Extract>::required_states().len() == 1);
    assert!(<Result<Path<u64>> as Extract>::required_states().is_empty());
}

#[test]
fn inputs_that_were_left_empty_are_none() {
    #[derive(Debug, Deserialize)]
    struct Tags {
        tag: Option<Vec<String>>,
        n: Option<u8>,
        s: Option<String>,
    }
    let told = |Query(q): Query<Tags>| format!("{:?} {:?} {:?}", q.tag, q.n, q.s);
    let mut client = TestClient::new(Router::new().get("/", told));
    for (query, want) in [
        ("", "None None None"),
        ("tag=", "None None None"),
        ("tag=&tag=", "None None None"),
        ("tag=a", r#"Some(["a"]) None None"#),
        ("tag=a&tag=", r#"Some(["a", ""]) None None"#),
        ("tag=&tag=a", r#"Some(["", "a"]) None None"#),
        ("n=&n=&s=&s=", "None None None"),
        ("n=&n=5&n=6&s=&s=a", r#"None Some(5) Some("a")"#),
        ("n=5&n=&s=a&s=", r#"None Some(5) Some("a")"#),
    ] {
        assert_eq!(client.get(format!("/?{query}")).send().text(), want, "{query}");
    }
    let refused = client.get("/?n=&n=x").send();
    assert!(refused.text().contains(r#"the query parameter `n` is \"x\""#), "{}", refused.text());
}

/// As browsers send them in a link.
#[test]
fn names_with_brackets_and_lone_percent_signs_are_read() {
    #[derive(Debug, Deserialize)]
    struct Tags {
        #[serde(rename = "tag[]")]
        tags: Vec<String>,
    }
    let site = Router::new().get("/", |Query(q): Query<Tags>| format!("{:?}", q.tags));
    let mut client = TestClient::new(
        site.get("/one", |req: &mut Request| req.query_value("tag[]").unwrap_or_default().into_owned()),
    );
    assert_eq!(client.get("/?tag[]=100%&tag%5B%5D=a|b").send().text(), r#"["100%", "a|b"]"#);
    assert_eq!(client.get("/one?tag[]={x}").send().text(), "{x}");
}

#[test]
fn a_capture_that_a_route_has_is_there() {
    let site = Router::new().get("/{id}", |Path(id): Path<Option<u8>>| format!("{id:?}"));
    let mut client = TestClient::new(site);
    assert_eq!(client.get("/7").send().text(), "Some(7)");
    assert_eq!(client.get("/x").send().status, 400);
}

#[test]
fn an_option_is_none_if_the_request_has_no_such_value() {
    #[derive(serde::Deserialize)]
    struct Page {
        page: u32,
    }
    let query = |page: Option<Query<Page>>| format!("{:?}", page.map(|page| page.page));
    let json = |page: Option<Json<Page>>| format!("{:?}", page.map(|page| page.page));
    let cookies = |page: Option<Cookies<Page>>| format!("{:?}", page.map(|page| page.page));
    let path = |id: Option<Path<u32>>| format!("{:?}", id.map(|id| *id));
    let router = Router::new().get("/query", query).post("/json", json).get("/cookies", cookies);
    let mut client = TestClient::new(router.get("/path", path).get("/path/{id}", path));
    for (path, text) in
        [("/query", "None"), ("/query?page=7", "Some(7)"), ("/path", "None"), ("/path/7", "Some(7)")]
    {
        assert_eq!(client.get(path).send().text(), text, "{path}");
    }
    assert_eq!(client.get("/cookies").send().text(), "None");
    assert_eq!(client.get("/cookies").header("cookie", "page=7").send().text(), "Some(7)");
    assert_eq!(client.post("/json").send().text(), "None");
    assert_eq!(client.post("/json").json(&serde_json::json!({"page": 7})).send().text(), "Some(7)");
    let invalid = [
        client.get("/query?page=x").send().status.as_u16(),
        client.get("/path/x").send().status.as_u16(),
        client.get("/cookies").header("cookie", "page=x").send().status.as_u16(),
        client.post("/json").json(&serde_json::json!({})).send().status.as_u16(),
        client.post("/json").body("{}").send().status.as_u16(),
    ];
    assert_eq!(invalid, [400, 400, 400, 422, 415], "an invalid value is an error");
}

/// The error type of the handler.
#[test]
fn a_result_has_any_error_that_one_converts_to() {
    struct Mine(u16);

    impl From<crate::Error> for Mine {
        fn from(error: crate::Error) -> Mine {
            Mine(error.status().as_u16())
        }
    }
    let site =
        |id: Result<Path<u32>, Mine>| id.map_or_else(|Mine(status)| status.to_string(), |id| id.to_string());
    let mut client = TestClient::new(Router::new().get("/{id}", site));
    assert_eq!((client.get("/7").send().text(), client.get("/x").send().text()), ("7", "400"));
}

#[test]
fn a_server_and_a_client_take_typed_functions() {
    let search = |Query(pairs): Query<Vec<(String, String)>>| pairs.len().to_string();
    assert_eq!(TestClient::new(search).get("/?a=1&b=2").send().text(), "2");
    assert_eq!(TestClient::new(|| "tea").get("/").send().text(), "tea");
    let server = || crate::Server::bind("127.0.0.1:0").unwrap();
    drop(server().start(search).unwrap());
    drop(server().admin("127.0.0.1:0", || "OK").unwrap().start(handler(search)).unwrap());
    let needs = |State(_): State<u64>| "tea";
    assert!(server().start(needs).is_err());
}
