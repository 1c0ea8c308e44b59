//! One TLS session of a server. Nothing else in the library calls the unbuffered API of rustls.
//!
//! The session has no buffers of its own. The caller gives records and gets plaintext, and the other way round.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{HandshakeKind, ServerConfig};

use super::info::TlsInfo;
use super::scratch::Output;

/// Largest record: header, plaintext, and what the cipher adds (RFC 5246 section 6.2.3, RFC 8446 section 5.2).
pub(super) const RECORD_BYTES_MAX: usize = 5 + (16 << 10) + 2048;
/// Plaintext of a full record.
pub(super) const PLAIN_BYTES_MAX: usize = 16 << 10;
/// Bytes that a record is longer than its plaintext, at most.
const OVERHEAD_BYTES_MAX: usize = 64;

/// What rustls says if no certificate has the name.
const NO_CERTIFICATE: &str = "no server certificate chain resolved";

/// What became of the bytes that were fed.
#[derive(Debug, Default)]
pub(super) struct Fed {
    /// Bytes at the start that are done. The rest belongs to a record or a message that is not complete, and comes
    /// again in front of the next bytes.
    pub(super) used: usize,
    /// The peer sends nothing more, and has said so.
    pub(super) peer_closed: bool,
    /// The session is over. An alert for the peer is in the output.
    pub(super) error: Option<rustls::Error>,
}

pub(super) struct Session {
    conn: UnbufferedServerConnection,
    /// Whether it is over because of an error. If it were asked again, it would panic over a second alert.
    has_failed: bool,
    /// Whether our side has ended. Errors of the peer are then found in builds with debug assertions by a panic, because
    /// there is no alert after an end.
    has_closed: bool,
}

impl Session {
    pub(super) fn new(config: Arc<ServerConfig>) -> Result<Session, rustls::Error> {
        UnbufferedServerConnection::new(config).map(|conn| Session {
            conn,
            has_failed: false,
            has_closed: false,
        })
    }

    /// Processes all complete records in `incoming`, which is decrypted in place. Plaintext is appended to `plain`, and
    /// records for the peer to `out`.
    pub(super) fn feed(&mut self, incoming: &mut [u8], plain: &mut Vec<u8>, out: &mut Vec<u8>) -> Fed {
        let failed =
            |why: &str| Fed { error: Some(rustls::Error::General(why.to_owned())), ..Fed::default() };
        if self.has_failed {
            return failed("the session has failed before");
        }
        if self.has_closed && cfg!(debug_assertions) {
            return catch_unwind(AssertUnwindSafe(|| self.process(incoming, plain, out))).unwrap_or_else(
                |_| {
                    self.has_failed = true;
                    failed("the peer has sent an invalid record after our end")
                },
            );
        }
        self.process(incoming, plain, out)
    }

    fn process(&mut self, incoming: &mut [u8], plain: &mut Vec<u8>, out: &mut Vec<u8>) -> Fed {
        let mut fed = Fed::default();
        loop {
            let UnbufferedStatus { discard, state } =
                self.conn.process_tls_records(&mut incoming[fed.used..]);
            let mut done = discard;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        match record {
                            Ok(record) => {
                                plain.extend_from_slice(record.payload);
                                done += record.discard;
                            }
                            Err(error) => {
                                fed.error = Some(error);
                                break;
                            }
                        }
                    }
                }
                // Early data is never accepted, so no record comes.
                Ok(ConnectionState::ReadEarlyData(mut early)) => while early.next_record().is_some() {},
                Ok(ConnectionState::EncodeTlsData(mut data)) => append(out, |space| data.encode(space)),
                Ok(ConnectionState::TransmitTlsData(sent)) => sent.done(),
                Ok(ConnectionState::PeerClosed) => fed.peer_closed = true,
                Ok(_) => {
                    fed.used += done;
                    return fed;
                }
                Err(error) => fed.error = Some(error),
            }
            fed.used = (fed.used + done).min(incoming.len());
            if fed.error.is_some() {
                self.has_failed = true;
                self.take_alert(&mut incoming[fed.used..], out);
                if matches!(&fed.error, Some(rustls::Error::General(why)) if why == NO_CERTIFICATE) {
                    name_is_unknown(out);
                }
                return fed;
            }
        }
    }

    /// Takes the alert about an error. After the last record in the queue, the session would panic.
    #[cold]
    fn take_alert(&mut self, rest: &mut [u8], out: &mut Vec<u8>) {
        while self.conn.wants_write() {
            let Ok(ConnectionState::EncodeTlsData(mut data)) = self.conn.process_tls_records(rest).state
            else {
                return;
            };
            append(out, |space| data.encode(space));
        }
    }

    /// Appends a record with `plain`, which fits in one. If the peer wants new keys, a record about that comes first.
    /// `rest` is what [`feed`](Session::feed) has left.
    pub(super) fn seal(
        &mut self,
        plain: &[u8],
        rest: &mut [u8],
        out: &mut Output,
    ) -> Result<(), EncryptError> {
        debug_assert!(plain.len() <= PLAIN_BYTES_MAX);
        let mut space = plain.len() + 2 * OVERHEAD_BYTES_MAX;
        loop {
            match self.write(rest, |traffic, space| traffic.encrypt(plain, space), out.space(space)) {
                Ok(count) => {
                    out.advance(count);
                    return Ok(());
                }
                Err(EncryptError::InsufficientSize(wanted)) if wanted.required_size > space => {
                    space = wanted.required_size;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Appends the alert that ends our side in order.
    pub(super) fn close(&mut self, rest: &mut [u8], out: &mut Vec<u8>) {
        self.has_closed = true;
        let start = out.len();
        let mut space = 256;
        loop {
            out.resize(start + space, 0);
            match self.write(rest, |traffic, space| traffic.queue_close_notify(space), &mut out[start..]) {
                Err(EncryptError::InsufficientSize(wanted)) if wanted.required_size > space => {
                    space = wanted.required_size;
                }
                written => return out.truncate(start + written.unwrap_or(0)),
            }
        }
    }

    /// The session remembers where in `rest` the next record begins, so it must be there.
    fn write(
        &mut self,
        rest: &mut [u8],
        act: impl FnOnce(
            &mut rustls::unbuffered::WriteTraffic<'_, rustls::server::ServerConnectionData>,
            &mut [u8],
        ) -> Result<usize, EncryptError>,
        space: &mut [u8],
    ) -> Result<usize, EncryptError> {
        if self.has_failed {
            return Err(EncryptError::EncryptExhausted);
        }
        // Without further input, the session is in one of these states whenever it may send.
        match self.conn.process_tls_records(rest).state {
            Ok(ConnectionState::WriteTraffic(mut traffic)) => act(&mut traffic, space),
            Ok(ConnectionState::TransmitTlsData(mut sent)) => match sent.may_encrypt_app_data() {
                Some(mut traffic) => act(&mut traffic, space),
                None => Err(EncryptError::EncryptExhausted),
            },
            _ => Err(EncryptError::EncryptExhausted),
        }
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.conn.is_handshaking()
    }

    /// Returns the kind of a handshake that has ended.
    pub(super) fn kind(&self) -> HandshakeKind {
        self.conn.handshake_kind().unwrap_or(HandshakeKind::Full)
    }

    /// Returns the facts of a session whose handshake has ended.
    pub(super) fn info(&self, server_name: Option<Box<str>>) -> TlsInfo {
        TlsInfo::new(
            self.conn.protocol_version(),
            self.conn.negotiated_cipher_suite().map(|suite| suite.suite()),
            server_name,
            self.conn.alpn_protocol(),
            self.conn.handshake_kind() == Some(HandshakeKind::Resumed),
            self.conn.peer_certificates(),
        )
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

/// Turns `access_denied`, which rustls sends if no certificate has the name, into `unrecognized_name` (RFC 6066 section 3).
/// The alert is the last record, and in clear, because the server has sent no key.
#[cold]
fn name_is_unknown(out: &mut [u8]) {
    const FATAL: u8 = 2;
    if let [.., 0, 2, FATAL, description @ 49] = out {
        *description = 112;
    }
}

fn append(out: &mut Vec<u8>, mut encode: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>) {
    let start = out.len();
    let written = match encode(&mut []) {
        Err(EncodeError::InsufficientSize(wanted)) => {
            out.resize(start + wanted.required_size, 0);
            encode(&mut out[start..]).unwrap_or(0)
        }
        written => written.unwrap_or(0),
    };
    out.truncate(start + written);
}

#[cfg(test)]
#[path = "session/tests.rs"]
mod tests;
