//! Sends one request: chooses the connection, and tries again if the server has not begun the request.

use std::time::Duration;

use http::{Method, StatusCode};

use super::request::{self, Outgoing};
use super::response::ProxyExchange;
use super::upload::Upload;
use super::upstream::{self, Protocol, UpstreamConn};
use super::{Failure, Proxy};
use crate::message::{Request, Response};

/// Time to wait for `100 (Continue)`. A server that does not know `Expect` never sends it, so the body is then
/// sent anyway.
const CONTINUE_WAIT: Duration = Duration::from_secs(1);
/// How often a request is sent again that the server has not begun.
const REPEATS_MAX: u32 = 2;

impl Proxy {
    pub(super) fn forward(&self, req: &mut Request<'_>) -> Result<Response, Failure> {
        let forwards = request::forwards_left(req)?;
        if forwards == Some(0) {
            return Ok(final_recipient(req));
        }
        let outgoing = Outgoing::of(req, forwards, self)?;
        let (conn, is_reused) = self.acquire(req, false)?;
        let may_repeat = is_reused && may_repeat(req);
        let mut exchange = self.exchange(req, &outgoing, conn);
        let mut repeats = 0;
        let received = loop {
            let failure = match exchange.send_request(req) {
                Ok(received) => break received,
                Err(failure) => failure,
            };
            let conn = match failure {
                // The server may have closed the kept connection before it saw the request, or may have crashed on
                // it. RFC 9110 section 9.2.2 allows a retry. Another kept connection could be dead as well, so the
                // retry uses a new one.
                Failure::Closed if may_repeat && repeats == 0 && exchange.conn.has_received_nothing() => {
                    match exchange.conn.is_http2() {
                        true => self.acquire(req, false)?.0,
                        false => UpstreamConn::Http1(Box::new(self.upstream.connect_new(time_left(req))?)),
                    }
                }
                // RFC 9113 section 8.7: any request may be repeated that the server has not begun.
                Failure::Unprocessed | Failure::NeedsHttp1
                    if repeats < REPEATS_MAX && exchange.upload.can_repeat() =>
                {
                    self.acquire(req, matches!(failure, Failure::NeedsHttp1))?.0
                }
                failure => return Err(failure),
            };
            repeats += 1;
            exchange.conn = conn;
            self.send_head(req, &outgoing, &mut exchange.conn);
            exchange.upload.repeat(&mut exchange.conn, &outgoing);
        };
        exchange.relay_response(req, received)
    }

    /// Returns what the request is sent on, and whether it was used before.
    fn acquire(&self, req: &mut Request<'_>, needs_http1: bool) -> Result<(UpstreamConn, bool), Failure> {
        let time = time_left(req);
        let is_own = !upstream::may_be_shared(req);
        let uses_http2 = match self.upstream.protocol {
            Protocol::Http1 => false,
            Protocol::Http2 => true,
            // An upgrade, or a user, belongs to a connection of HTTP/1.1.
            Protocol::Either => {
                let has_own = is_own && self.upstream.is_authenticated(req.conn_value());
                let is_upgrade = request::requested_upgrade(req, &self.options).is_some();
                !(needs_http1 || has_own || is_upgrade || request::authenticates(req))
            }
        };
        if uses_http2 && let Some(acquired) = self.upstream.acquire_http2(&self.options.limits, time)? {
            return Ok(acquired);
        }
        let client = is_own.then(|| req.conn_value());
        let (conn, is_reused) = self.upstream.acquire(client, time)?;
        Ok((UpstreamConn::Http1(Box::new(conn)), is_reused))
    }

    fn send_head(&self, req: &Request<'_>, outgoing: &Outgoing, conn: &mut UpstreamConn) {
        match conn {
            UpstreamConn::Http1(own) => {
                let (head, authenticates) = request::http1_head(req, outgoing, self);
                own.queue(&head);
                conn.note_request(authenticates);
            }
            UpstreamConn::Http2(stream) => {
                let (head, authenticates) = request::http2_head(req, outgoing, self);
                stream.send_head(req.method(), &head, !outgoing.has_body());
                conn.note_request(authenticates);
            }
        }
    }

    fn exchange(&self, req: &Request<'_>, outgoing: &Outgoing, mut conn: UpstreamConn) -> ProxyExchange {
        self.send_head(req, outgoing, &mut conn);
        let (server, options) = (self.upstream.authority().clone(), self.options.clone());
        let wait = CONTINUE_WAIT.min(time_left(req));
        let continue_by = outgoing.expects_continue.then(|| upstream::from_now(wait));
        ProxyExchange {
            conn,
            server,
            options,
            continue_by,
            upload: Upload::of(outgoing),
            idle_pool: self.upstream.idle_pool(),
            serves_one_client: !upstream::may_be_shared(req),
        }
    }
}

/// Returns the answer to a request that must not be forwarded (RFC 9110 section 7.6.2). This proxy has no
/// options to report and does not support TRACE.
fn final_recipient(req: &Request<'_>) -> Response {
    let is_known = *req.method() == Method::OPTIONS;
    Response::new(if is_known { StatusCode::NO_CONTENT } else { StatusCode::NOT_IMPLEMENTED })
}

/// Returns the time until the deadline of the request.
pub(super) fn time_left(req: &Request<'_>) -> Duration {
    req.time_left().unwrap_or(Duration::MAX)
}

pub(super) const DEADLINE: &str = "the deadline of the request";

/// Returns whether the request can be sent again: it is idempotent and has no body.
fn may_repeat(req: &Request<'_>) -> bool {
    req.method().is_idempotent() && req.body_left() == Some(0)
}
