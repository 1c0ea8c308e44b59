//! Responses that continue after their handler: with bytes from other threads, or with another protocol.

use http::{Method, StatusCode, header};
use weftwork_wire::{After, BodyLength, Misuse};

use super::{ConnExchange, head_of, log_client};
use crate::conn::feed_body::FeedBody;
use crate::conn::receiver::Receiver;
use crate::conn::{PendingBody, Phase};
use crate::message::exchange::Exchange;
use crate::message::{IntoResponse, LongLived, Payload, Problem, Response};
use crate::transport::Tick;

/// Refuses a CONNECT that the handler did not check. After a 2xx, the client would use the connection as a tunnel, and
/// take this server for an open proxy (RFC 9110 section 9.3.6). The same holds for an extended one (RFC 8441), which has become a
/// GET. Returns whether the response was replaced.
#[cold]
pub(super) fn refuse_without_tunnel(response: &mut Response, is_stream: bool, is_extended: bool) -> bool {
    // For a later response, this check comes again.
    if response.is_to_come()
        || matches!(&response.payload, Payload::LongLived(long_lived) if long_lived.is_other_protocol())
    {
        return false;
    }
    let is_refused = response.status.is_success();
    if is_refused {
        let detail = match is_extended {
            true => "the requested protocol is not spoken here",
            false => "this server opens no tunnels",
        };
        let problem = Problem::new(StatusCode::NOT_IMPLEMENTED).detail(detail);
        *response = problem.into_response();
    }
    // Bytes that the client has sent by now may belong to the tunnel, and are not a request.
    response.close |= !is_stream;
    is_refused
}

impl ConnExchange<'_> {
    /// Writes the head, and prepares the connection for what follows.
    #[inline(never)]
    pub(super) fn last(&mut self, response: &mut Response, long_lived: LongLived, now: Tick) {
        let long_lived = match long_lived {
            LongLived::Deferred(later) => {
                let (id, moment) = (self.id.take(), self.wait.moment());
                let summary = self.left.take().unwrap_or_else(|| self.conn.left_of_request(id));
                return self.conn.respond_later(later, std::mem::take(response), summary, moment, self.cx);
            }
            long_lived => long_lived,
        };
        if long_lived.is_other_protocol() && !self.conn.http.request_is_read() {
            return self.refuse_body_before_protocol(now);
        }
        let wants_trailers = matches!(long_lived, LongLived::Feed(_)) && self.wants_trailers();
        let begun = match long_lived {
            LongLived::Feed(_) | LongLived::Deferred(_) => {
                if self.conn.owned_body.is_some() {
                    self.conn.say_continue();
                }
                self.write_head(response, BodyLength::Unknown, now)
            }
            LongLived::Upgrade(_) | LongLived::FeedUpgrade(..) => self.switch(response, now),
        };
        if let Err(misuse) = begun {
            let after = self.fail(&misuse, Response::default()).unwrap_or(After::Close);
            self.conn.phase = Phase::Send(after);
            return;
        }
        self.conn.guard_end();
        if long_lived.is_other_protocol() {
            self.conn.begin_tunnel();
        }
        if long_lived.is_other_protocol() && self.conn.observed.is_some() {
            self.conn.note_response_written();
        }
        match long_lived {
            LongLived::Upgrade(take) => self.conn.leave_to(PendingBody::Upgrade(take)),
            LongLived::FeedUpgrade(feed, mut receive, idle_policy) => {
                let receiver =
                    receive.take().map(|handler| Box::new(Receiver::new(handler, idle_policy, now)));
                let fed = FeedBody::new(feed, receiver);
                self.conn.feed_from(fed, now, self.cx)
            }
            LongLived::Feed(feed) if self.conn.http.sends_body() => {
                let has_length = response.fields.iter().any(|(name, _)| *name == header::CONTENT_LENGTH);
                let request = (has_length || feed.has_source())
                    .then(|| format!("{}{}", self.target(), self.id_for_log()).into());
                let fed = FeedBody::of_response(feed, wants_trailers, request);
                self.conn.feed_from(fed, now, self.cx)
            }
            LongLived::Feed(_) => self.conn.phase = Phase::Send(self.finish().unwrap_or(After::Close)),
            LongLived::Deferred(_) => {}
        }
    }

    /// The rest of the body would be the first bytes for the other protocol.
    #[cold]
    fn refuse_body_before_protocol(&mut self, now: Tick) {
        let detail = "a request cannot be upgraded before its body was read";
        let (line, id) = (self.target(), self.id_for_log());
        log_client(self.cx, format_args!("{detail}, at {line}{id}"));
        let refusal = Problem::new(StatusCode::BAD_REQUEST).detail(detail).into_response();
        let refusal = self.in_shape(refusal);
        let mut refusal = self.last_of(refusal);
        let mut payload = std::mem::replace(&mut refusal.payload, Payload::Empty);
        let after = self.whole(&refusal, &mut payload, now).unwrap_or(After::Close);
        self.conn.phase = Phase::Send(after);
    }

    /// Returns the head after which another protocol begins: 101, or any 2xx to CONNECT.
    fn switch(&mut self, response: &Response, now: Tick) -> Result<(), Misuse> {
        if response.status == StatusCode::SWITCHING_PROTOCOLS {
            let date = self.dates.at(now);
            let head = head_of(response, BodyLength::Exact(0));
            // A stream of HTTP/2 has no 101 (RFC 8441 section 5).
            let status = if self.conn.is_stream() { StatusCode::OK } else { response.status };
            self.conn.note_status(status);
            let buffers = &mut **self.conn.buffers.get_or_insert_default();
            // If the response was sent later, the buffers hold no request.
            let (request, bytes) = match self.left.as_ref().and_then(|left| left.upgrade.as_deref()) {
                Some((head, bytes)) => (head, &bytes[..]),
                None => (&buffers.head, &buffers.input[buffers.start..]),
            };
            return self.conn.http.write_switch(&head, request, bytes, date, &mut buffers.output);
        }
        if response.status.is_success() && self.head().0.method == Method::CONNECT {
            return self.write_head(response, BodyLength::Exact(0), now);
        }
        Err(Misuse::UpgradeNotPossible)
    }
}
