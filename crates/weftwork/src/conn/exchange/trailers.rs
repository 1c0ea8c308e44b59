//! Fields after a streamed body.

use std::io;

use http::{HeaderName, HeaderValue};

use super::ConnExchange;
use crate::conn::Conn;

impl ConnExchange<'_> {
    /// Keeps the fields until the body has ended. Returns false if they cannot be sent to this client.
    pub(super) fn take_trailers(&mut self, fields: &[(HeaderName, HeaderValue)]) -> io::Result<bool> {
        self.start()?;
        let sent = self.wants_trailers() && self.conn.http.sends_chunks();
        if sent && let Some(streamed) = &mut self.streamed {
            streamed.trailers.extend_from_slice(fields);
        }
        Ok(sent)
    }

    /// Returns whether the client accepts trailers, also if only a part of its request is left.
    pub(super) fn wants_trailers(&self) -> bool {
        self.left.as_ref().map_or_else(|| self.conn.wants_trailers(), |left| left.wants_trailers)
    }
}

impl Conn {
    /// Returns whether the client has declared that it keeps trailers (RFC 9110 section 10.1.4).
    pub(in crate::conn) fn wants_trailers(&self) -> bool {
        let Some(buffers) = self.buffers.as_deref() else { return false };
        let (head, bytes) = (&buffers.head, buffers.unread());
        let lines = head.fields.iter().filter(|field| field.name.of(bytes).eq_ignore_ascii_case(b"te"));
        lines.flat_map(|field| field.value.of(bytes).split(|byte| *byte == b',')).any(|coding| {
            let name = coding.split(|byte| *byte == b';').next().unwrap_or_default();
            name.trim_ascii().eq_ignore_ascii_case(b"trailers")
        })
    }
}
