//! Does a problem say the same to programs, to people and to the log, and is it escaped?

use http::StatusCode;

use super::responses::body;
use crate::message::{IntoResponse, Problem};
use crate::{Blame, Error};

#[track_caller]
fn check(problem: Problem, json: &str) {
    let status = problem.status();
    for response in [problem.clone().into_response(), Error::from(problem).into_response()] {
        assert_eq!(response.status(), status);
        assert_eq!(response.content_type().unwrap(), "application/problem+json");
        assert_eq!(std::str::from_utf8(body(&response)).unwrap(), json);
    }
}

#[test]
fn members_come_in_order_and_only_where_they_are_set() {
    check(Problem::new(StatusCode::NOT_FOUND), r#"{"title":"Not Found","status":404}"#);
    let whole =
        Problem::new(StatusCode::BAD_REQUEST).kind("/problems/count").title("Count").detail("too few");
    check(
        whole.with("field", "count").with("least", 1),
        r#"{"type":"/problems/count","title":"Count","status":400,"detail":"too few","field":"count","least":"1"}"#,
    );
    let nameless = StatusCode::from_u16(599).unwrap();
    check(Problem::new(nameless), r#"{"title":"Problem","status":599}"#);
}

#[test]
fn what_clients_sent_is_escaped() {
    check(
        Problem::new(StatusCode::BAD_REQUEST).detail("a \"b\" \\ \n \u{1} \u{e9}").with("x\"", "</script>"),
        r#"{"title":"Bad Request","status":400,"detail":"a \"b\" \\ \n \u0001 é","x\"":"</script>"}"#,
    );
}

#[test]
fn as_an_error_it_blames_the_client() {
    let error = Error::from(Problem::new(StatusCode::CONFLICT).detail("taken"));
    assert_eq!((error.blame(), error.message()), (Blame::Peer(StatusCode::CONFLICT), "taken"));
    assert_eq!(error.to_string(), "taken");
    assert_eq!(Problem::new(StatusCode::CONFLICT).to_string(), "Conflict");
    assert_eq!(Problem::new(StatusCode::CONFLICT).with("a", "b").member("a"), Some("b"));
}
