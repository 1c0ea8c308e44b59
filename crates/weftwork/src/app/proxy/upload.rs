//! Forwards the body of a request as the client sends it.

use std::io::{self, BufRead};
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue, StatusCode};
use weftwork_wire::may_be_trailer;

use super::request::{HTTPOXY, Outgoing, describes_client, is_plainly, may_be_set};
use super::upstream::{UpstreamConn, from_now};
use super::{DEADLINE, Failure, Options, time_left};
use crate::error::Error;
use crate::message::{Request, plain_field_name};

/// Maximum bytes of a body that are kept, in case that a server of HTTP/2 does not begin the request.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Progress of a request body on its way to the server.
pub(super) struct Upload {
    in_chunks: bool,
    /// Whether the whole body was queued, including its end.
    is_whole: bool,
    /// All that was queued, if it can be queued again.
    kept: Option<Vec<u8>>,
    trailers: Vec<(HeaderName, HeaderValue)>,
}

impl Upload {
    pub(super) fn of(outgoing: &Outgoing) -> Upload {
        Upload {
            in_chunks: outgoing.length.is_none(),
            is_whole: !outgoing.has_body(),
            kept: Some(Vec::new()),
            trailers: Vec::new(),
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Queues a part of the body that is not empty.
    pub(super) fn put(&mut self, conn: &mut UpstreamConn, part: &[u8]) {
        let fits = |kept: &Vec<u8>| conn.is_http2() && kept.len() + part.len() <= KEPT_BYTES_MAX;
        self.kept = self.kept.take().filter(fits);
        if let Some(kept) = &mut self.kept {
            kept.extend_from_slice(part);
        }
        conn.put(part, self.in_chunks);
    }

    /// Queues the end of the body. `options` names fields that the proxy sets.
    pub(super) fn end(
        &mut self,
        conn: &mut UpstreamConn,
        trailers: &[(HeaderName, HeaderValue)],
        options: &Options,
    ) {
        if !self.is_whole {
            self.is_whole = true;
            self.trailers =
                trailers.iter().filter(|(name, _)| is_forwarded(name, options)).cloned().collect();
            conn.end_body(self.in_chunks, &self.trailers);
        }
    }

    /// Returns whether the request can be sent again to a server that has not begun it.
    pub(super) fn can_repeat(&self) -> bool {
        self.kept.is_some()
    }

    /// Queues what was queued before.
    pub(super) fn repeat(&self, conn: &mut UpstreamConn, outgoing: &Outgoing) {
        if let Some(kept) = self.kept.as_ref().filter(|kept| !kept.is_empty()) {
            conn.put(kept, self.in_chunks);
        }
        if self.is_whole && outgoing.has_body() {
            conn.end_body(self.in_chunks, &self.trailers);
        }
    }
}

/// Returns whether a trailer of a client is forwarded. A server may read trailers as fields of the head.
fn is_forwarded(name: &HeaderName, options: &Options) -> bool {
    let plain = plain_field_name(name.as_str().as_bytes());
    may_be_trailer(name)
        && may_be_set(&plain)
        && !describes_client(&plain)
        && ![HTTPOXY, "x-request-id", "traceparent", "tracestate"].contains(&plain.as_str())
        && !options.set_names.iter().any(|set| is_plainly(set, &plain))
}

/// First wait for the client before the proxy checks for input from the server. The wait is doubled each time,
/// up to [`POLL_MAX`].
pub(super) const POLL_MIN: Duration = Duration::from_millis(1);
/// Maximum wait. Even 10,000 clients that pause on purpose cause little load.
pub(super) const POLL_MAX: Duration = Duration::from_secs(1);

pub(super) fn next_poll_time(wait: Duration) -> Duration {
    (2 * wait).min(POLL_MAX)
}

/// Sends the queued bytes and the body as it arrives, until everything is sent or the server sends something.
pub(super) fn send(
    req: &mut Request<'_>,
    upload: &mut Upload,
    conn: &mut UpstreamConn,
    options: &Options,
) -> Result<(), Failure> {
    let end = from_now(time_left(req));
    let stuck = |error| {
        let bound = if Instant::now() >= end { DEADLINE } else { "idle_timeout" };
        Failure::of(error, bound)
    };
    let client = |error: io::Error| Failure::Client(Error::from(error));
    while conn.send_output(options.idle_timeout, end).map_err(stuck)? && !upload.is_whole {
        // The client may wait for a response to what it has sent, or for the end of the response.
        let mut wait = POLL_MIN;
        loop {
            if conn.has_input().map_err(stuck)? {
                return Ok(());
            }
            let left = end.saturating_duration_since(Instant::now());
            let comes = req.body().comes_within(wait.min(left)).map_err(|error| client(error.into()))?;
            match (comes, left.is_zero()) {
                (true, false) => break,
                // The deadline has passed, but the client was not the cause.
                (true, true) => return Err(Failure::Timeout(DEADLINE)),
                (false, true) => {
                    let why = "the request body did not arrive in time";
                    return Err(Failure::Request(StatusCode::REQUEST_TIMEOUT, why));
                }
                (false, false) => {}
            }
            wait = next_poll_time(wait);
        }
        let mut body = req.body();
        let part = body.fill_buf().map_err(client)?;
        let count = part.len();
        if count > 0 {
            upload.put(conn, part);
            body.consume(count);
        }
        // Between two sides of HTTP/2, trailers may follow a body of any length.
        let may_have_trailers =
            upload.in_chunks || (conn.is_http2() && req.version() == http::Version::HTTP_2);
        if count == 0 || (!may_have_trailers && req.body_left() == Some(0)) {
            upload.end(conn, req.trailers(), options);
        }
    }
    Ok(())
}
