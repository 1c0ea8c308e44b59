//! Tests the answer to each request.

use weftwork::prelude::*;
use weftwork::{Blocking, MatchError, MethodFilter, TestClient};

#[derive(Routes, Debug, PartialEq, Clone)]
enum Site {
    #[get("/")]
    Home,
    #[get("/users/{id}")]
    User { id: u64 },
    #[get("/users/me")]
    Me,
    #[post("/users")]
    NewUser,
    #[get("/people?{sort}")]
    #[get("/users")]
    Users { sort: Option<String> },
    #[put("/users/{id}")]
    #[patch("/users/{id}")]
    ChangeUser { id: u64 },
    #[delete("/users/{name}")]
    RemoveUser { name: String },
    #[get("/search?{q}&{page}&{tag}&page-size={size}")]
    Search { q: String, page: Option<u32>, tag: Vec<String>, size: Option<u8> },
    #[get("/files/{*path}")]
    File { path: String },
    #[get("/files/{id}/raw")]
    Raw { id: u32 },
    #[get("/files/")]
    Files,
    #[any("/anything")]
    Anything,
    #[head("/anything")]
    HeadOfAnything,
    #[options("/own")]
    OwnOptions,
    #[get("/a b/ü")]
    Spelt,
    #[get("/a[1]")]
    Bracketed,
    #[get("/{lang}/about")]
    About { lang: String },
    #[get("/type/{type}")]
    Keyword { r#type: String },
    #[nest("/admin")]
    Admin(Admin),
    #[nest("/teams/{team}")]
    Team { team: u16, page: Team },
    #[get("/report")]
    #[blocks]
    Report,
}

#[derive(Routes, Debug, PartialEq, Clone)]
enum Admin {
    #[get("/")]
    Overview,
    #[post("/users/{id}/ban?{why}")]
    Ban { id: u64, why: Option<String> },
}

#[derive(Routes, Debug, PartialEq, Clone)]
enum Team {
    #[get("/?{tab}")]
    Home { tab: Option<String> },
    #[nest("/deep")]
    Deep(Admin),
}

fn site(route: Site, _: &mut Request) -> Result<String> {
    Ok(format!("{route:?}"))
}

#[track_caller]
fn found(request: &str, route: Site) {
    let (method, target) = request.split_once(' ').unwrap();
    let mut client = TestClient::new(routes(site));
    let answer = client.request(method.parse().unwrap(), target).send();
    assert_eq!((answer.status.as_u16(), answer.text()), (200, &*format!("{route:?}")), "{request}");
    assert_eq!(Site::from_path(&method.parse().unwrap(), target), Ok(route));
}

#[track_caller]
fn refused(request: &str, status: u16, allow: Option<&str>) -> weftwork::TestResponse {
    let (method, target) = request.split_once(' ').unwrap();
    let mut client = TestClient::new(routes(site));
    let answer = client.request(method.parse().unwrap(), target).send();
    assert_eq!((answer.status.as_u16(), answer.header("allow")), (status, allow), "{request}");
    answer
}

#[test]
fn paths_and_methods_find_their_route() {
    found("GET /", Site::Home);
    found("GET /users/7", Site::User { id: 7 });
    found("GET /users/me", Site::Me);
    found("GET /users", Site::Users { sort: None });
    found("GET /people?sort=name", Site::Users { sort: Some("name".into()) });
    found("POST /users", Site::NewUser);
    found("PUT /users/7", Site::ChangeUser { id: 7 });
    found("PATCH /users/8", Site::ChangeUser { id: 8 });
    found("DELETE /users/me", Site::RemoveUser { name: "me".into() });
    found("GET /report", Site::Report);
}

#[test]
fn the_more_literal_route_wins_and_the_others_are_tried() {
    found("GET /files/7/raw", Site::Raw { id: 7 });
    found("GET /files/7/raw/x", Site::File { path: "7/raw/x".into() });
    found("GET /files/x", Site::File { path: "x".into() });
    found("GET /files/", Site::Files);
    found("GET /files//", Site::File { path: "/".into() });
    found("GET /de/about", Site::About { lang: "de".into() });
    refused("GET /users/about", 400, None);
    found("GET /admin/", Site::Admin(Admin::Overview));
    refused("GET /admin/about", 404, None);
    refused("GET /files", 404, None);
}

/// As in a `Router`: a capture of one segment is never empty.
#[test]
fn no_capture_is_an_empty_segment() {
    refused("GET /users/", 404, None);
    refused("DELETE /users/", 404, None);
    refused("GET //about", 404, None);
    refused("GET /teams//deep", 404, None);
    refused("GET /teams/", 404, None);
    found("GET /files//raw", Site::File { path: "/raw".into() });
}

/// As in the extractor `Query`: an input that was left empty counts as missing, and a checkbox sends `on`.
#[cfg(feature = "json")]
#[test]
fn forms_are_read_as_by_the_extractor() {
    #[derive(Routes, Debug)]
    enum Form {
        #[get("/?{text}&{number}&{checked}&{maybe}&{list}")]
        Sent { text: String, number: Option<u8>, checked: bool, maybe: Option<String>, list: Vec<bool> },
    }
    #[derive(serde::Deserialize)]
    struct Fields {
        text: String,
        number: Option<u8>,
        checked: bool,
        maybe: Option<String>,
        list: Vec<bool>,
    }
    let by_enum = |form: Form, _: &mut Request| format!("{form:?}");
    let by_struct = |weftwork::Query(Fields { text, number, checked, maybe, list }): weftwork::Query<
        Fields,
    >| { format!("{:?}", Form::Sent { text, number, checked, maybe, list }) };
    let mut clients = (TestClient::new(routes(by_enum)), TestClient::new(Router::new().get("/", by_struct)));
    let mut both = |query: &str| {
        let target = format!("/?{query}");
        let (one, other) = (clients.0.get(&target).send(), clients.1.get(&target).send());
        assert_eq!(one.status, other.status, "{query}");
        if one.status == 200 {
            assert_eq!(one.text(), other.text(), "{query}");
        }
        one.status.as_u16()
    };
    assert_eq!(both("text=&number=&checked=on&maybe=&list=on&list=false"), 200);
    assert_eq!(both("text=on&number=7&checked=true&maybe=on"), 200);
    assert_eq!(both("text=x&checked=false&maybe=+"), 200);
    assert_eq!(both("text=&text=x&checked=on&number=&number=&maybe=&maybe="), 200);
    assert_eq!(both("text=x&checked=on&number=&number=5&maybe=&maybe=a"), 200);
    assert_eq!(both("text=x&checked=on&number=&number=x"), 400);
    assert_eq!(both("text=x&checked=off"), 400);
    assert_eq!(both("text=x&checked="), 400);
    assert_eq!(both("text=x&checked=on&number=on"), 400);
}

/// For other types, and in a path, the `on` of a checkbox is a text like any other.
#[test]
fn on_is_true_for_a_bool_alone() {
    #[derive(Debug, PartialEq)]
    struct Long(String);
    impl std::str::FromStr for Long {
        type Err = &'static str;
        fn from_str(text: &str) -> Result<Long, &'static str> {
            if text.len() < 3 { Err("too short") } else { Ok(Long(text.into())) }
        }
    }
    impl std::fmt::Display for Long {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(&self.0)
        }
    }
    #[derive(Routes, Debug, PartialEq)]
    enum Users {
        #[get("/users/{name}")]
        User { name: Long },
        #[get("/is/{it}")]
        Is { it: bool },
        #[get("/find?{name}&{all}")]
        Find { name: Option<Long>, all: bool },
    }
    for path in ["/users/on", "/is/on", "/find?name=on&all=on"] {
        assert!(Users::from_path(&Method::GET, path).is_err(), "{path}");
    }
    let found = Users::from_path(&Method::GET, "/find?name=Ada&all=on");
    assert_eq!(found, Ok(Users::Find { name: Some(Long("Ada".into())), all: true }));
}

/// As in the documentation of `Routes`.
#[test]
fn a_nest_answers_what_a_route_beside_it_does_not_take() {
    #[derive(Routes, Debug, PartialEq)]
    enum Teams {
        #[get("/teams/new")]
        New,
        #[nest("/teams/{team}")]
        Team { team: u16, page: Team },
    }
    assert_eq!(Teams::from_path(&Method::GET, "/teams/new"), Ok(Teams::New));
    let beside = Teams::from_path(&Method::POST, "/teams/new");
    assert!(matches!(beside, Err(MatchError::InvalidParam(part)) if part.name == "team"));
}

#[test]
fn parts_are_decoded_once() {
    found("GET /files/a%2Fb/%2525/%C3%BC", Site::File { path: "a/b/%25/ü".into() });
    found("GET /search?q=a+b%26c&unknown=1", search("a b&c", None, &[]));
    found("GET /search?%71=x", search("x", None, &[]));
    found("GET /search?q=1&q=2&tag=a&tag=&tag=c", search("1", None, &["a", "", "c"]));
    found("GET /search?q=&page=2", search("", Some(2), &[]));
    found("GET /search?q=x&page=", search("x", None, &[]));
    found("GET /a%20b/%C3%BC", Site::Spelt);
    found("GET /a[1]", Site::Bracketed);
    found("GET /type/x", Site::Keyword { r#type: "x".into() });
    refused("GET /a%20b/%c3%bc", 404, None);
    refused("GET /%61dmin", 404, None);
    refused("GET /Users/7", 404, None);
}

fn search(q: &str, page: Option<u32>, tag: &[&str]) -> Site {
    let tag = tag.iter().map(ToString::to_string).collect();
    Site::Search { q: q.into(), page, tag, size: None }
}

#[test]
fn nests_serve_all_paths_below_them() {
    found("GET /admin", Site::Admin(Admin::Overview));
    let ban = Admin::Ban { id: 3, why: Some("x y".into()) };
    found("POST /admin/users/3/ban?why=x%20y", Site::Admin(ban.clone()));
    found("GET /teams/9", Site::Team { team: 9, page: Team::Home { tab: None } });
    found("GET /teams/9?tab=x", Site::Team { team: 9, page: Team::Home { tab: Some("x".into()) } });
    found("POST /teams/9/deep/users/3/ban?why=x%20y", Site::Team { team: 9, page: Team::Deep(ban) });
    refused("GET /admin/users/3/ban", 405, Some("POST, OPTIONS"));
    refused("GET /adminx", 404, None);
    refused("GET /teams", 404, None);
    refused("GET /teams/9/nothing", 404, None);
}

#[test]
fn other_methods_are_refused_with_those_that_are_taken() {
    refused("DELETE /", 405, Some("GET, HEAD, OPTIONS"));
    refused("POST /users/7", 405, Some("GET, HEAD, PUT, DELETE, PATCH, OPTIONS"));
    refused("PURGE /users", 405, Some("GET, HEAD, POST, OPTIONS"));
    assert_eq!(
        refused("POST /", 405, Some("GET, HEAD, OPTIONS")).text(),
        r#"{"title":"Method Not Allowed","status":405,"detail":"/ allows GET, HEAD, OPTIONS, not POST"}"#
    );
    assert_eq!(
        refused("GET /nothing", 404, None).text(),
        r#"{"title":"Not Found","status":404,"detail":"there is nothing here"}"#
    );
}

#[test]
fn options_are_answered_where_no_route_takes_them() {
    assert_eq!(refused("OPTIONS /users", 204, Some("GET, HEAD, POST, OPTIONS")).bytes().len(), 0);
    refused("OPTIONS /nothing", 404, None);
    found("OPTIONS /own", Site::OwnOptions);
    let whole = "GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS, TRACE";
    refused("OPTIONS *", 204, Some(whole));
    let mut client = TestClient::new(Router::new().any("/x", || "any"));
    assert_eq!(client.options("*").send().header("allow"), Some(whole));
}

#[test]
fn head_is_answered_by_get() {
    let mut client = TestClient::new(routes(site));
    let head = client.head("/users/7").send();
    assert_eq!((head.status.as_u16(), head.header("content-length")), (200, Some("14")));
    assert_eq!(head.bytes().len(), 0);
    refused("HEAD /admin/users/3/ban", 405, Some("POST, OPTIONS"));
    let own = Site::from_path(&Method::HEAD, "/anything");
    assert_eq!(own, Ok(Site::HeadOfAnything));
}

#[test]
fn any_takes_every_other_method() {
    for method in ["GET", "POST", "OPTIONS", "PURGE"] {
        found(&format!("{method} /anything"), Site::Anything);
    }
}

/// RFC 9112 section 3.2.3: CONNECT has an authority instead of a path.
#[test]
fn connect_is_for_the_fallback_and_no_route() {
    #[derive(Routes, Debug)]
    enum All {
        #[any("/{*path}")]
        Path { path: String },
    }
    let page = |req: &mut Request| (StatusCode::GONE, format!("fallback {:?}", req.path()));
    let by_enum = routes(|all: All, _: &mut Request| format!("{all:?}")).fallback(page);
    let by_router = Router::new().any("/", || "root").any("/{*path}", || "path").fallback(page);
    for client in [TestClient::new(by_enum), TestClient::new(by_router)] {
        let mut connection = client.connect();
        connection.send("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n");
        let answer = connection.response();
        assert_eq!((answer.status.as_u16(), answer.text()), (410, "fallback \"\""));
    }
    assert_eq!(
        All::from_path(&Method::CONNECT, "/x").unwrap_err(),
        MatchError::MethodNotAllowed(MethodFilter::ANY)
    );
    assert!(!MethodFilter::ANY.intersects(MethodFilter::CONNECT));
}

#[test]
fn a_handler_that_declines_leaves_the_request_to_the_fallback() {
    fn site(route: Site, _: &mut Request) -> Response {
        match route {
            Site::User { id: 7 } => text("user"),
            _ => Response::decline(),
        }
    }
    let page = |req: &mut Request| (StatusCode::GONE, format!("no {}", req.path()));
    let mut client = TestClient::new(routes(site).fallback(page));
    assert_eq!(client.get("/users/7").send().text(), "user");
    for path in ["/users/8", "/nothing"] {
        let answer = client.get(path).send();
        assert_eq!((answer.status.as_u16(), answer.text()), (410, format!("no {path}").as_str()));
    }
    assert_eq!(client.get("/users/x").send().status, 400);
    let mut client = TestClient::new(routes(site));
    assert_eq!(client.get("/users/8").send().status, 404);
    let mut client = TestClient::new(Router::new().mount("/", routes(site)).fallback(page));
    assert_eq!(client.get("/users/8").send().text(), "no /users/8");
}

#[track_caller]
fn malformed(target: &str, field: &str, detail: &str) {
    let answer = refused(&format!("GET {target}"), 400, None);
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    let want = format!(
        r#"{{"title":"Bad Request","status":400,"detail":{},"field":"{field}"}}"#,
        serde_json::to_string(detail).unwrap()
    );
    assert_eq!(answer.text(), want);
}

#[test]
fn what_does_not_parse_is_named() {
    malformed("/users/seven", "id", "the path parameter `id` is \"seven\": invalid digit found in string");
    malformed("/search", "q", "the query parameter `q` is missing");
    malformed(
        "/search?q=1&page=-1",
        "page",
        "the query parameter `page` is \"-1\": invalid digit found in string",
    );
    malformed(
        "/search?q=1&page-size=256",
        "page-size",
        "the query parameter `page-size` is \"256\": number too large to fit in target type",
    );
    malformed("/files/%FF", "path", "the path parameter `path` is not UTF-8");
    malformed("/search?q=%FF", "q", "the query parameter `q` is not UTF-8");
    let long = format!("/users/{}", "x".repeat(1000));
    let told = format!("the path parameter `id` is \"{}\"...: invalid digit found in string", "x".repeat(40));
    malformed(&long, "id", &told);
}

#[test]
fn links_are_safe_in_html_and_stay_on_this_host() {
    let link =
        Site::Search { q: "a&b'\"<".into(), page: Some(1), tag: vec![], size: None }.link("1 < 2 & \"3\"");
    let href = "/search?q=a%26b%27%22%3C&amp;page=1";
    assert_eq!(link, format!("<a href=\"{href}\">1 &lt; 2 &amp; &quot;3&quot;</a>"));
    let elsewhere = Site::About { lang: String::new() };
    assert_eq!(elsewhere.to_path(), "//about");
    assert_eq!(elsewhere.href(), "/.//about");
    let redirect = elsewhere.redirect();
    assert_eq!(redirect.status(), StatusCode::SEE_OTHER);
    assert_eq!(redirect.header_lines()[0].1, "/.//about");
    let file = Site::File { path: "/evil.example/../x".into() };
    assert_eq!(file.to_path(), "/files/%2Fevil.example/%2E%2E/x");
}

#[test]
fn a_route_knows_its_method_and_a_miss_is_an_error() {
    assert_eq!(Site::ChangeUser { id: 1 }.method(), Method::PUT);
    assert_eq!(Site::Admin(Admin::Ban { id: 1, why: None }).method(), Method::POST);
    assert_eq!(Site::Anything.method(), Method::GET);
    let miss = Site::from_path(&Method::GET, "nothing").unwrap_err();
    assert_eq!((miss.clone(), miss.to_string()), (MatchError::NotFound, "no route has this path".into()));
    let miss = Site::from_path(&Method::POST, "/").unwrap_err();
    assert_eq!(miss.to_string(), "the routes with this path allow GET, HEAD");
}

#[test]
fn routes_are_listed_with_their_prefixes() {
    let listed = Team::list().to_string();
    assert_eq!(
        listed,
        "GET   /?{tab}                     Home\n\
         GET   /deep                       Deep::Overview\n\
         POST  /deep/users/{id}/ban?{why}  Deep::Ban\n"
    );
    let all: Vec<[String; 3]> = Site::list().lines().map(|line| line.map(str::to_owned)).collect();
    for line in [
        ["GET", "/people?{sort}", "Users"],
        ["any", "/anything", "Anything"],
        ["GET", "/teams/{team}?{tab}", "Team::Home"],
        ["POST", "/teams/{team}/deep/users/{id}/ban?{why}", "Team::Deep::Ban"],
    ] {
        assert!(all.contains(&line.map(str::to_owned)), "{line:?} is not in {all:?}");
    }
}

#[test]
fn engines_learn_each_route_by_itself() {
    let learned = |method: &str, path: &str| {
        Site::blocking_of(MethodFilter::of(&method.parse().unwrap()), path.as_bytes()).unwrap()
    };
    let user = learned("GET", "/users/7");
    assert!(matches!(user, Blocking::Learn { .. }));
    assert_eq!(learned("GET", "/users/8"), user);
    for (method, path) in [
        ("GET", "/users/me"),
        ("PUT", "/users/7"),
        ("GET", "/admin"),
        ("GET", "/teams/1"),
        ("GET", "/teams/1/deep"),
    ] {
        assert_ne!(learned(method, path), user, "{method} {path}");
    }
    assert_ne!(learned("GET", "/admin"), learned("GET", "/teams/1/deep"), "one enum, nested twice");
    assert_eq!(learned("GET", "/report"), Blocking::Always);
    assert_eq!(Site::blocking_of(MethodFilter::GET, b"/nothing"), None);
}

#[test]
fn a_fallback_says_whether_its_body_is_read_ahead() {
    let fallback = weftwork::unbuffered(|_: &mut Request| "at once");
    let client = TestClient::new(routes(|_: Site, _: &mut Request| "a route").fallback(fallback));
    let mut connection = client.connect();
    connection.send("POST /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(connection.response().text(), "at once");
}

#[test]
fn the_handler_of_an_unbuffered_route_does_not_wait_for_the_body() {
    #[derive(Routes)]
    enum Outer {
        #[nest("/inner")]
        Inner(Inner),
        #[post("/form")]
        Form,
    }
    #[derive(Routes)]
    enum Inner {
        #[post("/talk")]
        #[unbuffered]
        Talk,
        #[post("/form")]
        Form,
    }
    let client = TestClient::new(routes(|route: Outer, _: &mut Request| match route {
        Outer::Inner(Inner::Talk) => "talk",
        Outer::Inner(Inner::Form) | Outer::Form => "form",
    }));
    for (target, at_once) in [("/inner/talk", true), ("/inner/form", false), ("/form", false)] {
        let mut connection = client.connect();
        connection.send(format!("POST {target} HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nab"));
        assert_eq!(connection.try_response().is_ok(), at_once, "{target}");
        connection.send("c");
        assert_eq!(connection.try_response().is_ok(), !at_once, "{target}");
    }
}

/// An error may be the whole response, also the error of a function that the handler calls.
#[test]
fn an_error_that_is_a_response_is_the_answer() {
    fn of_admins(req: &Request<'_>) -> Result<()> {
        match req.bearer_token() {
            Some(_) => Ok(()),
            None => Err(Response::redirect("/login")?)?,
        }
    }
    fn site(route: Admin, req: &mut Request<'_>) -> Result<String> {
        of_admins(req)?;
        Ok(format!("{route:?}"))
    }
    let mut client = TestClient::new(routes(site));
    let answer = client.get("/").send();
    assert_eq!((answer.status, answer.header("location")), (StatusCode::SEE_OTHER, Some("/login")));
    assert_eq!(client.get("/").header("authorization", "Bearer x").send().text(), "Overview");
}

/// A proxy behind the routes gets the path as it was sent. What is in front of it compares the normal form.
#[test]
fn the_path_of_a_proxy_is_compared_in_its_normal_form() {
    let echo = |req: &mut Request| req.target().to_owned();
    let behind = Server::bind("127.0.0.1:0").unwrap().start(echo).unwrap();
    let proxy = weftwork::Proxy::to(&format!("http://{}", behind.local_addr().unwrap())).unwrap();
    let guard = |req: &mut Request, next: Next| match req.path().starts_with("/closed") {
        true => "refused".into_response(),
        false => next.run(req),
    };
    let site = routes(|route: Site, _: &mut Request| format!("{route:?}")).fallback(proxy);
    let mut client = TestClient::new(site.with(guard));
    for (target, answer) in [
        ("/else//%7Eb", "/else//%7Eb"),
        ("/else/./b", "/else/./b"),
        ("//closed", "refused"),
        ("/%63losed/x", "refused"),
        ("/else/../closed", "refused"),
        // A route of the site gets its own path as it was sent.
        ("/files/%61//b", "File { path: \"a//b\" }"),
    ] {
        assert_eq!(client.get(target).send().text(), answer, "{target}");
    }
}
