//! The WebSocket handshake (RFC 6455 section 4.2) and the check of its origin.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Method, StatusCode, Version, header};

use super::deflate::Deflate;
use super::{Origins, WebSockets};
use crate::app::middleware::origin;
use crate::message::{IntoResponse, Problem, Request, Response, SingleValue};

pub(super) const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");
const VERSION: HeaderValue = HeaderValue::from_static("13");

/// An accepted handshake.
pub(super) struct Handshake {
    /// Reply to the client's key. HTTP/2 has none (RFC 8441 section 5).
    accept: Option<HeaderValue>,
    pub(super) protocol: Option<&'static str>,
    pub(super) deflate: Option<Deflate>,
}

impl Handshake {
    /// Adds the reply to the client's key to the response.
    pub(super) fn complete(self, response: Response) -> Response {
        let mut response = response;
        if let Some(accept) = self.accept {
            response.set_header(header::SEC_WEBSOCKET_ACCEPT, accept);
        }
        if let Some(deflate) = self.deflate {
            response.set_header(header::SEC_WEBSOCKET_EXTENSIONS, deflate.response());
        }
        match self.protocol.map(HeaderValue::try_from) {
            Some(Ok(protocol)) => response.with_header(header::SEC_WEBSOCKET_PROTOCOL, protocol),
            _ => response,
        }
    }
}

pub(super) fn accept(req: &Request<'_>, options: &WebSockets) -> Result<Handshake, Box<Response>> {
    let is_http2 = req.version() == Version::HTTP_2;
    let asks = *req.method() == Method::GET
        && (is_http2 || req.version() == Version::HTTP_11)
        && req.has_token(header::UPGRADE, "websocket")
        && req.has_token(header::CONNECTION, "upgrade");
    if !asks {
        return Err(not_asked(req));
    }
    if req.body_left() != Some(0) {
        return Err(refusal(StatusCode::BAD_REQUEST, "a handshake must not have a body"));
    }
    if req.only(header::SEC_WEBSOCKET_VERSION) != SingleValue::Value("13") {
        return Err(upgrade_required(req, "Sec-WebSocket-Version must be 13"));
    }
    let accept = if is_http2 { None } else { Some(accept_key(req)?) };
    if !is_origin_allowed(req, &options.origins) {
        return Err(refusal(
            StatusCode::FORBIDDEN,
            "pages of this origin are not allowed to open this WebSocket",
        ));
    }
    let offered = |protocol: &&&str| {
        req.elements(header::SEC_WEBSOCKET_PROTOCOL).any(|offer| offer == protocol.as_bytes())
    };
    let deflate = options.compresses.then(|| Deflate::negotiated(req)).flatten();
    Ok(Handshake { accept, protocol: options.protocols.iter().find(offered).copied(), deflate })
}

/// Returns the reply to the client's key.
fn accept_key(req: &Request<'_>) -> Result<HeaderValue, Box<Response>> {
    let key = req.only(header::SEC_WEBSOCKET_KEY).value().filter(|key| is_key(key));
    let accept = key.map(|key| tungstenite::handshake::derive_accept_key(key.as_bytes()));
    let accept = accept.and_then(|accept| HeaderValue::try_from(accept).ok());
    accept.ok_or_else(|| refusal(StatusCode::BAD_REQUEST, "Sec-WebSocket-Key must be 16 bytes in Base64"))
}

/// Returns the refusal of a request that asks for no WebSocket.
fn not_asked(req: &Request<'_>) -> Box<Response> {
    match req.version() {
        // An extended CONNECT for another protocol.
        Version::HTTP_2 if req.has_token(header::CONNECTION, "upgrade") => {
            refusal(StatusCode::NOT_IMPLEMENTED, "this is a WebSocket: :protocol must be websocket")
        }
        Version::HTTP_2 => upgrade_required(req, "this is a WebSocket: use CONNECT with :protocol websocket"),
        _ => upgrade_required(req, "this is a WebSocket: use GET with Upgrade: websocket"),
    }
}

fn is_origin_allowed(req: &Request<'_>, origins: &Origins) -> bool {
    let Origins::Same(others) = origins else { return true };
    let given = match req.only(header::ORIGIN) {
        SingleValue::Absent => return true,
        SingleValue::Value(given) => given,
        SingleValue::Unclear => return false,
    };
    origin::is_own(given, req) || others.iter().any(|other| **other == *given)
}

fn is_key(key: &str) -> bool {
    STANDARD.decode(key).is_ok_and(|nonce| nonce.len() == 16)
}

fn refusal(status: StatusCode, why: &str) -> Box<Response> {
    Box::new(Problem::new(status).detail(why).into_response())
}

/// Returns a 426 that states the protocol and its version (RFC 9110 section 15.5.22, RFC 6455 section 4.4). HTTP/2 has no
/// Upgrade field, which a 426 must have, so it gets 400.
fn upgrade_required(req: &Request<'_>, why: &str) -> Box<Response> {
    let is_http2 = req.version() == Version::HTTP_2;
    let status = if is_http2 { StatusCode::BAD_REQUEST } else { StatusCode::UPGRADE_REQUIRED };
    let mut response = refusal(status, why);
    if !is_http2 {
        response.set_header(header::UPGRADE, WEBSOCKET);
    }
    response.set_header(header::SEC_WEBSOCKET_VERSION, VERSION);
    response
}
