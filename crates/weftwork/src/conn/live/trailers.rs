//! Which fields may follow a streamed body?

use std::io;

use http::{HeaderName, HeaderValue};

use super::Live;
use crate::message::exchange::Exchange;

impl Live<'_> {
    /// Keeps them until the body is over. False: they cannot be sent to this client.
    pub(super) fn take_trailers(&mut self, fields: &[(HeaderName, HeaderValue)]) -> io::Result<bool> {
        self.start()?;
        let sent = self.conn.http.sends_chunks() && self.wants_trailers();
        if sent && let Some(streamed) = &mut self.streamed {
            streamed.trailers.extend_from_slice(fields);
        }
        Ok(sent)
    }

    /// The client has said that it does not drop trailers (RFC 9110 section 10.1.4).
    fn wants_trailers(&self) -> bool {
        let (head, bytes) = self.head();
        let lines = head.fields.iter().filter(|field| field.name.of(bytes).eq_ignore_ascii_case(b"te"));
        lines.flat_map(|field| field.value.of(bytes).split(|byte| *byte == b',')).any(|coding| {
            let name = coding.split(|byte| *byte == b';').next().unwrap_or_default();
            name.trim_ascii().eq_ignore_ascii_case(b"trailers")
        })
    }
}
