//! Responses to requests that no typed route matches.

use std::fmt;

use http::{HeaderValue, Method, StatusCode, header};

use super::verbs::Verbs;
use crate::message::{IntoResponse, Problem, Request, Response};

/// The reason why no route matches a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Miss {
    /// No route has this path. The answer is 404.
    NotFound,
    /// Routes with this path have other methods. The answer is 405 with `Allow`, or 204 with `Allow` to
    /// OPTIONS.
    Method(Verbs),
    /// A part of the target does not parse as the type of its field. The answer is 400 and names the part.
    Malformed(Box<Malformed>),
}

/// A capture or a query parameter that does not parse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Name of the part in the route.
    pub name: &'static str,
    /// Full sentence for the client, including the name.
    pub detail: String,
}

impl Miss {
    /// Returns the error after all routes were tried. `allowed` are the methods of the routes with this path.
    pub(crate) fn unmatched(allowed: Verbs) -> Miss {
        if allowed == Verbs::NONE { Miss::NotFound } else { Miss::Method(allowed) }
    }

    #[cold]
    pub(super) fn malformed(name: &'static str, what: &str, why: impl fmt::Display) -> Miss {
        Miss::Malformed(Box::new(Malformed { name, detail: format!("the {what} `{name}` {why}") }))
    }

    /// Returns the response to `req`.
    #[cold]
    pub(crate) fn answer(self, req: &Request<'_>) -> Response {
        match self {
            Miss::NotFound => Response::decline(),
            Miss::Method(allowed) => other_method(&allowed.or(Verbs::OPTIONS), req),
            Miss::Malformed(part) => Problem::new(StatusCode::BAD_REQUEST)
                .detail(part.detail)
                .with("field", part.name)
                .into_response(),
        }
    }
}

/// Returns 405, or 204 to OPTIONS. `allowed` includes OPTIONS, because OPTIONS is answered here.
#[cold]
pub(crate) fn other_method(allowed: &impl fmt::Display, req: &Request<'_>) -> Response {
    let response = if *req.method() == Method::OPTIONS {
        Response::new(StatusCode::NO_CONTENT)
    } else {
        let detail = format!("{} allows {allowed}, not {}", req.whole_path(), req.method());
        Problem::new(StatusCode::METHOD_NOT_ALLOWED).detail(detail).into_response()
    };
    response.with_header(header::ALLOW, allow(allowed))
}

/// Returns the value of an `Allow` field.
pub(crate) fn allow(allowed: &impl fmt::Display) -> HeaderValue {
    // Cannot fail: method names and commas are always a valid value.
    HeaderValue::try_from(allowed.to_string()).unwrap_or(HeaderValue::from_static(""))
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Miss::NotFound => f.write_str("no route has this path"),
            Miss::Method(allowed) => write!(f, "the routes with this path allow {allowed}"),
            Miss::Malformed(part) => f.write_str(&part.detail),
        }
    }
}

impl std::error::Error for Miss {}
