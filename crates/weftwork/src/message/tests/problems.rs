//! Tests that a problem says the same to programs, people and the log, and is escaped.

use std::time::Duration;

use http::StatusCode;

use super::responses::body;
use crate::message::{IntoResponse, Problem, Request, Response};
use crate::{Error, ErrorClass, TestClient};

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
    assert_eq!((error.class(), error.message()), (ErrorClass::Client(StatusCode::CONFLICT), "taken"));
    assert_eq!(error.to_string(), "taken");
    assert_eq!(Problem::new(StatusCode::CONFLICT).to_string(), "Conflict");
    assert_eq!(Problem::new(StatusCode::CONFLICT).with("a", "b").member("a"), Some("b"));
}

/// Two members with the same name mean something else to each reader (RFC 8259 section 4).
#[test]
fn no_member_comes_twice() {
    let problem = Problem::new(StatusCode::CONFLICT).title("first").with("a", 1).with("a", 2);
    check(
        problem.with("type", "/taken").with("title", "Taken").with("detail", "by Ada").with("status", 200),
        r#"{"type":"/taken","title":"Taken","status":409,"detail":"by Ada","a":"2"}"#,
    );
}

#[cfg(feature = "json")]
#[test]
fn members_may_be_any_json() {
    let problem = Problem::new(StatusCode::CONFLICT)
        .with_json("least", &1)
        .with_json("errors", &["a", "b"])
        .with_json("text", "t\"")
        .with_json("detail", "taken")
        .with_json("none", &std::collections::BTreeMap::from([((1, 2), 3)]));
    assert_eq!((problem.member("least"), problem.member("text")), (Some("1"), Some("t\"")));
    check(
        problem,
        r#"{"title":"Conflict","status":409,"detail":"taken","least":1,"errors":["a","b"],"text":"t\""}"#,
    );
}

/// Also the response to a future that is late, which the library makes itself.
#[test]
fn a_late_future_has_the_shape_of_problems() {
    let never = |_: &mut Request| Response::when(std::future::pending::<String>());
    let shape = |status: StatusCode, problem: &Problem, _: Option<&Request>| format!("{status}: {problem}");
    let mut client = TestClient::new(never).problems(shape).connect();
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    client.advance(Duration::from_secs(60));
    let answer = client.response();
    assert_eq!(answer.text(), "503 Service Unavailable: the response was not ready in time");
}
