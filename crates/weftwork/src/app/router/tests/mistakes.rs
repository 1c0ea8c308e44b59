//! Tests that each mistake in the routes is reported before a server starts.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::error::panic_message;

/// The server does not start and reports the mistake, and an answer is 500. The match makes a new kind fail to
/// compile until it has a case.
#[track_caller]
fn check_mistake(router: Router, error: RouteError, text: &str) {
    match &error {
        RouteError::Conflict { .. }
        | RouteError::Pattern { .. }
        | RouteError::Connect { .. }
        | RouteError::MissingState { .. }
        | RouteError::TwoStates { .. }
        | RouteError::TwoFallbacks
        | RouteError::Inner { .. }
        | RouteError::Mounted { .. } => {}
    }
    assert_eq!((router.errors(), error.to_string().as_str()), (std::slice::from_ref(&error), text));
    let around = |req: &mut Request<'_>, next: Next<'_>| next.run(req);
    let wrapped: Arc<dyn Handler> = Arc::new(blocks(unbuffered(router.with(around))));
    let refused = crate::Server::bind("127.0.0.1:0").unwrap().start(wrapped.clone()).unwrap_err();
    assert_eq!(refused.to_string(), text);
    // An outer router may still provide a state.
    assert_eq!(wrapped.check().is_ok(), matches!(error, RouteError::MissingState { .. }), "{text}");
    assert_eq!(crate::message::testing::get("/", &wrapped).status(), 500);
    let panic = catch_unwind(AssertUnwindSafe(|| drop(TestClient::new(wrapped)))).unwrap_err();
    assert_eq!(panic_message(&*panic), text);
}

#[test]
fn every_mistake_is_reported_before_the_start() {
    let wrong = |path: &str, why: PatternFault| RouteError::Pattern { path: path.to_owned(), why };
    let mistakes = vec![
        (
            Router::new().state(7_u8).state(8_u8),
            RouteError::TwoStates { state: "u8" },
            "two states of the type u8: a router has one of each type, wrap one in a type of its own",
        ),
        (
            Router::new().fallback(show("1")).merge(Router::new().fallback(show("2"))),
            RouteError::TwoFallbacks,
            "two merged routers have a fallback: remove one, or nest one router",
        ),
        (
            Router::new().get("/a/{b}", show("1")).get("/a/{c}", show("2")),
            RouteError::Conflict { method: "GET".into(), path: "/a/{c}".into(), with: "/a/{b}".into() },
            "the route GET /a/{c} conflicts with /a/{b}: both match the same paths",
        ),
        (
            Router::new().any("/{a}", show("1")).any("/{*rest}", show("2")),
            RouteError::Conflict { method: "any".into(), path: "/{*rest}".into(), with: "/{a}".into() },
            "the route any /{*rest} conflicts with /{a}: the router cannot tell them apart (use a mount or the \
             fallback for one of them)",
        ),
        (
            Router::new().get("a", show("1")),
            wrong("a", PatternFault::NoSlash),
            "invalid route \"a\": a path must start with a slash",
        ),
        (
            Router::new().nest("/a", Router::new().get("b", show("1"))),
            wrong("b", PatternFault::NoSlash),
            "invalid route \"b\": a path must start with a slash",
        ),
        (
            Router::new().get("/a?b", show("1")),
            wrong("/a?b", PatternFault::Query),
            "invalid route \"/a?b\": a path cannot have a query or a fragment, read the query with Query<T>",
        ),
        (
            Router::new().get("/users/:id", show("1")),
            wrong("/users/:id", PatternFault::OtherSyntax(":id".into())),
            "invalid route \"/users/:id\": :id is plain text, write a capture as {name}, or {*name} for the \
             rest",
        ),
        (
            Router::new().get("/a%20b/100%", show("1")),
            wrong("/a%20b/100%", PatternFault::Percent("100%".into())),
            "invalid route \"/a%20b/100%\": 100% has a % without two hexadecimal digits, write the sign itself as \
             %25",
        ),
        (
            Router::new().get("/{id:[0-9]+}", show("1")),
            wrong("/{id:[0-9]+}", PatternFault::Name("id:[0-9]+".into())),
            "invalid route \"/{id:[0-9]+}\": {id:[0-9]+} needs a name of letters, digits, _ and -; write {*name} for the \
             rest, and check values by their type",
        ),
        (
            Router::new().get("/{}", show("1")),
            wrong("/{}", PatternFault::Braces),
            "invalid route \"/{}\": write a capture as {name} or {*name}, at most one per segment",
        ),
        (
            Router::new().get("/{*a}/b", show("1")),
            wrong("/{*a}/b", PatternFault::RestNotLast),
            "invalid route \"/{*a}/b\": {*name} matches the rest, so it must be the last segment",
        ),
        (
            Router::new().get("/{a}/{a}", show("1")),
            wrong("/{a}/{a}", PatternFault::Twice("a".into())),
            "invalid route \"/{a}/{a}\": duplicate {a}",
        ),
        (
            Router::new().mount("/{a}", show("1")),
            wrong("/{a}", PatternFault::CaptureInMount),
            "invalid route \"/{a}\": the prefix of a mount, or of a nest with a fallback or mounts, must not have \
             captures; nest routes only",
        ),
        (
            Router::new().nest("/in", Router::new().route(Method::CONNECT, "/a", show("1"))),
            RouteError::Connect { path: "/in/a".into() },
            "the route CONNECT /in/a matches nothing: CONNECT has no path, answer it in the fallback",
        ),
        (
            Router::new().get("/", |State(name): State<&'static str>| *name),
            RouteError::MissingState { path: "/".into(), state: "&str" },
            "the handler of / takes State<&str>: add it to the router with .state(...)",
        ),
        (
            Router::new().mount("/m", Router::new().get("a", show("1"))),
            RouteError::Mounted {
                path: "/m".into(),
                why: "invalid route \"a\": a path must start with a slash".into(),
            },
            "the mount at /m: invalid route \"a\": a path must start with a slash",
        ),
    ];
    for (router, error, text) in mistakes {
        check_mistake(router, error, text);
    }
    for other in ["/{rest...}", "/{$}", "/{id:int}", "/{1}", "/a/{my name}", "/{größe}"] {
        let router = Router::new().get(other, show("1"));
        let [RouteError::Pattern { why: PatternFault::Name(_), .. }] = router.errors() else {
            panic!("{other}: {:?}", router.errors());
        };
    }
    for other in ["/*rest", "/*", "/:id/a", "/a/<id>", "/<int:id>/a"] {
        let router = Router::new().get(other, show("1"));
        let [RouteError::Pattern { why: PatternFault::OtherSyntax(_), .. }] = router.errors() else {
            panic!("{other}: {:?}", router.errors());
        };
    }
    for text in ["/v1/{name}:cancel", "/a:b", "/a*", "/<a", "/{a-b}", "/{_a1}"] {
        assert_eq!(Router::new().get(text, show("1")).errors(), [], "{text}");
    }
    for braces in ["/{", "/}", "/{a}{b}", "/{a{b}}", "/{{a}}", "/a*{b*}", "/{*}"] {
        let router = Router::new().get(braces, show("1"));
        assert_eq!(router.errors(), [wrong(braces, PatternFault::Braces)], "{braces}");
    }
}

/// The docs of `Router` describe which captures may share a position. The error of a refused pair must be true.
#[test]
fn ambiguous_captures_are_refused_as_such() {
    let errors = |one, other| Router::new().get(one, show("1")).get(other, show("2")).errors().to_vec();
    for (one, other) in [
        ("/a/{x}/c", "/a/{*r}"),
        ("/{n}.json", "/{*r}"),
        ("/{a}", "/{*r}"),
        ("/pre{a}", "/{b}suf"),
        ("/x{a}.j", "/{b}.j"),
        ("/x{a}y", "/x{a}z"),
    ] {
        for (earlier, later) in [(one, other), (other, one)] {
            let told: Vec<_> = errors(earlier, later).iter().map(ToString::to_string).collect();
            let wanted =
                format!("the route GET {later} conflicts with {earlier}: the router cannot tell them apart");
            assert!(told.len() == 1 && told[0].starts_with(&wanted), "{told:?}");
        }
    }
    for (one, other) in [
        ("/a/b", "/a/{*r}"),
        ("/a/{x}/c", "/{*r}"),
        ("/x{a}", "/{*r}"),
        ("/{a}", "/{b}.json"),
        ("/x{a}", "/xy{a}"),
        ("/{a}.j", "/{b}.min.j"),
        ("/x{a}.j", "/{b}"),
    ] {
        assert_eq!((errors(one, other), errors(other, one)), (vec![], vec![]), "{one} {other}");
    }
    check(
        Router::new().get("/a/{x}/c", show("route")).mount("/a", show("mount")),
        &[("GET /a/1/c", "route /a/1/c [x=1]"), ("GET /a/1/d", "mount /a/1/d []")],
    );
}

#[test]
fn a_server_does_not_start_with_a_mistake() {
    let router = Router::new().get("/a", show("1")).get("/a", show("2"));
    let error = crate::Server::bind("127.0.0.1:0").unwrap().start(router).unwrap_err();
    assert_eq!(error.to_string(), "the route GET /a conflicts with /a: both match the same paths");
}

/// The same as for mounts.
#[test]
fn mistakes_of_a_router_within_a_route_are_reported() {
    let why = "invalid route \"a\": a path must start with a slash";
    let wrong = || Router::new().get("a", show("1"));
    for (router, path) in [
        (Router::new().any("/m/{*rest}", wrong()), "/m/{*rest}"),
        (Router::new().fallback(wrong()), "the fallback"),
    ] {
        let error = RouteError::Inner { path: path.to_owned(), why: why.to_owned() };
        check_mistake(router, error, &format!("the handler of {path}: {why}"));
    }
}
