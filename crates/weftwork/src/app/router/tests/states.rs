//! Tests that handlers get their states, and that a missing state is reported before the start.

use std::borrow::Cow;

use super::*;
use crate::app::routes::{MatchError, MethodFilter, Route, Routes, derived, routes};
use crate::{Extract, RequiredState, Result, Server, handler};

struct Name(&'static str);

#[test]
fn the_innermost_state_is_taken() {
    let name = |State(name): State<Name>| name.0;
    let sub = || Router::new().get("/own", name).state(Name("inner"));
    let router = Router::new()
        .get("/", name)
        .nest("/nest", sub())
        .nest("/outer", Router::new().nest("/deep", sub()).get("/", name))
        .mount("/mount", sub())
        .fallback(name)
        .state(Name("outer"));
    check(
        router,
        &[
            ("GET /", "outer"),
            ("GET /nest/own", "inner"),
            ("GET /outer", "outer"),
            ("GET /outer/deep/own", "inner"),
            ("GET /mount/own", "inner"),
            ("GET /else", "outer"),
        ],
    );
}

#[test]
fn a_state_that_the_program_shares_is_given_as_its_arc() {
    let shared = Arc::new(Name("shared"));
    let by_argument = |State(name): State<Name>| name.0;
    let by_reference = |name: &Name| name.0;
    let by_arc = |State(name): State<Arc<Name>>| name.0;
    let site = Router::new()
        .get("/argument", by_argument)
        .get("/reference", by_reference)
        .get("/arc", by_arc)
        .state(shared.clone());
    assert_eq!(site.errors(), []);
    let mut client = TestClient::new(site);
    for path in ["/argument", "/reference", "/arc"] {
        assert_eq!(client.get(path).send().text(), shared.0, "{path}");
    }
}

/// Also if the router that has both is nested, merged or mounted.
#[test]
fn two_states_of_one_type_are_an_error() {
    let twice = || Router::new().get("/own", name).state(Name("earlier")).state(7).state(Name("later"));
    let state = std::any::type_name::<Name>();
    let wanted = RouteError::TwoStates { state };
    assert_eq!(twice().errors(), std::slice::from_ref(&wanted));
    for router in [
        twice(),
        Router::new().nest("/nest", twice()),
        Router::new().merge(twice()),
        Router::new().nest("/nest", twice().with(passes)),
        Router::new().mount("/mount", twice()),
    ] {
        let error = Server::bind("127.0.0.1:0").unwrap().start(router).unwrap_err().to_string();
        assert!(error.ends_with(&wanted.to_string()), "{error}");
    }
    let once = Router::new().nest("/inner", Router::new().state(Name("inner"))).state(Name("outer"));
    assert_eq!(once.errors(), []);
}

/// The extractor tells which state it takes.
#[test]
fn a_state_within_an_extractor_is_found_at_start() {
    struct Own(&'static str);

    impl Extract for Own {
        fn extract(req: &mut Request<'_>) -> Result<Own> {
            Ok(Own(State::<Name>::extract(req)?.0.0))
        }

        fn required_states() -> Vec<RequiredState> {
            State::<Name>::required_states()
        }
    }

    let router = || Router::new().get("/at", |own: Option<Result<Own>>| own.map(|own| own.map(|own| own.0)));
    let wanted = RouteError::MissingState { path: "/at".into(), state: std::any::type_name::<Name>() };
    let error = Server::bind("127.0.0.1:0").unwrap().start(router()).unwrap_err();
    assert_eq!(error.to_string(), wanted.to_string());
    check(router().state(Name("given")), &[("GET /at", "given")]);
}

#[test]
fn merged_routers_keep_their_states_and_their_fallback() {
    let one = Router::new().get("/one", name).state(Name("one"));
    let two = Router::new().get("/two", name).mount("/sub", handler(name)).fallback(name).state(Name("two"));
    let both = one.merge(two);
    check(
        both.clone(),
        &[("GET /one", "one"), ("GET /two", "two"), ("GET /sub", "two"), ("GET /else", "two")],
    );
    assert_eq!(
        both.routes().collect::<Vec<_>>(),
        [(Some(&Method::GET), "/one"), (Some(&Method::GET), "/two")]
    );
    let twice = both.merge(Router::new().fallback(|| "else"));
    assert_eq!(twice.errors(), [RouteError::TwoFallbacks]);
}

#[test]
fn a_nested_router_keeps_its_middleware() {
    fn marks(req: &mut Request<'_>, next: Next<'_>) -> Response {
        let pattern = next.pattern(req).unwrap_or_default();
        next.run(req).with_header("x-pattern", pattern)
    }
    let path = |req: &mut Request<'_>| req.path().to_owned();
    let inner = Router::new().get("/users/{id}", path).get("/", path).post("/both", path);
    let site = Router::new().get("/", || "home").nest("/api", inner.with(marks)).get("/api/both", || "outer");
    let mut client = TestClient::new(Router::new().nest("/v1", site));
    for (path, inner, pattern) in
        [("/v1/api/users/7", "/users/7", "/v1/api/users/{id}"), ("/v1/api", "/", "/v1/api")]
    {
        let answer = client.get(path).send();
        assert_eq!((answer.text(), answer.header("x-pattern")), (inner, Some(pattern)));
    }
    assert_eq!(client.get("/v1").send().header("x-pattern"), None);
    assert_eq!(client.get("/v1/api/both").send().text(), "outer");
    assert_eq!(client.post("/v1/api/both").send().text(), "/both");
    assert_eq!(client.get("/v1/api/else").send().status, 404);
}

fn name(State(name): State<Name>) -> &'static str {
    name.0
}

fn passes(req: &mut Request<'_>, next: Next<'_>) -> Response {
    next.run(req)
}

/// No routes, so that only its fallback is used.
enum Nothing {}

impl Routes for Nothing {
    const ROUTES: &'static [Route] = &[];
    fn parse(_: MethodFilter, _: &[u8], _: &str) -> Result<Nothing, MatchError> {
        Err(MatchError::NotFound)
    }
    fn blocking_of(_: MethodFilter, _: &[u8]) -> Option<Blocking> {
        Some(Blocking::Never)
    }
    fn reads_ahead(_: MethodFilter, _: &[u8]) -> Option<bool> {
        None
    }
    fn pattern(_: MethodFilter, _: &[u8]) -> Option<Cow<'static, str>> {
        None
    }
    fn write(&self, _: &mut derived::PathWriter) {}
    fn method(&self) -> Method {
        match *self {}
    }
}

fn nothing() -> impl Handler {
    routes(|route: Nothing, _: &mut Request<'_>| -> Response { match route {} }).fallback(name)
}

/// Every way to put a handler into a router. Each handler takes the state at `/at`.
fn ways() -> Vec<(Router, &'static str)> {
    let admin = || Router::new().get("/at", name);
    vec![
        (Router::new().get("/at", name), "/at"),
        (Router::new().get("/at", handler(name).with(passes)), "/at"),
        (Router::new().get("/at", blocks(unbuffered(handler(name)))), "/at"),
        (Router::new().mount("/at", name), "/at"),
        (Router::new().mount("/", admin()), "/at"),
        (Router::new().mount("/", Router::new().mount("/", admin().with(passes)).with(passes)), "/at"),
        (Router::new().mount("/at", Router::new().get("/", name)), "/at"),
        (Router::new().nest("/", admin()), "/at"),
        (Router::new().nest("/at", Router::new().fallback(handler(name).with(passes))), "/at"),
        (Router::new().fallback(name), "the fallback"),
        (Router::new().fallback(nothing()), "the fallback"),
        (Router::new().mount("/at", nothing()), "/at"),
        (Router::new().fallback(admin()), "/at of the fallback"),
        (Router::new().mount("/at", Router::new().fallback(name)), "the fallback of /at"),
    ]
}

#[test]
fn a_state_is_given_by_any_router_around() {
    for (number, (router, _)) in ways().into_iter().enumerate() {
        let outer = Router::new()
            .mount("/deep", Router::new().mount("/er", router.with(passes)))
            .state(Name("given"));
        let server = Server::bind("127.0.0.1:0")
            .unwrap()
            .start(outer)
            .unwrap_or_else(|error| panic!("{number}: {error}"));
        drop(server);
        let outer =
            Router::new().mount("/deep", Router::new().mount("/er", router_of(number)).state(Name("near")));
        let answer = TestClient::new(outer.state(Name("far"))).get("/deep/er/at").send();
        assert_eq!((answer.status.as_u16(), answer.text()), (200, "near"), "{number}");
    }
}

fn router_of(number: usize) -> Router {
    ways().swap_remove(number).0
}

#[test]
fn a_missing_state_keeps_the_server_from_starting() {
    let state = std::any::type_name::<Name>();
    for (router, path) in ways() {
        let wanted = RouteError::MissingState { path: path.into(), state };
        assert_eq!(router.errors(), std::slice::from_ref(&wanted), "{path}");
        let error = Server::bind("127.0.0.1:0").unwrap().start(router.with(passes)).unwrap_err();
        assert_eq!(error.to_string(), wanted.to_string());
        assert_eq!(
            error.to_string(),
            format!("the handler of {path} takes State<{state}>: add it to the router with .state(...)")
        );
    }
    let told = format!("a handler takes State<{state}>: give its router one, with .state(...)");
    for alone in [handler(name), handler(handler(name).with(passes)), handler(nothing())] {
        assert_eq!(Server::bind("127.0.0.1:0").unwrap().start(alone).unwrap_err().to_string(), told);
    }
}
