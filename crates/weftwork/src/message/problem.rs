//! Error responses that programs can read (RFC 9457).

use std::fmt::{self, Write};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};

use super::into_response::IntoResponse;
use super::response::Response;
#[cfg(feature = "json")]
use crate::transport::log_queue::log_line;

pub(crate) const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
/// A constant text, so that nothing is allocated. Routers ask several handlers that decline.
const NOT_FOUND: &[u8] = br#"{"title":"Not Found","status":404,"detail":"there is nothing here"}"#;
/// All that a client learns of an error of the server.
pub(crate) const SERVER_ERROR: &[u8] =
    br#"{"title":"Internal Server Error","status":500,"detail":"something went wrong on the server"}"#;

/// Describes what was wrong with a request, as `application/problem+json` (RFC 9457).
///
/// A problem is both a response and an error. A handler can return it, or pass it on with `?`, also through
/// [`Error`](crate::Error), which keeps its status and members. The library's own error responses are problems too: see
/// [errors](crate#errors).
///
/// ```
/// use weftwork::{Problem, Request, Result, http::StatusCode};
///
/// fn order(req: &mut Request) -> Result<String> {
///     match req.query_value("count").as_deref() {
///         Some("0") => Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY)
///             .detail("order one at least")
///             .with("field", "count"))?,
///         _ => Ok("ordered\n".into()),
///     }
/// }
/// ```
///
/// The response to `count=0` is 422 with `{"title":"Unprocessable Entity","status":422,"detail":"order one at
/// least","field":"count"}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem(Box<Parts>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Parts {
    status: StatusCode,
    kind: Option<String>,
    title: Option<String>,
    detail: Option<String>,
    members: Vec<(String, Member)>,
    fields: Vec<(HeaderName, HeaderValue)>,
}

/// Value of a member that the user added.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    text: String,
    is_json: bool,
}

impl Problem {
    /// Returns a problem with `status`. Its title is the reason phrase.
    pub fn new(status: StatusCode) -> Problem {
        let (members, fields) = (Vec::new(), Vec::new());
        Problem(Box::new(Parts { status, kind: None, title: None, detail: None, members, fields }))
    }

    /// Sets the member `type`: a URI for this kind of problem. The default, `about:blank`, is not sent.
    #[must_use]
    pub fn kind(mut self, uri: impl Into<String>) -> Problem {
        self.0.kind = Some(uri.into());
        self
    }

    /// Sets the member `title`: a short text that is the same for all problems of one kind.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Problem {
        self.0.title = Some(title.into());
        self
    }

    /// Sets the member `detail`: what was wrong this time, for the sender of the request.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Problem {
        self.0.detail = Some(detail.into());
        self
    }

    /// Sets a member with a text as its value. For a number, use `with_json`. RFC 9457 defines the member `instance`.
    ///
    /// Each member occurs once, and the last value of a name counts. [`kind`](Problem::kind), [`title`](Problem::title)
    /// and [`detail`](Problem::detail) set `type`, `title` and `detail`. `status` is always that of the response.
    #[must_use]
    pub fn with(self, name: impl Into<String>, value: impl fmt::Display) -> Problem {
        self.set(name.into(), Member { text: value.to_string(), is_json: false })
    }

    /// Sets a member as [`with`](Problem::with) does, with any value: a number, or a list of errors for each field
    /// (feature `json`). If a value cannot be serialized, it is left out and logged.
    ///
    /// ```
    /// use weftwork::{Problem, http::StatusCode};
    /// Problem::new(StatusCode::UNPROCESSABLE_ENTITY).with_json("errors", &["name is empty", "count is 0"]);
    /// ```
    #[cfg(feature = "json")]
    #[must_use]
    pub fn with_json(self, name: impl Into<String>, value: &(impl serde::Serialize + ?Sized)) -> Problem {
        let name = name.into();
        match serde_json::to_string(value) {
            Ok(json) => match serde_json::from_str::<String>(&json) {
                Ok(text) => self.with(name, text),
                Err(_) => self.set(name, Member { text: json, is_json: true }),
            },
            Err(error) => {
                log_line!(Error, "the member {name:?} of a problem is left out, it is no JSON: {error}");
                self
            }
        }
    }

    /// Adds a header to the response: the credentials that a 401 requires (RFC 9110 section 11.6.1), or the time to
    /// retry after a 503 or 429.
    ///
    /// ```
    /// use weftwork::prelude::*;
    ///
    /// fn inbox(req: &mut Request) -> Result<String> {
    ///     let bearer = HeaderValue::from_static(r#"Bearer realm="mail""#);
    ///     let refused = || Problem::new(StatusCode::UNAUTHORIZED).with_header(header::WWW_AUTHENTICATE, bearer);
    ///     let token = req.header("authorization").ok_or_else(refused)?;
    ///     Ok(format!("for {token}"))
    /// }
    /// # let answer = weftwork::TestClient::new(inbox).get("/").send();
    /// # assert_eq!((answer.status.as_u16(), answer.header("www-authenticate")), (401, Some(r#"Bearer realm="mail""#)));
    /// ```
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Problem {
        self.0.fields.push((name, value));
        self
    }

    fn set(mut self, name: String, value: Member) -> Problem {
        let parts = &mut *self.0;
        match name.as_str() {
            "type" => parts.kind = Some(value.text),
            "title" => parts.title = Some(value.text),
            "detail" => parts.detail = Some(value.text),
            "status" => {}
            _ => match parts.members.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => *known = value,
                None => parts.members.push((name, value)),
            },
        }
        self
    }

    /// Returns the status.
    pub fn status(&self) -> StatusCode {
        self.0.status
    }

    /// Returns the value of an added member: its text, or else its JSON.
    pub fn member(&self, name: &str) -> Option<&str> {
        self.0.members.iter().find(|(known, _)| known == name).map(|(_, value)| value.text.as_str())
    }

    pub(crate) fn to_json(&self) -> String {
        let Parts { status, kind, detail, members, .. } = &*self.0;
        let mut out = String::with_capacity(128);
        // Writing to a String does not fail.
        let _ = out.write_char('{');
        if let Some(kind) = kind {
            let _ = write!(out, r#""type":{},"#, Quoted(kind));
        }
        let _ = write!(out, r#""title":{},"status":{}"#, Quoted(self.heading()), status.as_u16());
        if let Some(detail) = detail {
            let _ = write!(out, r#","detail":{}"#, Quoted(detail));
        }
        for (name, value) in members {
            let _ = match value.is_json {
                true => write!(out, ",{}:{}", Quoted(name), value.text),
                false => write!(out, ",{}:{}", Quoted(name), Quoted(&value.text)),
            };
        }
        out.push('}');
        out
    }

    fn not_found() -> Problem {
        Problem::new(StatusCode::NOT_FOUND).detail("there is nothing here")
    }

    fn with_json_body(self, json: Bytes) -> Response {
        let response = Response::with_bytes(json, PROBLEM_JSON).with_status(self.0.status);
        let fields = self.0.fields.iter().cloned();
        let mut response =
            fields.fold(response, |response, (name, value)| response.with_appended_header(name, value));
        response.extensions.insert(self);
        response
    }

    fn heading(&self) -> &str {
        self.0.title.as_deref().or(self.0.status.canonical_reason()).unwrap_or("Problem")
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let json = self.to_json();
        self.with_json_body(json.into())
    }
}

impl Response {
    /// Returns 404, for cases without more information.
    pub(super) fn not_found() -> Response {
        Problem::not_found().with_json_body(Bytes::from_static(NOT_FOUND))
    }

    /// Returns 404 without a problem in its extensions, which would be allocated.
    pub(super) fn declined() -> Response {
        let response = Response::with_bytes(Bytes::from_static(NOT_FOUND), PROBLEM_JSON);
        Response { status: StatusCode::NOT_FOUND, declined: true, ..response }
    }

    /// Returns the problem that this response reports, if its body was not replaced since. It is also in the
    /// [`extensions`](Response::extensions), unless the response is [declined](Response::decline). Middleware can read why
    /// the library has rejected a request, without parsing the body.
    ///
    /// ```
    /// use weftwork::prelude::*;
    ///
    /// fn with_code(req: &mut Request, next: Next) -> Response {
    ///     let response = next.run(req);
    ///     match response.problem() {
    ///         Some(problem) => response.with_header("x-error", problem.to_string()),
    ///         None => response,
    ///     }
    /// }
    /// let site = Router::new().get("/", || "home").with(with_code);
    /// let answer = weftwork::TestClient::new(site).get("/lost").send();
    /// assert_eq!(answer.header("x-error"), Some("there is nothing here"));
    /// ```
    pub fn problem(&self) -> Option<Problem> {
        match self.declined {
            true => Some(Problem::not_found()),
            false => self.extensions.get().cloned(),
        }
    }

    /// Returns 500, which is the same for all errors of the server.
    pub(crate) fn server_error() -> Response {
        let problem = Problem::new(StatusCode::INTERNAL_SERVER_ERROR);
        let problem = problem.detail("something went wrong on the server");
        problem.with_json_body(Bytes::from_static(SERVER_ERROR))
    }
}

/// Formats the detail, or else the title.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.detail.as_deref().unwrap_or_else(|| self.heading()))
    }
}

impl std::error::Error for Problem {}

/// Writes a text as a JSON string (RFC 8259 section 7). Written by hand, so that problems do not need the feature
/// `json`.
struct Quoted<'t>(&'t str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                '\n' => f.write_str("\\n")?,
                c if c < ' ' => write!(f, "\\u{:04x}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}
