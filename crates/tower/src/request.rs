//! The head of a request as a service of tower sees it.

use http::uri::{PathAndQuery, Scheme, Uri};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use weftwork::{Problem, Request};

use crate::body::RequestBody;

/// Takes the request apart. The extensions move. The target is that below the mount of the handler, as in axum.
pub(crate) fn take_head(req: &mut Request<'_>) -> Result<http::Request<()>, Problem> {
    let uri = uri_of(req).ok_or_else(|| {
        Problem::new(StatusCode::BAD_REQUEST).detail("the request target is not a valid URI")
    })?;
    let mut head = http::Request::new(());
    *head.method_mut() = req.method().clone();
    *head.uri_mut() = uri;
    *head.version_mut() = req.version();
    *head.headers_mut() = headers_of(req);
    if !req.extensions().is_empty() {
        *head.extensions_mut() = std::mem::take(req.extensions_mut());
    }
    Ok(head)
}

fn headers_of(req: &Request<'_>) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(req.header_lines().count());
    for (name, value) in req.header_lines() {
        // The rules of the parser are at least as strict as these two.
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value))
        {
            headers.append(name, value);
        }
    }
    headers
}

fn uri_of(req: &Request<'_>) -> Option<Uri> {
    let target = req.target();
    if req.method() == Method::CONNECT || target == "*" {
        return Uri::try_from(target).ok();
    }
    let path = match req.query() {
        Some(query) => PathAndQuery::try_from(format!("{}?{query}", req.path())),
        None => PathAndQuery::try_from(req.path()),
    };
    let mut parts = http::uri::Parts::default();
    parts.path_and_query = Some(path.ok()?);
    let is_absolute = req.version() == Version::HTTP_2 || !target.starts_with('/');
    if is_absolute && let Some(host) = req.host() {
        parts.authority = Some(host.try_into().ok()?);
        parts.scheme = Some(if req.scheme() == "https" { Scheme::HTTPS } else { Scheme::HTTP });
    }
    Uri::from_parts(parts).ok()
}

/// Joins the head and the body.
pub(crate) fn with_body(head: http::Request<()>, body: RequestBody) -> http::Request<RequestBody> {
    head.map(|()| body)
}
