//! How does an answer say what was wrong, so that a program can read it too?

use std::fmt::{self, Write};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};

use super::into_response::IntoResponse;
use super::response::Response;

pub(crate) const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
/// The same each time, so nothing is made for it: routers ask several handlers that decline.
const NOT_FOUND: &[u8] = br#"{"title":"Not Found","status":404,"detail":"there is nothing here"}"#;
/// All that a client learns of what went wrong on our side.
pub(crate) const SERVER_ERROR: &[u8] =
    br#"{"title":"Internal Server Error","status":500,"detail":"something went wrong on the server"}"#;

/// What was wrong with a request, as `application/problem+json` (RFC 9457).
///
/// It is an answer and an error: a handler returns it, or passes it on with `?`, also through
/// [`Error`](crate::Error), where it keeps its status and its members. What the library answers by itself is one too:
/// see [errors](crate#errors).
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
/// The answer to `count=0` is 422 with
/// `{"title":"Unprocessable Entity","status":422,"detail":"order one at least","field":"count"}`.
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

/// The value of a member of the user's.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    text: String,
    is_json: bool,
}

impl Problem {
    /// A problem with `status`, whose reason phrase is its title.
    pub fn new(status: StatusCode) -> Problem {
        let (members, fields) = (Vec::new(), Vec::new());
        Problem(Box::new(Parts { status, kind: None, title: None, detail: None, members, fields }))
    }

    /// Sets the member `type`: a URI that names this kind of problem. The default, `about:blank`, is not sent.
    #[must_use]
    pub fn kind(mut self, uri: impl Into<String>) -> Problem {
        self.0.kind = Some(uri.into());
        self
    }

    /// Sets the member `title`: the same short text for all problems of one kind.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Problem {
        self.0.title = Some(title.into());
        self
    }

    /// Sets the member `detail`: what was wrong this time, for whoever sent the request.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Problem {
        self.0.detail = Some(detail.into());
        self
    }

    /// Sets a member of your own, with a text as its value; a number stays one with `with_json`. `instance` is one that
    /// RFC 9457 knows.
    ///
    /// No member comes twice: the last value of a name counts. `type`, `title` and `detail` are what
    /// [`kind`](Problem::kind), [`title`](Problem::title) and [`detail`](Problem::detail) set, and `status` is always
    /// that of the response.
    #[must_use]
    pub fn with(self, name: impl Into<String>, value: impl fmt::Display) -> Problem {
        self.set(name.into(), Member { text: value.to_string(), is_json: false })
    }

    /// As [`with`](Problem::with), with any value: a number, a list of what is wrong with each field (feature `json`).
    /// One that cannot be written as JSON is left out, and logged.
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
                log::error!("the member {name:?} of a problem is left out, it is no JSON: {error}");
                self
            }
        }
    }

    /// A header of the response: which credentials a 401 asks for (RFC 9110 section 11.6.1 wants that said), or when a 503 or
    /// 429 may be tried again.
    ///
    /// ```
    /// use weftwork::prelude::*;
    ///
    /// fn inbox(req: &mut Request) -> Result<String> {
    ///     let bearer = HeaderValue::from_static("Bearer");
    ///     let refused = || Problem::new(StatusCode::UNAUTHORIZED).with_header(header::WWW_AUTHENTICATE, bearer);
    ///     let token = req.header("authorization").ok_or_else(refused)?;
    ///     Ok(format!("for {token}"))
    /// }
    /// # let answer = weftwork::TestClient::new(inbox).get("/").send();
    /// # assert_eq!((answer.status.as_u16(), answer.header("www-authenticate")), (401, Some("Bearer")));
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

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.0.status
    }

    /// The value of a member of your own: the text, or else its JSON.
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

    fn heading(&self) -> &str {
        self.0.title.as_deref().or(self.0.status.canonical_reason()).unwrap_or("Problem")
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let said = Response::with_bytes(self.to_json().into(), PROBLEM_JSON).with_status(self.0.status);
        self.0.fields.into_iter().fold(said, |said, (name, value)| said.with_header(name, value))
    }
}

impl Response {
    /// 404, where nobody has more to say of it.
    pub(super) fn not_found() -> Response {
        let said = Response::with_bytes(Bytes::from_static(NOT_FOUND), PROBLEM_JSON);
        Response { status: StatusCode::NOT_FOUND, ..said }
    }

    /// 500, the same for all that is not the client's fault.
    pub(crate) fn server_error() -> Response {
        let said = Response::with_bytes(Bytes::from_static(SERVER_ERROR), PROBLEM_JSON);
        Response { status: StatusCode::INTERNAL_SERVER_ERROR, ..said }
    }
}

/// The detail, else the title.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.detail.as_deref().unwrap_or_else(|| self.heading()))
    }
}

impl std::error::Error for Problem {}

/// A text in JSON's quotes (RFC 8259 section 7). By hand, so that problems do not need the feature `json`.
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
