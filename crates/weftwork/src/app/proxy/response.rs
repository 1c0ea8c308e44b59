//! The way back: the server's head becomes a response, and its body is passed on as it comes.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use weftwork_wire::{BodyEvent, Received, ResponseFault};

use super::request::{self, POLL_MAX, POLL_MIN, Upload, next_poll_time};
use super::upstream::{IdlePool, UpstreamConn, from_now};
use super::{DEADLINE, Failure, NO_ANSWER, Options, time_left, tunnel, warn};
use crate::message::{BodyWriter, CONNECTION_FIELDS, Problem, Request, Response};
use crate::transport::stream::is_timed_out;

/// While the server is silent, this often somebody looks whether the client is still there.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// What is read of a request at a time when the server answers before it has all of it.
const PART_BYTES: usize = 8 << 10;

/// A request that is on its way, and its answer.
pub(super) struct ProxyExchange {
    pub(super) conn: UpstreamConn,
    /// The authority of the one behind, for the log.
    pub(super) server: Arc<str>,
    pub(super) options: Options,
    /// Until then the client is not asked for its body: the server may not want it.
    pub(super) continue_by: Option<Instant>,
    pub(super) upload: Upload,
    pub(super) idle_pool: IdlePool,
}

/// The time for an answer to begin.
struct HeadTimeout {
    until: Instant,
    /// What says so.
    limited_by: &'static str,
    /// It was over when the server was last read from. What had come by then is looked at once, as this process may have
    /// been stopped; who says something without end is not waited for.
    is_over: bool,
}

impl ProxyExchange {
    /// Sends the request, and reads the head of the answer.
    pub(super) fn send_request(&mut self, req: &mut Request<'_>) -> Result<Received, Failure> {
        let mut head_timeout = None;
        loop {
            if let Some(until) = self.continue_by
                && !self.has_early_response(req, until)?
            {
                self.send_continue(req);
            }
            // Also behind an interim response: the server waits for the rest before it says more.
            if self.continue_by.is_none() && !self.is_sent() {
                let before = self.conn.bytes_sent;
                request::send(req, &mut self.upload, &mut self.conn, &self.options)?;
                if self.conn.bytes_sent > before {
                    head_timeout = None;
                }
            }
            let head_timeout = head_timeout.get_or_insert_with(|| self.head_timeout(req));
            let Some(received) = self.head(req, head_timeout)? else { continue };
            match received.status {
                StatusCode::SWITCHING_PROTOCOLS => return Ok(received),
                StatusCode::CONTINUE => self.send_continue(req),
                status if status.is_informational() => {
                    // A client that has gone is noticed soon enough.
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

    /// The response that passes on the answer, with what follows its head.
    pub(super) fn relay_response(
        mut self,
        req: &mut Request<'_>,
        received: Received,
    ) -> Result<Response, Failure> {
        if received.status == StatusCode::SWITCHING_PROTOCOLS {
            return self.upgrade(req, received);
        }
        let Received { status, fields, length, keep_alive } = received;
        let required = required_upgrade(status, &fields, &self.options);
        let response = Response::new(status);
        let is_head = *req.method() == Method::HEAD;
        // An early refusal is no reason to take the rest of the body, nor is an answer without leave to send it.
        let wants_rest = !self.is_sent() && status.as_u16() < 400 && self.continue_by.is_none();
        if is_head && wants_rest {
            self.send_rest(req)?;
        }
        if is_head || length == Some(0) && !wants_rest {
            let response = if is_head { with_content_length(response, &fields) } else { response };
            if keep_alive && self.is_sent() {
                self.idle_pool.put_back(self.conn);
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

    /// Sends the head. True: the server has something to say to it by then.
    fn has_early_response(&mut self, req: &Request<'_>, until: Instant) -> Result<bool, Failure> {
        let pushed = self.conn.send_output(self.options.idle_timeout, from_now(time_left(req)));
        pushed
            .and_then(|_| self.conn.wait_for_input(until))
            .map_err(|error| Failure::of(error, "idle_timeout"))
    }

    /// Not left to whoever reads the body first: behind the head of an answer, which may be there already, nobody tells the
    /// client any more.
    fn send_continue(&mut self, req: &mut Request<'_>) {
        if self.continue_by.take().is_some() {
            // A client that has gone is noticed soon enough.
            let _ = req.interim(StatusCode::CONTINUE, &[]);
        }
    }

    /// The whole request is sent.
    fn is_sent(&self) -> bool {
        self.upload.is_whole() && self.conn.is_sent()
    }

    /// None: the server has said a part of it, and the rest of the request is still to be sent.
    fn head(
        &mut self,
        req: &Request<'_>,
        head_timeout: &mut HeadTimeout,
    ) -> Result<Option<Received>, Failure> {
        loop {
            let conn = &mut self.conn;
            let given = &conn.input[conn.at..];
            conn.examined = 0;
            if let Some((used, received)) =
                conn.reader.read_head(given, req.method(), &self.options.limits)?
            {
                conn.at += used;
                return Ok(Some(received));
            }
            let limited_by = head_timeout.limited_by;
            conn.examined = given.len();
            if !self.is_sent() && !self.conn.has_input().map_err(|error| Failure::of(error, limited_by))? {
                return Ok(None);
            }
            if head_timeout.is_over {
                return Err(Failure::Timeout(limited_by));
            }
            let (now, until) = (Instant::now(), head_timeout.until);
            head_timeout.is_over = now >= until;
            match self.conn.fill(until.min(now + CHECK_INTERVAL)) {
                Ok(0) => return Err(Failure::Closed),
                Ok(_) => {}
                Err(error) if is_timed_out(&error) && Instant::now() < until => {
                    if req.client_gone() {
                        return Err(Failure::Request(StatusCode::BAD_REQUEST, "the client has gone"));
                    }
                }
                Err(error) => return Err(Failure::of(error, limited_by)),
            }
        }
    }

    /// The server has answered to HEAD, and may go on to read. No client waits for that answer before it sends the rest.
    fn send_rest(&mut self, req: &mut Request<'_>) -> Result<(), Failure> {
        match request::send(req, &mut self.upload, &mut self.conn, &self.options) {
            Err(failure @ Failure::Client(_)) => Err(failure),
            // The answer stands, whatever the server does behind it.
            _ => Ok(()),
        }
    }

    /// The server answers while the client still sends: each is given what the other says. Who sends more than the limit
    /// allows is cut off, as it is too late for a status. Once the answer `is_whole`, the server
    /// gets the rest until it ends its side, or takes nothing more: neither is a fault of the answer.
    fn relay_both(&mut self, out: &mut BodyWriter<'_>, mut is_whole: bool) -> io::Result<()> {
        let (mut part, mut wait) = ([0; PART_BYTES], POLL_MIN);
        // While nothing is sent, what is broken can still be told.
        is_whole = is_whole || self.relay_available(out)?;
        // The client may wait for the head, also where nothing follows it.
        out.flush()?;
        while !self.is_sent() {
            if !is_whole && self.relay_available(out)? {
                is_whole = true;
                // Its end does not wait for a server that takes no more, nor for a client that never pauses.
                out.flush()?;
            }
            match self.accepts_more(is_whole) {
                Ok(false) | Err(_) if is_whole => return Ok(()),
                Ok(true) if !self.upload.is_whole() => {
                    if !out.request_comes_within(wait)? {
                        // It may wait for the end of the answer before it ends its own part.
                        if is_whole && wait == POLL_MAX {
                            return Ok(());
                        }
                        wait = next_poll_time(wait);
                        continue;
                    }
                    let count = out.read_request(&mut part)?;
                    self.upload.put(&mut self.conn, &part[..count]);
                    wait = POLL_MIN;
                }
                pushed => drop(pushed?),
            }
        }
        Ok(())
    }

    /// Sends what is to be sent. False: the server rather says something, and behind a whole answer that is its end.
    fn accepts_more(&mut self, is_whole: bool) -> io::Result<bool> {
        Ok(self.conn.send_output(self.options.idle_timeout, from_now(Duration::MAX))?
            && !(is_whole && self.conn.has_input()?))
    }

    /// Passes on what has come already. True: the body is over.
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

    /// Passes on what is left of the answer.
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
        let trailers = self.conn.reader.trailers();
        if !trailers.is_empty() {
            // Those that may not be sent on are left out.
            let _ = out.trailers(trailers);
        }
        if keep_alive && self.is_sent() {
            self.idle_pool.put_back(self.conn);
        }
        Ok(())
    }

    /// Passes on what is there; reads once, until then at the latest, if nothing is. True: the body is over. What is timed out is the
    /// server.
    fn step(&mut self, out: &mut BodyWriter<'_>, until: Instant) -> io::Result<bool> {
        let (conn, limits) = (&mut self.conn, &self.options.limits);
        let client = |error: io::Error| match is_timed_out(&error) {
            true => io::Error::new(io::ErrorKind::BrokenPipe, "the client takes nothing"),
            false => error,
        };
        loop {
            let read = conn.reader.read_body(&conn.input[conn.at..], limits);
            let (used, event) = read.map_err(|fault| broken(&self.server, fault))?;
            if let BodyEvent::Data { start, len } = event {
                out.write_all(&conn.input[conn.at + start..][..len]).map_err(client)?;
            }
            conn.at += used;
            match event {
                BodyEvent::Data { .. } => {}
                BodyEvent::End => return Ok(true),
                BodyEvent::NeedMore => break,
            }
        }
        conn.examined = conn.unused().len();
        // What came with one read goes out with one write, and nothing waits for more of it.
        out.flush().map_err(client)?;
        if conn.fill(until)? == 0 {
            conn.reader
                .end()
                .map_err(|fault: ResponseFault| io::Error::new(io::ErrorKind::UnexpectedEof, fault))?;
            return Ok(true);
        }
        Ok(false)
    }

    /// The server speaks another protocol from here on, and so do we.
    fn upgrade(self, req: &Request<'_>, received: Received) -> Result<Response, Failure> {
        let asked = request::requested_upgrade(req, &self.options).filter(|_| self.is_sent());
        let mut given = received.fields.iter().filter(|(name, _)| name == header::UPGRADE);
        let given = given.find(|(_, given)| {
            asked.is_some_and(|asked| given.as_bytes().eq_ignore_ascii_case(asked.as_bytes()))
        });
        let Some((_, protocol)) = given.cloned() else {
            return Err(Failure::UnexpectedUpgrade);
        };
        let write_timeout = self.options.idle_timeout;
        let response = Response::upgrade(protocol, move |line| tunnel::run(line, self.conn, write_timeout));
        Ok(with_fields(response, received.fields, None))
    }
}

/// What is not framed as it should be; where nothing of the answer was sent yet, the client is told whose fault that is.
fn broken(server: &str, fault: ResponseFault) -> io::Error {
    warn(server, fault);
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

/// What a 426 requires (RFC 9110 section 15.5.22), as far as a client can have it by way of this proxy.
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

/// The elements of all lines of a field that is a list.
fn listed<'f>(
    fields: &'f [(HeaderName, HeaderValue)],
    wanted: &'f HeaderName,
) -> impl Iterator<Item = &'f [u8]> {
    let lines = fields.iter().filter(move |(name, _)| name == wanted);
    lines.flat_map(|(_, value)| value.as_bytes().split(|&byte| byte == b',')).map(<[u8]>::trim_ascii)
}

/// The answer to HEAD, with the length that GET would have given, if that is known (RFC 9110 section 8.6).
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

/// What is for the client, and not for this connection alone. How it is framed is ours to say.
fn end_to_end(fields: Vec<(HeaderName, HeaderValue)>) -> Vec<(HeaderName, HeaderValue)> {
    let named: Vec<Vec<u8>> = listed(&fields, &header::CONNECTION).map(<[u8]>::to_ascii_lowercase).collect();
    let stays = |name: &HeaderName| {
        CONNECTION_FIELDS.contains(&name.as_str())
            || *name == header::CONTENT_LENGTH
            || named.iter().any(|option| option == name.as_str().as_bytes())
    };
    fields.into_iter().filter(|(name, _)| !stays(name)).collect()
}
