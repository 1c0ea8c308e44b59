//! Cross-origin resource sharing: which pages of other origins may read responses.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, StatusCode, header};

use super::{Middleware, Next, origin, refusal, vary};
use crate::error::{Error, Result};
use crate::message::{Request, Response};

/// Fields of a preflight response, in addition to those of every response.
const PREFLIGHT_FIELDS: [HeaderName; 3] = [
    header::ACCESS_CONTROL_ALLOW_METHODS,
    header::ACCESS_CONTROL_ALLOW_HEADERS,
    header::ACCESS_CONTROL_MAX_AGE,
];

/// Allows pages of other origins to read responses (the CORS protocol of the Fetch standard), and answers their
/// preflights.
///
/// Without it, browsers hide responses from other origins. CORS grants access and protects nothing: a request
/// without a preflight always reaches the handler. To protect requests that change something, see
/// [`Csrf`](super::Csrf).
///
/// - The whole origin is compared with a list of serialized origins. There are no prefixes and no patterns, and
///   `null` never matches. The response names the origin of the request and varies by it. If every origin is
///   allowed, the response always has `*`.
/// - Credentials cannot be combined with every origin, neither as `*` nor by reflecting the origin.
///   [`credentials`](Cors::credentials) rejects that.
/// - A preflight allows the headers that it asks for, unless [`headers`](Cors::headers) lists them. Such a header is
///   `authorization`, or `content-type` for JSON.
/// - If a preflight asks for something that is not granted, the log says what and by which method of this type it would
///   be granted. Browsers tell little.
/// - A preflight from another origin gets 403. The status helps people, because browsers look only at the
///   fields. If no route of the router has the requested method at that path, the router answers the preflight.
///   It is then granted nothing, even if a handler for OPTIONS answers.
///
/// **Put it around a router**, not around a single handler. A preflight is an OPTIONS request, which a router
/// answers itself, so a handler never sees it. Pages could then use the handler only for requests without a
/// preflight (GET, and simple POSTs). To cover some routes, put it around a router of these routes, and mount
/// that router:
///
/// ```
/// use weftwork::middleware::Cors;
/// use weftwork::prelude::*;
///
/// let cors = || Cors::any_origin().methods([Method::PUT]);
/// let around_handler = (|_: &mut Request| "poured").with(cors());
/// let around_router = Router::new().put("/tea", || "poured").with(cors());
/// let site = Router::new().put("/tea", around_handler).mount("/api", around_router);
/// let mut client = weftwork::TestClient::new(site);
/// let mut is_granted = |path: &str| {
///     let preflight = client.options(path).header("origin", "https://app.example");
///     let answer = preflight.header("access-control-request-method", "PUT").send();
///     answer.header("access-control-allow-methods") == Some("PUT")
/// };
/// assert!(is_granted("/api/tea") && !is_granted("/tea"));
/// ```
///
/// All options:
///
/// ```
/// use weftwork::middleware::Cors;
/// use weftwork::prelude::*;
///
/// let cors = Cors::origins(["https://app.example"])?
///     .methods([Method::GET, Method::PUT])
///     .headers(["content-type"])?
///     .credentials()?;
/// fn takes(_: impl Handler) {}
/// takes((|_: &mut Request| "for the app").with(cors));
/// assert!(Cors::any_origin().credentials().is_err());
/// # Ok::<(), weftwork::Error>(())
/// ```
#[derive(Clone)]
pub struct Cors {
    allowed: Allowed,
    methods: HeaderValue,
    headers: Option<HeaderValue>,
    exposed: Option<HeaderValue>,
    max_age: Option<HeaderValue>,
    credentials: bool,
}

#[derive(Clone)]
enum Allowed {
    Any,
    RouteList(Vec<Box<str>>),
    If(Arc<dyn Fn(&str) -> bool + Send + Sync>),
}

impl Cors {
    /// Allows every page to read the responses. Use it for public data.
    pub fn any_origin() -> Cors {
        Cors::new(Allowed::Any)
    }

    /// Allows every page to send every method and header, and to read every response header. No credentials: browsers
    /// leave out cookies, and pages cannot read responses to requests with cookies. Use it for public data, and in
    /// development. In the Fetch standard, `*` stands for every method and for every response header.
    ///
    /// ```
    /// use weftwork::middleware::Cors;
    /// use weftwork::prelude::*;
    ///
    /// let site = Router::new().delete("/tea", || "gone").with(Cors::permissive());
    /// let mut client = weftwork::TestClient::new(site);
    /// let preflight = client.options("/tea").header("origin", "https://app.example");
    /// let answer = preflight.header("access-control-request-method", "DELETE").send();
    /// assert_eq!(answer.header("access-control-allow-methods"), Some("*"));
    /// ```
    pub fn permissive() -> Cors {
        let every = HeaderValue::from_static("*");
        Cors { methods: every.clone(), exposed: Some(every), ..Cors::any_origin() }
    }

    /// Allows the pages of these origins, each written as browsers do: `https://app.example`,
    /// `http://localhost:3000`.
    ///
    /// # Errors
    /// Fails if an origin has a path, a final slash, upper case or the default port, or is `null` or `*`. It
    /// would never match, or match too much.
    pub fn origins<'o>(origins: impl IntoIterator<Item = &'o str>) -> Result<Cors> {
        let listed = origins.into_iter().map(origin::checked).collect::<Result<_>>()?;
        Ok(Cors::new(Allowed::RouteList(listed)))
    }

    /// Allows the pages of origins for which `allowed` returns true. It gets only well-formed origins, never
    /// `null`. Compare whole origins or whole labels: `ends_with("good.example")` also matches
    /// `https://evilgood.example`.
    pub fn origin_if(allowed: impl Fn(&str) -> bool + Send + Sync + 'static) -> Cors {
        Cors::new(Allowed::If(Arc::new(allowed)))
    }

    fn new(allowed: Allowed) -> Cors {
        let methods = HeaderValue::from_static("GET, HEAD, POST");
        Cors { allowed, methods, headers: None, exposed: None, max_age: None, credentials: false }
    }

    /// Sets the methods that pages may use. Default: GET, HEAD and POST, which need no permission.
    #[must_use]
    pub fn methods(self, methods: impl IntoIterator<Item = Method>) -> Cors {
        let names: Vec<_> = methods.into_iter().map(|method| method.to_string()).collect();
        // Cannot fail: methods are tokens.
        Cors { methods: HeaderValue::try_from(names.join(", ")).unwrap_or(self.methods), ..self }
    }

    /// Sets the request headers that pages may set, beyond those that need no permission. Default: all that a
    /// preflight asks for. The origin decides who gets access. A list of headers keeps out no page, and an incomplete
    /// one makes requests fail.
    ///
    /// # Errors
    /// Fails if a name is not the name of a header.
    pub fn headers<'n>(self, names: impl IntoIterator<Item = &'n str>) -> Result<Cors> {
        Ok(Cors { headers: Some(header_list(names)?), ..self })
    }

    /// Sets the response headers that pages may read, beyond the usual ones.
    ///
    /// # Errors
    /// Fails if a name is not the name of a header.
    pub fn exposed<'n>(self, names: impl IntoIterator<Item = &'n str>) -> Result<Cors> {
        Ok(Cors { exposed: Some(header_list(names)?), ..self })
    }

    /// Allows pages to send cookies and other credentials, and to read the responses.
    ///
    /// # Errors
    /// Fails if every origin is allowed. Each page on the web could then act as its visitor.
    pub fn credentials(self) -> Result<Cors> {
        match self.allowed {
            Allowed::Any => Err(Error::usage(
                "CORS for any origin cannot allow credentials, because every page could act as its visitor: list the origins",
            )),
            Allowed::RouteList(_) | Allowed::If(_) => Ok(Cors { credentials: true, ..self }),
        }
    }

    /// Sets how long browsers may cache a preflight response. Default: the browser's own, 5 seconds. Most
    /// browsers cache it for two hours at most.
    #[must_use]
    pub fn max_age(self, age: Duration) -> Cors {
        Cors { max_age: Some(HeaderValue::from(age.as_secs())), ..self }
    }

    /// Returns the value that allows the origin of the request, if it is allowed.
    fn grant(&self, origin_sent: Option<&str>) -> Option<HeaderValue> {
        let origin_sent = origin_sent.and_then(origin::serialized);
        let allowed = match &self.allowed {
            // Also without an `Origin`, because a cache may use the response for a request with one.
            Allowed::Any => return Some(HeaderValue::from_static("*")),
            Allowed::RouteList(origins) => {
                origin_sent.filter(|&origin_sent| origins.iter().any(|origin| **origin == *origin_sent))
            }
            Allowed::If(allowed) => origin_sent.filter(|origin_sent| allowed(origin_sent)),
        };
        HeaderValue::from_str(allowed?).ok()
    }

    fn apply(&self, response: &mut Response, grant: Option<HeaderValue>) {
        self.fields_for(grant).apply(response);
    }

    fn fields_for(&self, grant: Option<HeaderValue>) -> CorsFields {
        let varies = !matches!(self.allowed, Allowed::Any);
        let exposed = grant.as_ref().and(self.exposed.clone());
        CorsFields { varies, grant, credentials: self.credentials, exposed }
    }

    fn preflight(&self, req: &Request<'_>, method: &Method, grant: Option<HeaderValue>) -> Response {
        self.log_what_is_missing(req, method, grant.is_some());
        if grant.is_none() {
            let mut refused = refusal(StatusCode::FORBIDDEN, "this origin is not allowed (CORS)");
            self.apply(&mut refused, None);
            return refused;
        }
        let mut response = Response::new(StatusCode::NO_CONTENT);
        self.apply(&mut response, grant);
        response.append_header(header::ACCESS_CONTROL_ALLOW_METHODS, self.methods.clone());
        let headers = match &self.headers {
            Some(listed) => Some(listed.clone()),
            None => {
                vary(&mut response, header::ACCESS_CONTROL_REQUEST_HEADERS);
                let names: Vec<_> = requested_headers(req).map(|name| name.to_string()).collect();
                Some(names.join(", "))
                    .filter(|names| !names.is_empty())
                    .and_then(|names| names.try_into().ok())
            }
        };
        let fields = [
            (header::ACCESS_CONTROL_ALLOW_HEADERS, headers),
            (header::ACCESS_CONTROL_MAX_AGE, self.max_age.clone()),
        ];
        for (name, value) in fields {
            response.fields.extend(value.map(|value| (name, value)));
        }
        response
    }

    /// Logs why the browser will not send the request.
    fn log_what_is_missing(&self, req: &Request<'_>, method: &Method, is_origin_allowed: bool) {
        let lists = |list: &HeaderValue, wanted: &str| {
            list.to_str().unwrap_or_default().split(", ").any(|listed| listed == wanted || listed == "*")
        };
        let mut missing = Vec::new();
        if !is_origin_allowed {
            missing.push("this origin (Cors::origins or Cors::origin_if)".to_owned());
        }
        let needs_none = matches!(*method, Method::GET | Method::HEAD | Method::POST);
        if !needs_none && !lists(&self.methods, method.as_str()) {
            missing.push(format!("the method {method} (Cors::methods)"));
        }
        if let Some(listed) = &self.headers {
            let unlisted = requested_headers(req).filter(|name| !lists(listed, name.as_str()));
            missing.extend(unlisted.map(|name| format!("the header {name} (Cors::headers)")));
        }
        if !missing.is_empty() {
            log_refusal(req, method, format_args!("not allowed is {}", missing.join(", ")));
        }
    }
}

/// CORS fields of a response.
struct CorsFields {
    varies: bool,
    grant: Option<HeaderValue>,
    credentials: bool,
    exposed: Option<HeaderValue>,
}

impl CorsFields {
    fn apply(&self, response: &mut Response) {
        // Also without a grant, because a cache may use the rejection for an allowed origin.
        if self.varies {
            vary(response, header::ORIGIN);
        }
        // Fields from the handler, or from a server behind a proxy, must not widen what is allowed here.
        response.remove_header(header::ACCESS_CONTROL_ALLOW_ORIGIN);
        response.remove_header(header::ACCESS_CONTROL_ALLOW_CREDENTIALS);
        response.remove_header(header::ACCESS_CONTROL_EXPOSE_HEADERS);
        if let Some(grant) = &self.grant {
            response.append_header(header::ACCESS_CONTROL_ALLOW_ORIGIN, grant.clone());
            if self.credentials {
                let yes = HeaderValue::from_static("true");
                response.append_header(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, yes);
            }
        }
    }
}

impl Middleware for Cors {
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        let origin_sent = req.only("origin").value();
        let grant = self.grant(origin_sent);
        // A preflight asks about the request that follows. If another handler answers that request, this
        // middleware does not grant anything.
        let preflighted = preflighted(req).filter(|_| origin_sent.is_some());
        if let Some(method) = &preflighted
            && next.takes(method, req)
        {
            return self.preflight(req, method, grant);
        }
        let is_preflight = preflighted.is_some();
        let cors_fields = self.fields_for(grant.filter(|_| !is_preflight));
        let response = next.run(req);
        // If the response is declined, another handler may take the request.
        if let Some(method) = preflighted.filter(|_| !response.is_declined()) {
            log_refusal(req, &method, format_args!("no route behind this Cors has that method at that path"));
        }
        response.map_final(move |mut response| {
            cors_fields.apply(&mut response);
            if is_preflight {
                PREFLIGHT_FIELDS.iter().for_each(|name| drop(response.remove_header(name)));
            }
            if let Some(exposed) = &cors_fields.exposed {
                response.set_header(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed.clone());
            }
            response
        })
    }
}

/// Returns the method that a preflight asks about.
pub(in crate::app) fn preflighted(req: &Request<'_>) -> Option<Method> {
    let method = req.header("access-control-request-method").filter(|_| *req.method() == Method::OPTIONS)?;
    Method::from_bytes(method.as_bytes()).ok()
}

/// Returns the headers that a preflight asks about.
fn requested_headers(req: &Request<'_>) -> impl Iterator<Item = HeaderName> {
    req.elements(header::ACCESS_CONTROL_REQUEST_HEADERS).filter_map(|name| HeaderName::from_bytes(name).ok())
}

/// Any client can cause such a line, so few are written.
fn log_refusal(req: &Request<'_>, method: &Method, why: fmt::Arguments<'_>) {
    let (origin, path) = (req.header(header::ORIGIN).unwrap_or_default(), req.whole_path());
    req.log_client(format_args!("CORS: pages of {origin} may not send {method} {path}: {why}"));
}

fn header_list<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<HeaderValue> {
    let names = names.into_iter().map(|name| match HeaderName::try_from(name) {
        Ok(name) if name.as_str() != "*" => Ok(name.to_string()),
        _ => Err(Error::setting("header", name, "the name of a header")),
    });
    let names = names.collect::<Result<Vec<_>>>()?.join(", ");
    HeaderValue::try_from(names).map_err(Error::from)
}

impl fmt::Debug for Cors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let allowed: &dyn fmt::Debug = match &self.allowed {
            Allowed::Any => &"*",
            Allowed::RouteList(origins) => origins,
            Allowed::If(_) => &"a function",
        };
        f.debug_struct("Cors")
            .field("allowed", allowed)
            .field("credentials", &self.credentials)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
