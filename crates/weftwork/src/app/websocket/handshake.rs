//! Is this a WebSocket handshake, and may its sender come in? RFC 6455 section 4.2.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, HeaderValue, Method, StatusCode, Version, header};

use super::{Origins, WebSockets};
use crate::app::middleware::origin;
use crate::message::{IntoResponse, Problem, Request, Response};

pub(super) const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");
const VERSION: HeaderValue = HeaderValue::from_static("13");

/// What a handshake came to.
pub(super) struct Hands {
    accept: HeaderValue,
    pub(super) protocol: Option<&'static str>,
}

impl Hands {
    /// Puts the answer to the client's key on the response.
    pub(super) fn seal(self, response: Response) -> Response {
        let response = response.with_header(header::SEC_WEBSOCKET_ACCEPT, self.accept);
        match self.protocol.map(HeaderValue::try_from) {
            Some(Ok(protocol)) => response.with_header(header::SEC_WEBSOCKET_PROTOCOL, protocol),
            _ => response,
        }
    }
}

pub(super) fn shake(req: &Request<'_>, options: &WebSockets) -> Result<Hands, Box<Response>> {
    let asks = *req.method() == Method::GET
        && req.version() == Version::HTTP_11
        && has_token(req, &header::UPGRADE, "websocket")
        && has_token(req, &header::CONNECTION, "upgrade");
    if !asks {
        return Err(upgrade_required("this is a WebSocket; ask for it with GET and Upgrade: websocket"));
    }
    if only(req, &header::SEC_WEBSOCKET_VERSION) != Some(b"13") {
        return Err(upgrade_required("Sec-WebSocket-Version has to be 13"));
    }
    let key = only(req, &header::SEC_WEBSOCKET_KEY).filter(|key| is_key(key));
    let Some(key) = key else {
        return Err(refusal(StatusCode::BAD_REQUEST, "Sec-WebSocket-Key has to be 16 bytes in Base64"));
    };
    if !is_let_in(req, &options.origins) {
        return Err(refusal(StatusCode::FORBIDDEN, "pages of this origin may not open this WebSocket"));
    }
    let accept = tungstenite::handshake::derive_accept_key(key);
    let accept = HeaderValue::try_from(accept)
        .map_err(|_| refusal(StatusCode::BAD_REQUEST, "Sec-WebSocket-Key cannot be answered"))?;
    let offered = |protocol: &&&str| {
        values(req, &header::SEC_WEBSOCKET_PROTOCOL)
            .flat_map(|value| value.split(|&byte| byte == b','))
            .any(|offer| offer.trim_ascii() == protocol.as_bytes())
    };
    Ok(Hands { accept, protocol: options.protocols.iter().find(offered).copied() })
}

fn is_let_in(req: &Request<'_>, origins: &Origins) -> bool {
    let Origins::Same(others) = origins else { return true };
    if values(req, &header::ORIGIN).next().is_none() {
        return true;
    }
    let Some(given) = only(req, &header::ORIGIN).and_then(|value| std::str::from_utf8(value).ok()) else {
        return false;
    };
    let host = req.host().unwrap_or_default();
    let same = origin::authority(given).is_some_and(|authority| authority.eq_ignore_ascii_case(host));
    same || others.iter().any(|other| other == given)
}

fn is_key(key: &[u8]) -> bool {
    STANDARD.decode(key).is_ok_and(|nonce| nonce.len() == 16)
}

fn values<'r>(req: &'r Request<'_>, name: &'r HeaderName) -> impl Iterator<Item = &'r [u8]> {
    let named = req.fields().filter(move |(field, _)| field.eq_ignore_ascii_case(name.as_str()));
    named.map(|(_, value)| value)
}

/// The value of a field that is there once.
fn only<'r>(req: &'r Request<'_>, name: &'r HeaderName) -> Option<&'r [u8]> {
    let mut values = values(req, name);
    values.next().filter(|_| values.next().is_none())
}

fn has_token(req: &Request<'_>, name: &HeaderName, token: &str) -> bool {
    values(req, name)
        .flat_map(|value| value.split(|&byte| byte == b','))
        .any(|element| element.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

fn refusal(status: StatusCode, why: &str) -> Box<Response> {
    Box::new(Problem::new(status).detail(why).into_response())
}

/// 426 says what to upgrade to, and by which version of it (RFC 9110 section 15.5.22, RFC 6455 section 4.4).
fn upgrade_required(why: &str) -> Box<Response> {
    let mut response = refusal(StatusCode::UPGRADE_REQUIRED, why);
    response.set_field(header::UPGRADE, WEBSOCKET);
    response.set_field(header::CONNECTION, HeaderValue::from_static("upgrade"));
    response.set_field(header::SEC_WEBSOCKET_VERSION, VERSION);
    response
}
