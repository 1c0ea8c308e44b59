//! Turns the head of the upstream response into a response, and relays its body as it arrives.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use weftwork_wire::Received;

use super::request;
use super::upload::{self, POLL_MAX, POLL_MIN, Upload, next_poll_time};
use super::upstream::{IdlePool, Part, UpstreamConn, from_now};
use super::{DEADLINE, Failure, NO_ANSWER, Options, time_left, tunnel, warn};
use crate::message::{BodyWriter, CONNECTION_FIELDS, Problem, Request, Response};
use crate::transport::stream::is_timed_out;

/// Interval at which the proxy checks whether the client is still connected while the server is silent.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Size of one read of the request body while the server already responds.
const PART_BYTES: usize = 8 << 10;

/// A request to the upstream server and its response.
pub(super) struct ProxyExchange {
    pub(super) conn: UpstreamConn,
    /// Authority of the upstream server, for the log.
    pub(super) server: Arc<str>,
    pub(super) options: Options,
    /// Until this time, the client is not asked for its body, because the server may not want it.
    pub(super) continue_by: Option<Instant>,
    pub(super) upload: Upload,
    pub(super) idle_pool: IdlePool,
    /// Whether all requests on the client's connection are from one client.
    pub(super) serves_one_client: bool,
}

/// Time limit for the start of the response.
struct HeadTimeout {
    until: Instant,
    /// Name of the option that set the limit.
    limited_by: &'static str,
    /// Whether the limit had passed at the last read. Bytes that arrived in time are still read once, because
    /// this process may have been suspended. A server that keeps sending does not get more time.
    is_over: bool,
}

impl ProxyExchange {
    /// Sends the request and reads the head of the response.
    pub(super) fn send_request(&mut self, req: &mut Request<'_>) -> Result<Received, Failure> {
        let mut head_timeout = None;
        loop {
            if let Some(until) = self.continue_by
                && !self.has_early_response(req, until)?
            {
                self.send_continue(req);
            }
            // Also needed after an interim response: the server waits for the rest of the request.
            if self.continue_by.is_none() && !self.is_sent() {
                let before = self.conn.bytes_sent();
                upload::send(req, &mut self.upload, &mut self.conn, &self.options)?;
                if self.conn.bytes_sent() > before {
                    head_timeout = None;
                }
            }
            let head_timeout = head_timeout.get_or_insert_with(|| self.head_timeout(req));
            let Some(received) = self.head(req, head_timeout)? else { continue };
            match received.status {
                StatusCode::SWITCHING_PROTOCOLS => return Ok(received),
                StatusCode::CONTINUE => self.send_continue(req),
                status if status.is_informational() => {
                    // A client that has disconnected is noticed soon enough.
                    let _ = req.interim(status, &end_to_end(received.fields));
                }
                _ => return Ok(received),
            }
        }
    }

    fn head_timeout(&self, req: &Request<'_>) -> HeadTimeout {
        let (time, left) = (self.options.response_timeout, time_left(req));
        let limited_by = if left < time { DEADLINE } else { "response_timeout" };
        HeadTimeout { until: from_now(time.min(left)), limited_by, is_over: false }
    }

    /// Returns the response to the client, including the body that follows its head.
    pub(super) fn relay_response(
        mut self,
        req: &mut Request<'_>,
        received: Received,
    ) -> Result<Response, Failure> {
        if received.status == StatusCode::SWITCHING_PROTOCOLS {
            return self.upgrade(req, received);
        }
        let keep_alive = received.keep_alive && !may_send_unread_body(req.method(), &received);
        self.conn.note_response(&received.fields);
        let Received { status, fields, length, .. } = received;
        let required = required_upgrade(status, &fields, &self.options);
        let response = Response::new(status);
        let is_head = *req.method() == Method::HEAD;
        // The rest of the body is not sent after an early rejection, or after a response without permission to
        // send the body.
        let wants_rest = !self.is_sent() && status.as_u16() < 400 && self.continue_by.is_none();
        if is_head && wants_rest {
            self.send_rest(req)?;
        }
        if is_head || length == Some(0) && !wants_rest {
            let response = if is_head { with_content_length(response, &fields) } else { response };
            if keep_alive && self.is_sent() {
                let client = self.serves_one_client.then(|| req.conn_value());
                self.conn.keep(self.idle_pool, client);
            }
            return Ok(with_fields(response, fields, required));
        }
        let mut streamed = Response::stream(move |out| {
            if wants_rest {
                self.relay_both(out, length == Some(0))?;
            }
            self.stream(out, keep_alive)
        })
        .with_status(status);
        streamed.remove_header(header::CONTENT_TYPE);
        let streamed = match length {
            Some(length) if status != StatusCode::NO_CONTENT => {
                streamed.with_header(header::CONTENT_LENGTH, HeaderValue::from(length))
            }
            _ => streamed,
        };
        Ok(with_fields(streamed, fields, required))
    }

    /// Sends the head. Returns true if the server has sent something by `until`.
    fn has_early_response(&mut self, req: &Request<'_>, until: Instant) -> Result<bool, Failure> {
        let pushed = self.conn.send_output(self.options.idle_timeout, from_now(time_left(req)));
        pushed
            .and_then(|_| self.conn.wait_for_input(until))
            .map_err(|error| Failure::of(error, "idle_timeout"))
    }

    /// Done here, because nobody sends `100 (Continue)` to the client after the head of the response.
    fn send_continue(&mut self, req: &mut Request<'_>) {
        if self.continue_by.take().is_some() {
            // A client that has disconnected is noticed soon enough.
            let _ = req.interim(StatusCode::CONTINUE, &[]);
        }
    }

    /// Returns whether the whole request is sent.
    fn is_sent(&self) -> bool {
        self.upload.is_whole() && self.conn.is_sent()
    }

    /// Reads the head of a response. Returns `None` if only a part of it has arrived and the rest of the
    /// request must be sent first.
    fn head(
        &mut self,
        req: &Request<'_>,
        head_timeout: &mut HeadTimeout,
    ) -> Result<Option<Received>, Failure> {
        loop {
            if let Some(received) = self.conn.read_head(req.method(), &self.options.limits)? {
                return Ok(Some(received));
            }
            let limited_by = head_timeout.limited_by;
            if !self.is_sent() && !self.conn.has_input().map_err(|error| Failure::of(error, limited_by))? {
                return Ok(None);
            }
            if head_timeout.is_over {
                return Err(Failure::Timeout(limited_by));
            }
            let (now, until) = (Instant::now(), head_timeout.until);
            head_timeout.is_over = now >= until;
            match self.conn.fill(until.min(now + CHECK_INTERVAL)) {
                Ok(false) => return Err(Failure::Closed),
                Ok(true) => {}
                Err(error) if is_timed_out(&error) && Instant::now() < until => {
                    if req.client_gone() {
                        return Err(Failure::Request(StatusCode::BAD_REQUEST, "the client has gone"));
                    }
                }
                Err(error) => return Err(Failure::of(error, limited_by)),
            }
        }
    }

    /// Sends the rest of the request after a response to HEAD. The server may still read, and no client waits
    /// for that response before it sends the rest.
    fn send_rest(&mut self, req: &mut Request<'_>) -> Result<(), Failure> {
        match upload::send(req, &mut self.upload, &mut self.conn, &self.options) {
            Err(failure @ Failure::Client(_)) => Err(failure),
            // The response is valid, whatever the server does afterwards.
            _ => Ok(()),
        }
    }

    /// Relays both directions while the client still sends. A client that exceeds the body limit is
    /// disconnected, because it is too late for a status. Once the response `is_whole`, the server gets the
    /// rest until it ends its side or stops reading. Neither is an error of the response.
    fn relay_both(&mut self, out: &mut BodyWriter<'_>, mut is_whole: bool) -> io::Result<()> {
        let (mut part, mut wait) = ([0; PART_BYTES], POLL_MIN);
        // An invalid response can still be reported while nothing was sent.
        is_whole = is_whole || self.relay_available(out)?;
        // The client may wait for the head, even if no body follows.
        out.flush()?;
        while !self.is_sent() {
            if !is_whole && self.relay_available(out)? {
                is_whole = true;
                // The end of the response must not wait for a server that stopped reading, or for a client that
                // never pauses.
                out.flush()?;
            }
            match self.accepts_more(is_whole) {
                Ok(false) | Err(_) if is_whole => return Ok(()),
                Ok(true) if !self.upload.is_whole() => {
                    if !out.request_comes_within(wait)? {
                        // The client may wait for the end of the response before it ends the request.
                        if is_whole && wait == POLL_MAX {
                            return Ok(());
                        }
                        wait = next_poll_time(wait);
                        continue;
                    }
                    match out.read_request(&mut part)? {
                        0 => self.upload.end(&mut self.conn, out.request_trailers(), &self.options),
                        count => self.upload.put(&mut self.conn, &part[..count]),
                    }
                    wait = POLL_MIN;
                }
                pushed => drop(pushed?),
            }
        }
        Ok(())
    }

    /// Sends the queued bytes. Returns false if the server sends something instead. After a whole response,
    /// that is its end.
    fn accepts_more(&mut self, is_whole: bool) -> io::Result<bool> {
        Ok(self.conn.send_output(self.options.idle_timeout, from_now(Duration::MAX))?
            && !(is_whole && self.conn.has_input()?))
    }

    /// Relays the bytes that have arrived. Returns true at the end of the body.
    fn relay_available(&mut self, out: &mut BodyWriter<'_>) -> io::Result<bool> {
        while self.conn.has_input()? {
            match self.step(out, Instant::now()) {
                Ok(false) => {}
                Err(error) if is_timed_out(&error) => return Ok(false),
                over => return over,
            }
        }
        Ok(false)
    }

    /// Relays the rest of the response.
    fn stream(mut self, out: &mut BodyWriter<'_>, keep_alive: bool) -> io::Result<()> {
        let mut until = from_now(self.options.idle_timeout);
        loop {
            let soon = Instant::now() + CHECK_INTERVAL;
            match self.step(out, soon.min(until)) {
                Ok(true) => break,
                Ok(false) => until = from_now(self.options.idle_timeout),
                Err(error) if is_timed_out(&error) && Instant::now() < until => {
                    if out.client_gone() {
                        return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the client has gone"));
                    }
                }
                Err(error) => return Err(error),
            }
        }
        let trailers = self.conn.trailers();
        if !trailers.is_empty() {
            // Trailers that must not be forwarded are left out.
            let _ = out.trailers(trailers);
        }
        if keep_alive && self.is_sent() {
            let client = self.serves_one_client.then(|| out.conn_value());
            self.conn.keep(self.idle_pool, client);
        }
        Ok(())
    }

    /// Relays buffered bytes, or waits until `until` and reads once if no bytes are buffered. Returns true at the end
    /// of the body. A timeout is always the server's.
    fn step(&mut self, out: &mut BodyWriter<'_>, until: Instant) -> io::Result<bool> {
        let client = |error: io::Error| match is_timed_out(&error) {
            true => io::Error::new(io::ErrorKind::BrokenPipe, "the client stopped reading"),
            false => error,
        };
        loop {
            match self.conn.next_part(&self.options.limits) {
                Ok(Part::Data(data)) => out.write_all(data).map_err(client)?,
                Ok(Part::End) => return Ok(true),
                Ok(Part::NeedMore) => break,
                Err(failure) => return Err(broken(&self.server, &failure)),
            }
        }
        // Bytes of one read are sent with one write and do not wait for more.
        out.flush().map_err(client)?;
        if !self.conn.fill(until)? {
            self.conn.end()?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Upgrades the client's connection after the server has switched protocols.
    fn upgrade(self, req: &Request<'_>, received: Received) -> Result<Response, Failure> {
        let requested = request::requested_upgrade(req, &self.options).filter(|_| self.is_sent());
        let mut given = received.fields.iter().filter(|(name, _)| name == header::UPGRADE);
        let given = given.find(|(_, given)| {
            requested.is_some_and(|requested| given.as_bytes().eq_ignore_ascii_case(requested.as_bytes()))
        });
        let Some((_, protocol)) = given.cloned() else {
            return Err(Failure::UnexpectedUpgrade);
        };
        // HTTP/2 has no 101.
        let UpstreamConn::Http1(conn) = self.conn else { return Err(Failure::UnexpectedUpgrade) };
        let write_timeout = self.options.idle_timeout;
        let response = Response::upgrade(protocol, move |line| tunnel::run(line, *conn, write_timeout));
        Ok(with_fields(response, received.fields, None))
    }
}

/// Returns whether a server that makes a mistake may send a body that the client must not get: after the head for
/// HEAD, 204 or 304. On a kept connection, these bytes would be the start of the next response.
fn may_send_unread_body(method: &Method, received: &Received) -> bool {
    let declares = received.fields.iter().any(|(name, value)| match *name {
        header::CONTENT_LENGTH => value.as_bytes().iter().any(|byte| *byte != b'0'),
        header::TRANSFER_ENCODING => true,
        _ => false,
    });
    let declares_none = received.fields.iter().any(|(name, _)| name == header::CONTENT_LENGTH) && !declares;
    match received.status {
        StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED => declares,
        _ => *method == Method::HEAD && !declares_none,
    }
}

/// Returns the error for a response that breaks a rule, or that its server has given up. If nothing of the response was
/// sent yet, the client gets a 502.
fn broken(server: &str, failure: &Failure) -> io::Error {
    if let Some(why) = failure.for_log() {
        warn(server, why);
    }
    io::Error::other(Problem::new(StatusCode::BAD_GATEWAY).detail(NO_ANSWER))
}

fn with_fields(
    mut response: Response,
    fields: Vec<(HeaderName, HeaderValue)>,
    upgrade: Option<HeaderValue>,
) -> Response {
    let upgrade = upgrade.map(|protocols| (header::UPGRADE, protocols));
    for (name, value) in end_to_end(fields).into_iter().chain(upgrade) {
        response.append_header(name, value);
    }
    response
}

/// Returns the protocols that a 426 requires (RFC 9110 section 15.5.22) and that this proxy allows.
fn required_upgrade(
    status: StatusCode,
    fields: &[(HeaderName, HeaderValue)],
    options: &Options,
) -> Option<HeaderValue> {
    let is_let_through =
        |protocol: &&[u8]| options.upgrades.iter().any(|ours| protocol.eq_ignore_ascii_case(ours.as_bytes()));
    let protocols: Vec<&[u8]> = listed(fields, &header::UPGRADE).filter(is_let_through).collect();
    if status != StatusCode::UPGRADE_REQUIRED || protocols.is_empty() {
        return None;
    }
    HeaderValue::from_bytes(&protocols.join(&b", "[..])).ok()
}

/// Returns the elements of all lines of a list field.
fn listed<'f>(
    fields: &'f [(HeaderName, HeaderValue)],
    wanted: &'f HeaderName,
) -> impl Iterator<Item = &'f [u8]> {
    let lines = fields.iter().filter(move |(name, _)| name == wanted);
    lines.flat_map(|(_, value)| value.as_bytes().split(|&byte| byte == b',')).map(<[u8]>::trim_ascii)
}

/// Returns the response to HEAD. It has the length that GET would have, if the length is known (RFC 9110
/// section 8.6).
fn with_content_length(response: Response, fields: &[(HeaderName, HeaderValue)]) -> Response {
    match fields.iter().find(|(name, _)| name == header::CONTENT_LENGTH) {
        _ if response.status() == StatusCode::NO_CONTENT => response,
        Some((name, value)) => response.with_header(name.clone(), value.clone()),
        None => {
            let mut unknown = Response::stream(|_| Ok(())).with_status(response.status());
            unknown.remove_header(header::CONTENT_TYPE);
            unknown
        }
    }
}

/// Returns the fields for the client, without the fields for the upstream connection and its framing.
fn end_to_end(fields: Vec<(HeaderName, HeaderValue)>) -> Vec<(HeaderName, HeaderValue)> {
    let mut named: Vec<Vec<u8>> =
        listed(&fields, &header::CONNECTION).map(<[u8]>::to_ascii_lowercase).collect();
    // A head may name so many of them that comparing each field with each name would take too long.
    named.sort_unstable();
    let stays = |name: &HeaderName| {
        CONNECTION_FIELDS.contains(&name.as_str())
            || *name == header::CONTENT_LENGTH
            || named.binary_search_by(|option| option.as_slice().cmp(name.as_str().as_bytes())).is_ok()
    };
    fields.into_iter().filter(|(name, _)| !stays(name)).collect()
}
