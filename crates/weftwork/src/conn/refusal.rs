//! The answers that the connection gives by itself: to malformed requests, late ones, and too many.

use http::{HeaderName, HeaderValue, StatusCode, header};
use weftwork_wire::{After, BodyLength, Fault, ProxyFault, ResponseHead};

use super::{Conn, Phase};
use crate::transport::context::Context;
use crate::transport::counters::Counters;
use crate::transport::{Pool, Tick};

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
/// When a client that was turned away may come again, in seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

impl Conn {
    #[cold]
    pub(super) fn refuse_fault(&mut self, fault: Fault, cx: &Context) {
        Counters::count(&cx.counters.faults);
        let text = format!("{fault} ({})\n", fault.rule());
        log::info!("refused a request of {}: {}", Peer(self), text.trim_end());
        self.refuse(fault.status(), &text, &[], cx);
    }

    #[cold]
    pub(super) fn refuse_proxy_header(&mut self, fault: ProxyFault, cx: &Context) {
        Counters::count(&cx.counters.faults);
        let limit = cx.settings.proxy_header_bytes_max;
        let text = match fault {
            ProxyFault::TooLong => format!("{fault} ({limit})\n"),
            _ => format!("{fault} (proxy_protocol)\n"),
        };
        log::info!("refused a connection of {}: {}", Peer(self), text.trim_end());
        self.refuse(StatusCode::BAD_REQUEST, &text, &[], cx);
    }

    /// It came to a listener that expects the PROXY protocol, and is not one of those who may speak it.
    #[cold]
    pub(super) fn refuse_stranger(&mut self, cx: &Context) {
        Counters::count(&cx.counters.faults);
        let trusted = &cx.settings.trusted_proxies;
        log::info!("refused a connection of {}: it is not in trusted_proxies ({trusted})", Peer(self));
        let text = "only proxies may connect here, and this is none of them (trusted_proxies)\n";
        self.refuse(StatusCode::FORBIDDEN, text, &[], cx);
    }

    #[cold]
    pub(super) fn refuse_timeout(&mut self, cx: &Context) {
        Counters::count(&cx.counters.timeouts);
        let text = format!("the request did not come in time ({})\n", self.pace.what.knob());
        log::info!("gave up on a request of {}: {}", Peer(self), text.trim_end());
        self.refuse(StatusCode::REQUEST_TIMEOUT, &text, &[], cx);
    }

    /// Instead of a call of the handler: every thread is in use and the queue is full.
    #[cold]
    pub(crate) fn refuse_overload(&mut self, cx: &Context) {
        Counters::count(&cx.counters.shed);
        if self.is_taken_over() {
            // It has its answer already.
            self.phase = Phase::Done;
            return;
        }
        let text = "all threads are busy and too many requests wait for one (threads_max, queue_max)\n";
        let fields = [(header::RETRY_AFTER, RETRY_AFTER)];
        self.refuse(StatusCode::SERVICE_UNAVAILABLE, text, &fields, cx);
    }

    /// Instead of a call of the handler: it waited for a thread until nobody waited for it.
    #[cold]
    pub(super) fn refuse_abandoned(&mut self, is_late: bool, cx: &Context) {
        Counters::count(&cx.counters.abandoned);
        let text = match is_late {
            true => format!(
                "the request waited for a thread for too long (request_timeout: {:?})\n",
                cx.settings.request_timeout
            ),
            false => "the client had ended its side before there was a thread for its request\n".to_owned(),
        };
        log::info!("did not start a request of {}: {}", Peer(self), text.trim_end());
        let fields = [(header::RETRY_AFTER, RETRY_AFTER)];
        self.refuse(StatusCode::SERVICE_UNAVAILABLE, &text, &fields, cx);
    }

    /// Instead of reading anything: too many connections are accepted already.
    pub(crate) fn refuse_at_door(&mut self, cx: &Context) {
        Counters::count(&cx.counters.shed);
        let text = "too many connections are being served (accepted_max)\n";
        let fields = [(header::RETRY_AFTER, RETRY_AFTER)];
        self.refuse(StatusCode::SERVICE_UNAVAILABLE, text, &fields, cx);
    }

    /// Instead of reading anything: there is no descriptor for it, but the one that was kept for this.
    #[cold]
    pub(crate) fn refuse_for_want(&mut self, cx: &Context) {
        Counters::count(&cx.counters.shed);
        let text =
            "the server has no descriptors left (RLIMIT_NOFILE bounds them, connections_max their use)\n";
        let fields = [(header::RETRY_AFTER, RETRY_AFTER)];
        self.refuse(StatusCode::SERVICE_UNAVAILABLE, text, &fields, cx);
    }

    /// Sends a refusal as far as it can be sent at once, and ends: there is nobody to wait for the peer. What has
    /// come of its request is read, as it would turn the end into a reset; what is on its way still may.
    #[cold]
    pub(crate) fn send_off(mut self: Box<Conn>, now: Tick) {
        // A peer that has gone needs no answer.
        let _ = self.flush(now);
        self.stream.shutdown_write();
        let _ = self.fill(now, &mut Pool::default());
    }

    /// Whatever the peer still sends is never read as a request.
    fn refuse(&mut self, status: StatusCode, text: &str, fields: &[(HeaderName, HeaderValue)], cx: &Context) {
        let head = ResponseHead {
            status,
            content_type: Some(&TEXT),
            fields,
            length: BodyLength::Exact(text.len() as u64),
            close: true,
        };
        let output = &mut self.buffers.get_or_insert_default().output;
        self.http.close_after();
        let written = (self.http.write_head(&head, &cx.date(), output))
            .and_then(|()| self.http.write_body(text.as_bytes(), output))
            .and_then(|()| self.http.finish(&[], output));
        if let Err(misuse) = written {
            log::error!("a refusal could not be written: {misuse}");
        }
        self.phase = Phase::Send(After::Linger);
    }
}

/// A peer's address for a log line.
struct Peer<'a>(&'a Conn);

impl std::fmt::Display for Peer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.0.source(), self.0.peer) {
            (Some(source), peer) if Some(source) == peer => write!(f, "{source}"),
            (Some(source), Some(peer)) => write!(f, "{source} (by way of {peer})"),
            (Some(source), None) => write!(f, "{source} (by way of a local peer)"),
            (None, _) => f.write_str("a local peer"),
        }
    }
}
