//! Tests of files that a handler chooses: the caller sets content type and file name.

use http::HeaderValue;

use super::{Files, embedded};
use crate::{Request, TestClient, TestResponse};

static KEPT: &[(&str, &[u8])] = &[("9f86", &[b'p'; 999]), ("2c26.html", b"<svg>"), ("2c26.html.gz", b"zip")];

fn client(send: impl Fn(&Files, &Request<'_>) -> crate::Response + Send + Sync + 'static) -> TestClient {
    let kept = embedded(KEPT).content_type("own", HeaderValue::from_static("text/x-own"));
    TestClient::new(move |req: &mut Request<'_>| send(&kept, req))
}

fn saved(answer: &TestResponse) -> (u16, Option<&str>, Option<&str>) {
    (answer.status.as_u16(), answer.header("content-type"), answer.header("content-disposition"))
}

const PDF: Option<&str> = Some("application/pdf");
const REPORT: Option<&str> = Some("attachment; filename=\"report.pdf\"");
const PROBLEM: Option<&str> = Some("application/problem+json");

#[test]
fn an_upload_is_saved_under_the_name_that_it_has_for_people() {
    let mut client = client(|kept, req| kept.send_as(req, "9f86", "report.pdf"));
    let whole = client.get("/").send();
    assert_eq!((saved(&whole), whole.text().len()), ((200, PDF, REPORT), 999));
    assert_eq!(whole.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(saved(&client.head("/").send()), (200, PDF, REPORT));
    let tag = whole.header("etag").unwrap();
    let fresh = client.get("/").header("if-none-match", tag).send();
    assert_eq!((fresh.status.as_u16(), fresh.header("content-type")), (304, None));
    let part = client.get("/").header("range", "bytes=2-4").header("if-range", tag).send();
    assert_eq!((saved(&part), part.text()), ((206, PDF, REPORT), "ppp"));
    let parts = client.get("/").header("range", "bytes=0-0,998-998").send();
    let kind = parts.header("content-type").unwrap();
    assert!(parts.status == 206 && kind.starts_with("multipart/byteranges; boundary="), "{parts:?}");
    assert!(parts.text().to_ascii_lowercase().contains("content-type: application/pdf\r\n"), "{parts:?}");
    assert_eq!(saved(&client.get("/").header("range", "bytes=999-").send()), (416, PROBLEM, None));
    assert_eq!(saved(&client.get("/").header("if-match", "\"x\"").send()), (412, PROBLEM, None));
    assert_eq!(client.post("/").send().status, 405);
}

#[test]
fn a_name_of_any_kind_is_harmless() {
    for (name, kind, told) in [
        ("a.b/C.PNG", "image/png", "attachment; filename=\"a.b_C.PNG\""),
        ("x.own", "text/x-own", "attachment; filename=\"x.own\""),
        ("page.html\r\n", "application/octet-stream", "attachment; filename=\"page.html__\""),
        ("", "application/octet-stream", "attachment"),
    ] {
        let answer = client(move |kept, req| kept.send_as(req, "9f86", name)).get("/").send();
        assert_eq!(saved(&answer), (200, Some(kind), Some(told)), "{name:?}");
    }
    let missing = client(|kept, req| kept.send_as(req, "missing", "report.pdf")).get("/").send();
    assert_eq!(saved(&missing), (404, PROBLEM, None));
    let beyond = client(|kept, req| kept.send_as(req, "../9f86", "report.pdf")).get("/").send();
    assert_eq!(saved(&beyond), (404, PROBLEM, None));
}

#[test]
fn a_type_is_that_of_the_caller() {
    let webp = HeaderValue::from_static("image/webp");
    let mut shown = client(move |kept, req| kept.send_typed(req, "2c26.html", webp.clone()));
    let answer = shown.get("/").header("accept-encoding", "gzip").send();
    assert_eq!(saved(&answer), (200, Some("image/webp"), None));
    assert_eq!(
        (answer.text(), answer.header("content-encoding"), answer.header("vary")),
        ("<svg>", None, None)
    );
    assert_eq!(saved(&shown.get("/").header("range", "bytes=9-").send()), (416, PROBLEM, None));
    let text = HeaderValue::from_static("text/plain");
    let mut text = client(move |kept, req| kept.send_typed(req, "2c26.html", text.clone()));
    let answer = text.get("/").header("accept-encoding", "gzip").send();
    assert_eq!((saved(&answer).1, answer.header("content-encoding")), (Some("text/plain"), Some("gzip")));
}
