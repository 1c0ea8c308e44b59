//! The TLS handshake of a connection, before its first request. No thread waits for it.

use super::{Conn, IoWait, Phase, Step};
use crate::transport::Tick;
use crate::transport::context::Context;

impl Conn {
    /// Returns whether a handshake is in progress.
    #[inline(always)]
    pub(super) fn is_handshaking(&self) -> bool {
        cfg!(feature = "_tls") && self.phase == Phase::Handshake
    }

    /// Returns whether no byte of a handshake has arrived. A handshake that has begun is not cut by a stop: its client
    /// would take that for a failure.
    #[inline]
    pub(super) fn awaits_handshake(&self) -> bool {
        self.is_handshaking() && !self.has_begun_handshake()
    }
}

#[cfg(not(feature = "_tls"))]
impl Conn {
    pub(crate) fn begin_handshake(&mut self, _: Tick) {}

    pub(super) fn is_secured(&self) -> bool {
        false
    }

    pub(super) fn has_no_session(&self) -> bool {
        false
    }

    fn has_begun_handshake(&self) -> bool {
        false
    }

    pub(super) fn refuse_if_uncovered(&mut self, _: &Context) {}

    pub(super) fn write_alert(&mut self) {}

    pub(super) fn handshake(&mut self, _: Tick, _: &Context) -> Option<Step> {
        None
    }

    pub(crate) fn advance_handshake(&mut self, _: Tick, _: &Context) {}

    pub(super) fn run_handshake(&mut self, wait: &dyn IoWait, _: &Context) -> Tick {
        wait.now()
    }

    pub(super) fn ends_handshake(&self) -> bool {
        false
    }

    pub(super) fn leave_handshake(&mut self, _: &Context) {}
}

#[cfg(feature = "_tls")]
mod tls {
    use http::StatusCode;
    use weftwork_wire::After;

    use super::*;
    use crate::conn::http2::Role;
    use crate::conn::refusal::Peer;
    use crate::error::OneLine;
    use crate::transport::deadlines::TimeoutKind;
    use crate::transport::events::{Event, HandshakeFailure, HandshakeKind};
    use crate::transport::log_queue::{self, log_line};
    use crate::transport::tls::{Established, Handshake, HandshakeError, TlsInfo, TlsStream};

    impl Conn {
        /// Begins the handshake, if the listener wants it. Bytes behind a PROXY header belong to it.
        pub(crate) fn begin_handshake(&mut self, now: Tick) {
            let Some(tls) = self.stream.tls() else { return };
            match self.buffers.as_deref_mut() {
                None => tls.begin(&[]),
                Some(buffers) => {
                    tls.begin(buffers.unread());
                    buffers.input.clear();
                    (buffers.start, buffers.raw, buffers.payload) = (0, 0, 0..0);
                }
            }
            self.timer = self.timer.then(TimeoutKind::Handshake, now);
            self.phase = Phase::Handshake;
        }

        /// Returns whether the client and this server speak TLS.
        #[inline(always)]
        pub(in crate::conn) fn is_secured(&self) -> bool {
            self.stream.is_secured() || matches!(&self.role, Role::Stream(end) if end.session.is_some())
        }

        /// Returns what stays of the handshake.
        #[inline]
        fn session(&self) -> Option<&Established> {
            match &self.role {
                Role::Stream(end) => end.session.as_deref(),
                _ => self.stream.tls()?.established().map(|session| &**session),
            }
        }

        /// Returns the facts of the TLS session.
        #[inline]
        pub(in crate::conn) fn tls_info(&self) -> Option<&TlsInfo> {
            let info = self.session().map(Established::info);
            info.or_else(|| self.stream.info_of_test())
        }

        /// Returns whether the client has chosen HTTP/2.
        fn chose_http2(&self) -> bool {
            self.tls_info().is_some_and(TlsInfo::is_http2)
        }

        /// Returns whether a response cannot be sent, because the handshake has not ended.
        pub(in crate::conn) fn has_no_session(&self) -> bool {
            self.stream.tls().is_some_and(TlsStream::has_no_session)
        }

        /// Rejects a request that another certificate of this server covers (RFC 9110 section 15.5.20).
        pub(in crate::conn) fn refuse_if_uncovered(&mut self, cx: &Context) {
            let (Some(session), Some(buffers)) = (self.session(), self.buffers.as_deref()) else { return };
            let authority =
                buffers.head.authority.map_or(&b""[..], |authority| authority.of(buffers.unread()));
            if std::str::from_utf8(authority).is_ok_and(|authority| session.is_misdirected(authority)) {
                let detail = "another certificate of this server covers this host, or the connection was made for another one: \
                              open a new connection (RFC 9110 §15.5.20)";
                self.refuse_misdirected(detail, "", cx);
            }
        }

        #[cold]
        pub(in crate::conn) fn has_begun_handshake(&self) -> bool {
            self.stream.tls().is_some_and(TlsStream::has_begun)
        }

        /// Refuses the connection with an alert.
        #[cold]
        pub(in crate::conn) fn write_alert(&mut self) {
            let alert = self.stream.tls().map(TlsStream::refuse).unwrap_or_default();
            self.buffers.get_or_insert_default().output.extend_from_slice(alert);
            self.phase = Phase::Send(After::Linger);
        }

        #[inline(never)]
        pub(in crate::conn) fn handshake(&mut self, now: Tick, cx: &Context) -> Option<Step> {
            let state = self.stream.tls().map_or(Handshake::Done, |tls| tls.handshake());
            match state {
                Handshake::Done => {
                    // The first request may be behind the last message.
                    (self.read_ready, self.peer_ended) = (true, false);
                    self.timer = self.timer.then(TimeoutKind::Head, now);
                    self.phase = Phase::Head;
                    if self.chose_http2() {
                        self.begin_http2(now, cx);
                    }
                }
                Handshake::Advance { signs_slowly: true } => return Some(Step::Call),
                Handshake::Advance { signs_slowly: false } => return Some(Step::Handshake),
                _ if self.peer_ended => {
                    // A check of a port sends nothing.
                    if self.has_begun_handshake() {
                        let cure = "the client may not accept what it saw, or was stopped";
                        let why = "the client closed the connection";
                        self.note_failed_handshake(HandshakeFailure::Closed, why, cure, cx);
                    }
                    self.phase = Phase::Done;
                }
                Handshake::Read if self.is_over(now, cx) && !self.read_ready => self.phase = Phase::Done,
                Handshake::Read => return Some(Step::Read),
                Handshake::Write => return Some(Step::Write),
            }
            None
        }

        /// Returns whether the handshake is not to be waited for.
        fn is_over(&self, now: Tick, cx: &Context) -> bool {
            self.is_drained(now, cx) || now >= self.expires && self.awaits_handshake()
        }

        /// Processes the messages that have arrived, after [`Step::Handshake`].
        pub(crate) fn advance_handshake(&mut self, now: Tick, cx: &Context) {
            let Some(tls) = self.stream.tls() else { return };
            let advanced = tls.advance();
            // The peer cannot go on meanwhile.
            self.timer.resume(now);
            match advanced {
                Ok(None) => {}
                Ok(Some(rustls::HandshakeKind::Resumed)) => {
                    cx.record(Event::Handshaken(HandshakeKind::Resumed));
                }
                Ok(Some(_)) => cx.record(Event::Handshaken(HandshakeKind::Full)),
                Err(error) => return self.end_handshake(&error, now, cx),
            }
            if self.stream.tls().and_then(TlsStream::info).is_some_and(TlsInfo::is_challenge) {
                self.phase = Phase::Send(After::Linger);
            }
        }

        /// Does so in a call, because the signature takes long. No hand-over is made for it: the engine passes the
        /// connection to the thread and back as it does for any call, so the models of that hold here too.
        #[cold]
        pub(in crate::conn) fn run_handshake(&mut self, wait: &dyn IoWait, cx: &Context) -> Tick {
            self.advance_handshake(wait.now(), cx);
            wait.now()
        }

        #[cold]
        fn end_handshake(&mut self, error: &HandshakeError, now: Tick, cx: &Context) {
            let (reason, why, cure) = error.explain();
            self.note_failed_handshake(reason, &why, cure, cx);
            if matches!(error, HandshakeError::NotTls) {
                let detail = "this port speaks TLS, and the request is not encrypted: use https://";
                return self.refuse(StatusCode::BAD_REQUEST, detail, "", cx);
            }
            // The alert was sent, or is on its way. A reset would destroy it.
            let waits = self.end(After::Linger, now);
            debug_assert!(waits.is_none(), "a session that was not established has no end");
        }

        /// Returns whether the connection has ended within its handshake.
        #[inline]
        pub(in crate::conn) fn ends_handshake(&mut self) -> bool {
            let is_within = self.phase == Phase::Handshake;
            if is_within {
                (self.peer_ended, self.read_ready) = (true, false);
            }
            is_within
        }

        #[cold]
        pub(in crate::conn) fn leave_handshake(&mut self, cx: &Context) {
            cx.record(Event::TimedOut(TimeoutKind::Handshake));
            let settings = cx.settings.show(TimeoutKind::Handshake.settings());
            let why = format!("it did not end in time ({settings})");
            let cure = "if clients are that slow, raise the setting";
            self.note_failed_handshake(HandshakeFailure::Timeout, &why, cure, cx);
            self.phase = Phase::Done;
        }

        /// Logs at most one line a second, because clients can cause any number.
        #[cold]
        fn note_failed_handshake(&self, reason: HandshakeFailure, why: &str, cure: &str, cx: &Context) {
            cx.record(Event::HandshakeFailed(reason));
            if !log_queue::is_enabled(log::Level::Info) {
                return;
            }
            let Some(left_out) = cx.handshake_log.take(cx.clock.now()) else { return };
            let name = self.stream.tls().and_then(|tls| tls.server_name());
            let name = name.map(|name| format!(" for {name}")).unwrap_or_default();
            let left_out = match left_out {
                0 => String::new(),
                more => format!(" ({more} more failures were not logged)"),
            };
            let line = format!("a TLS handshake{name} failed: {why}. To do: {cure}");
            log_line!(Info, "{}: {}{left_out}", Peer(self), OneLine(line));
        }
    }
}
