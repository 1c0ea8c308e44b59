//! What does a request get that no route takes?

use std::fmt;

use http::{HeaderValue, Method, StatusCode, header};

use super::verbs::Verbs;
use crate::message::{IntoResponse, Problem, Request, Response};

/// Why a request is for none of the routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Miss {
    /// No route has this path: 404.
    NotFound,
    /// Routes have it, for other methods: 405 with `Allow`, and for OPTIONS 204 with `Allow`.
    Method(Verbs),
    /// A part of the target is not what the route's type takes: 400, and the name of the part.
    Malformed(Box<Malformed>),
}

/// A capture or a query parameter that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Its name in the route.
    pub name: &'static str,
    /// The whole sentence, the name included.
    pub detail: String,
}

impl Miss {
    /// When every route was tried; `allowed` are the methods of those with this path.
    pub(crate) fn unmatched(allowed: Verbs) -> Miss {
        if allowed == Verbs::NONE { Miss::NotFound } else { Miss::Method(allowed) }
    }

    #[cold]
    pub(super) fn malformed(name: &'static str, what: &str, why: impl fmt::Display) -> Miss {
        Miss::Malformed(Box::new(Malformed { name, detail: format!("the {what} `{name}` {why}") }))
    }

    /// The answer to `req`.
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

/// 405, or 204 to OPTIONS, where the path takes other methods. OPTIONS is among `allowed`: here it is answered.
#[cold]
pub(crate) fn other_method(allowed: &impl fmt::Display, req: &Request<'_>) -> Response {
    let response = if *req.method() == Method::OPTIONS {
        Response::new(StatusCode::NO_CONTENT)
    } else {
        let detail = format!("{} takes {allowed}, not {}", req.whole_path(), req.method());
        Problem::new(StatusCode::METHOD_NOT_ALLOWED).detail(detail).into_response()
    };
    response.with_header(header::ALLOW, allow(allowed))
}

/// The value of an `Allow` field.
pub(crate) fn allow(allowed: &impl fmt::Display) -> HeaderValue {
    // The names of methods and commas are always a valid value.
    HeaderValue::try_from(allowed.to_string()).unwrap_or(HeaderValue::from_static(""))
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Miss::NotFound => f.write_str("there is no route with this path"),
            Miss::Method(allowed) => write!(f, "the routes with this path take {allowed}"),
            Miss::Malformed(part) => f.write_str(&part.detail),
        }
    }
}

impl std::error::Error for Miss {}
