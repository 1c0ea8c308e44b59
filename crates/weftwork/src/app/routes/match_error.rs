//! Responses to requests that no typed route matches.

use std::fmt;

use http::{HeaderValue, Method, StatusCode, header};

use super::method_filter::MethodFilter;
use crate::message::{IntoResponse, Problem, Request, Response};

/// The reason why no route matches a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MatchError {
    /// No route has this path. The answer is 404.
    NotFound,
    /// Routes with this path have other methods. The answer is 405 with `Allow`, or 204 with `Allow` to
    /// OPTIONS.
    MethodNotAllowed(MethodFilter),
    /// A part of the target does not parse as the type of its field. The answer is 400 and names the part.
    InvalidParam(Box<InvalidParam>),
}

/// A capture or a query parameter that does not parse.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InvalidParam {
    /// Name of the part in the route.
    pub name: &'static str,
    /// Full sentence for the client, including the name.
    pub detail: String,
}

impl MatchError {
    /// Returns the error after all routes were tried. `allowed` are the methods of the routes with this path.
    pub(crate) fn unmatched(allowed: MethodFilter) -> MatchError {
        if allowed == MethodFilter::NONE {
            MatchError::NotFound
        } else {
            MatchError::MethodNotAllowed(allowed)
        }
    }

    #[cold]
    pub(super) fn invalid_param(name: &'static str, what: &str, why: impl fmt::Display) -> MatchError {
        MatchError::InvalidParam(Box::new(InvalidParam {
            name,
            detail: format!("the {what} `{name}` {why}"),
        }))
    }

    /// Returns the response to `req`.
    #[cold]
    pub(crate) fn answer(self, req: &Request<'_>) -> Response {
        match self {
            MatchError::NotFound => Response::decline(),
            MatchError::MethodNotAllowed(allowed) => other_method(&allowed.or(MethodFilter::OPTIONS), req),
            MatchError::InvalidParam(part) => Problem::new(StatusCode::BAD_REQUEST)
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

impl fmt::Display for MatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MatchError::NotFound => f.write_str("no route has this path"),
            MatchError::MethodNotAllowed(allowed) => write!(f, "the routes with this path allow {allowed}"),
            MatchError::InvalidParam(part) => f.write_str(&part.detail),
        }
    }
}

impl std::error::Error for MatchError {}
