//! Responses of the connection itself: to malformed or late requests, and under overload.

use std::fmt;

use http::{HeaderName, HeaderValue, StatusCode, header};
use weftwork_wire::{After, BodyLength, Fault, ProxyFault, ResponseHead};

use super::{Conn, Phase};
use crate::error::OneLine;
use crate::message::{PROBLEM_JSON, Problem, Response};
use crate::transport::context::Context;
use crate::transport::deadlines::TimeoutKind;
use crate::transport::events::{AbandonReason, Event, Rule, ShedReason};
use crate::transport::log_queue::{self, log_line};
use crate::transport::{BufferPool, Tick};

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
/// More bytes than kernels hold by default for an unread socket. If a client sends more, it is not waited for.
const SENT_OFF_BYTES_MAX: usize = 256 << 10;
/// `Retry-After` for a rejected client, in seconds.
pub(super) const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");
/// Text for a client if every thread is busy and the queue is full.
pub(super) const BUSY: &str = "the server is too busy for this request";

impl Conn {
    #[cold]
    pub(super) fn refuse_fault(&mut self, fault: Fault, cx: &Context) {
        cx.record(Event::Rejected(fault.into()));
        let limit = fault.setting().and_then(|setting| cx.settings.value(setting));
        let limit = limit.map(|limit| format!("; the limit is {limit}")).unwrap_or_default();
        let detail = format!("{fault} ({}{limit})", fault.rule());
        let setting = fault.setting().map(|setting| cx.settings.show(&[setting])).unwrap_or_default();
        self.observe_refusal("malformed_request", cx);
        self.refuse(fault.status(), &detail, &setting, cx);
    }

    /// Rejects a request that breaks a rule of HTTP/2.
    #[cold]
    pub(super) fn refuse_malformed(&mut self, detail: &str, cx: &Context) {
        cx.record(Event::Rejected(Rule::HTTP2));
        self.observe_refusal("malformed_request", cx);
        self.refuse(StatusCode::BAD_REQUEST, detail, "", cx);
    }

    #[cold]
    pub(super) fn refuse_proxy_header(&mut self, fault: ProxyFault, cx: &Context) {
        cx.record(Event::Rejected(Rule::PROXY_PROTOCOL));
        self.observe_refusal("proxy_header", cx);
        let note = match fault {
            ProxyFault::TooLong => cx.settings.show(&["proxy_header_bytes_max"]) + "; 107 bytes in version 1",
            _ => String::new(),
        };
        let detail = format!("{fault} (this listener expects the PROXY protocol)");
        self.refuse(StatusCode::BAD_REQUEST, &detail, &note, cx);
    }

    /// Rejects a request for a secured connection. Only a trusted gateway can say that its client has one (RFC 9110
    /// section 7.4).
    #[cold]
    pub(super) fn refuse_if_misdirected(&mut self, cx: &Context) {
        if self.is_secured() {
            return self.refuse_if_uncovered(cx);
        }
        let target =
            self.buffers.as_deref().map_or(&b""[..], |buffers| buffers.head.target.of(buffers.unread()));
        let is_https = target.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"https:"));
        if !is_https || self.source_of_requests(&cx.settings).is_trusted() {
            return;
        }
        let detail = "this connection is not secured, and the target is https (RFC 9110 §7.4)";
        self.refuse_misdirected(detail, "its address is not in trusted_proxies", cx);
    }

    pub(super) fn refuse_misdirected(&mut self, detail: &str, note: &str, cx: &Context) {
        cx.record(Event::Rejected(Rule::MISDIRECTED));
        self.observe_refusal("misdirected_request", cx);
        self.refuse(StatusCode::MISDIRECTED_REQUEST, detail, note, cx);
    }

    /// Rejects a peer that is not a trusted proxy, on a listener that expects the PROXY protocol.
    #[cold]
    pub(super) fn refuse_stranger(&mut self, cx: &Context) {
        cx.record(Event::Rejected(Rule::PROXY_PROTOCOL));
        self.observe_refusal("untrusted_proxy", cx);
        // An untrusted peer must not learn which proxies are trusted.
        let trusted = &cx.settings.trusted_proxies;
        let note = format!("its address is not in trusted_proxies ({trusted})");
        let detail = "only trusted proxies may connect to this listener";
        self.refuse(StatusCode::FORBIDDEN, detail, &note, cx);
    }

    #[cold]
    pub(super) fn refuse_timeout(&mut self, cx: &Context) {
        cx.record(Event::TimedOut(self.timer.kind));
        self.observe_refusal(
            if self.timer.kind == TimeoutKind::Body { "body_timeout" } else { "head_timeout" },
            cx,
        );
        let settings = cx.settings.show(self.timer.kind.settings());
        self.refuse(StatusCode::REQUEST_TIMEOUT, "the request did not arrive in time", &settings, cx);
    }

    /// Logs a timeout in a phase in which the client gets no response.
    #[cold]
    pub(super) fn note_timeout(&mut self, cx: &Context) {
        cx.record(Event::TimedOut(self.timer.kind));
        if self.timer.kind == TimeoutKind::Write {
            self.note_write_timeout();
        }
        let what = match self.timer.kind {
            TimeoutKind::Write => "the client stopped reading its response",
            TimeoutKind::Drain => "the rest of an unread body did not arrive in time",
            TimeoutKind::Handshake => "its TLS handshake did not end in time",
            TimeoutKind::ProxyHeader => "its PROXY header did not arrive in time",
            _ => "no request arrived in time",
        };
        let settings = cx.settings.show(self.timer.kind.settings());
        log_client(cx, format_args!("closing {}: {what} ({settings})", Peer(self)));
    }

    /// Rejects a request because every thread is busy and the queue is full.
    #[cold]
    pub(crate) fn refuse_overload(&mut self, cx: &Context) {
        self.refuse_busy(&cx.settings.show(&["threads_max", "queue_max"]), ShedReason::QueueFull, cx);
    }

    /// Rejects a request because there is no memory for the stack of its fiber.
    #[cfg(feature = "fibers")]
    #[cold]
    pub(crate) fn refuse_no_stack(&mut self, cx: &Context) {
        let setting = cx.settings.show(&["fiber_stack_bytes"]);
        let note =
            format!("no memory, or no more mappings (vm.max_map_count), for a fiber's stack; {setting}");
        self.refuse_busy(&note, ShedReason::NoStack, cx);
    }

    fn refuse_busy(&mut self, note: &str, reason: ShedReason, cx: &Context) {
        cx.record(Event::Shed(reason));
        if self.phase == Phase::Handshake {
            return self.write_alert();
        }
        if self.is_upgraded() {
            // The response was already sent.
            self.phase = Phase::Done;
            log_client(cx, format_args!("closing the upgraded connection of {}: {note}", Peer(self)));
            return;
        }
        self.observe_refusal(reason.name(), cx);
        // A provided response is not sent, because the refusal would wait behind it.
        drop(self.pending_body.take_safely());
        self.refuse_request(BUSY, note, cx);
    }

    /// Rejects a request that has waited for a thread until its time was up or its client had left.
    #[cold]
    pub(super) fn refuse_abandoned(&mut self, is_late: bool, cx: &Context) {
        let reason = if is_late { AbandonReason::RequestTimeout } else { AbandonReason::ClientGone };
        cx.record(Event::Abandoned(reason));
        self.observe_refusal(reason.name(), cx);
        if is_late {
            let setting = cx.settings.show(&["request_timeout"]);
            self.refuse_request("the request was not started in time", &setting, cx);
        } else {
            self.refuse_request(
                "the request was not started: no thread was free, and the client closed its side",
                "",
                cx,
            );
        }
    }

    /// Rejects a connection before anything is read, because too many are accepted.
    #[cold]
    pub(crate) fn refuse_over_limit(&mut self, cx: &Context) {
        self.shed(&cx.settings.show(&["accepted_max"]), ShedReason::ConnectionsFull, cx);
    }

    /// Rejects a connection before anything is read, because only the reserve descriptor is left for it.
    #[cold]
    pub(crate) fn refuse_no_fds(&mut self, cx: &Context) {
        let setting = cx.settings.show(&["connections_max"]);
        let note = format!("the server has no descriptors left (RLIMIT_NOFILE); {setting}");
        self.shed(&note, ShedReason::NoDescriptors, cx);
    }

    /// Rejects a connection that was never served, because the server has stopped. Sends what can be sent at once.
    #[cold]
    pub(crate) fn refuse_stopping(mut self: Box<Conn>, cx: &Context) {
        use Phase::{Body, Handshake, Head, Proxy, Ready};
        if self.has_streams() {
            return self.cut_off_http2(cx.clock.now(), cx);
        }
        // The connection of a request of HTTP/2 tells the client that it may send the request again.
        if self.is_stream() || !matches!(self.phase, Head | Body | Ready | Proxy | Handshake) {
            return;
        }
        let setting = cx.settings.show(&["drain_timeout"]);
        let detail = "the server is stopping";
        self.shed_with(detail, &format!("no thread was free in time; {setting}"), ShedReason::Stopping, cx);
        self.send_and_close(cx.clock.now());
    }

    fn shed(&mut self, note: &str, reason: ShedReason, cx: &Context) {
        self.shed_with("too many connections are being served", note, reason, cx);
    }

    fn shed_with(&mut self, detail: &str, note: &str, reason: ShedReason, cx: &Context) {
        cx.record(Event::Shed(reason));
        self.observe_refusal(reason.name(), cx);
        self.refuse(StatusCode::SERVICE_UNAVAILABLE, detail, note, cx);
    }

    /// Sends what can be sent of a refusal at once, and closes, because no thread can wait for the peer. Bytes of the
    /// request that have arrived are read, because otherwise the close would be a reset. Bytes on their way may still
    /// cause one.
    #[cold]
    pub(crate) fn send_and_close(mut self: Box<Conn>, now: Tick) {
        // A peer that has gone needs no response.
        let _ = self.flush(now);
        self.stream.shutdown_write();
        let mut read = 0;
        while let Ok(count @ 1..) = self.fill(now, &mut BufferPool::alone()) {
            read += count;
            if read >= SENT_OFF_BYTES_MAX {
                return;
            }
            self.buffers.get_or_insert_default().input.clear();
        }
    }

    /// Rejects a complete request without calling the handler. The client gets the format of all errors about requests.
    fn refuse_request(&mut self, detail: &str, note: &str, cx: &Context) {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        self.note_refusal(status, detail, note, cx);
        let problem = Problem::new(status).detail(detail);
        let json = problem.to_json();
        self.write_refusal(problem, &PROBLEM_JSON, &json, cx);
    }

    /// Rejects an incomplete request. The client gets `said`, and the log gets `note` as well, which names the setting.
    pub(super) fn refuse(&mut self, status: StatusCode, detail: &str, note: &str, cx: &Context) {
        self.note_refusal(status, detail, note, cx);
        self.write_refusal(Problem::new(status).detail(detail), &TEXT, &format!("{detail}\n"), cx);
    }

    fn note_refusal(&self, status: StatusCode, detail: &str, note: &str, cx: &Context) {
        let mark = if note.is_empty() { "" } else { "; " };
        let (peer, status) = (Peer(self), status.as_u16());
        match self.has_no_session() {
            false => log_client(cx, format_args!("{peer} gets {status}: {detail}{mark}{note}")),
            true => log_client(cx, format_args!("{peer} gets a TLS alert: {detail}{mark}{note}")),
        }
    }

    /// Writes a refusal: `text`, or the response that the user makes of the problem. Later bytes of the peer are never read as
    /// a request.
    pub(super) fn write_refusal(
        &mut self,
        problem: Problem,
        content_type: &HeaderValue,
        text: &str,
        cx: &Context,
    ) {
        if self.has_no_session() {
            self.note_withheld(problem.status());
            return self.write_alert();
        }
        self.http.close_after();
        let (is_busy, status) = (problem.status() == StatusCode::SERVICE_UNAVAILABLE, problem.status());
        let problem = if is_busy { problem.with_header(header::RETRY_AFTER, RETRY_AFTER) } else { problem };
        let shaped = cx.problems.as_ref().map(|shape| shape.whole(&problem, None));
        let is_written = shaped.is_some_and(|shaped| {
            let Response { status, content_type, fields, .. } = &shaped;
            let body = shaped.body().map_or(&[][..], |body| body);
            self.write_whole_refusal(*status, content_type.as_ref(), fields, body, cx)
        });
        if !is_written {
            let retry = [(header::RETRY_AFTER, RETRY_AFTER)];
            let fields = if is_busy { &retry[..] } else { &[] };
            self.write_whole_refusal(status, Some(content_type), fields, text.as_bytes(), cx);
        }
        self.phase = Phase::Send(After::Linger);
    }

    fn write_whole_refusal(
        &mut self,
        status: StatusCode,
        content_type: Option<&HeaderValue>,
        fields: &[(HeaderName, HeaderValue)],
        body: &[u8],
        cx: &Context,
    ) -> bool {
        let (length, close) = (BodyLength::Exact(body.len() as u64), !self.is_stream());
        let head = ResponseHead { status, content_type, fields, length, close };
        let output = &mut self.buffers.get_or_insert_default().output;
        let written = (self.http.write_head(&head, &cx.date(), output))
            .and_then(|()| self.http.write_body(body, output))
            .and_then(|()| self.http.finish(&[], output));
        match written {
            Ok(_) => self.note_whole(status, body.len()),
            Err(misuse) => log_line!(Error, "a refusal could not be written: {misuse}"),
        }
        written.is_ok()
    }
}

/// Logs an action of a client. Clients can act at any rate, so only a few lines a second are written.
pub(super) fn log_client(cx: &Context, line: fmt::Arguments<'_>) {
    if !log_queue::is_enabled(log::Level::Info) {
        return;
    }
    match cx.client_log.take(cx.clock.now()) {
        None => return,
        Some(0) => {}
        Some(more) => log_line!(Info, "... and {more} more lines about clients were left out"),
    }
    log_line!(Info, "{}", OneLine(line));
}

/// Address of a peer for a log line.
pub(super) struct Peer<'a>(pub(super) &'a Conn);

impl fmt::Display for Peer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.source(), self.0.peer) {
            (Some(source), peer) if Some(source) == peer => write!(f, "{source}"),
            (Some(source), Some(peer)) => write!(f, "{source} (through {peer})"),
            (Some(source), None) => write!(f, "{source} (through a local peer)"),
            (None, _) => f.write_str("a local peer"),
        }
    }
}
