//! Reads and writes the frames of an HTTP/2 connection.

mod body;
mod budget;
mod fault;
mod frame;
mod priority;
mod response;
mod settings;
mod window;
mod write;

pub use body::ExpectedBody;
pub use budget::Budget;
pub use fault::{ErrorCode, Http2Fault, Violation};
pub use frame::Frame;
pub use priority::Priority;
pub use response::Http2Response;
pub use settings::{Http2Settings, PeerSettings};
pub use window::Window;

use crate::head::Head;
use crate::limits::Limits;

/// What a client sends first (RFC 9113 §3.4).
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// One connection's frames. It holds no bytes except for the dynamic table, and for a field block that is cut into
/// frames. Streams are the caller's: their states, windows and numbers.
#[derive(Debug)]
pub struct Http2 {
    settings: Http2Settings,
    peer: PeerSettings,
    /// The last stream that the peer has opened.
    last: u32,
    resets_table: bool,
}

impl Http2 {
    /// Returns the server's end of a connection. It expects the preface of the client.
    pub fn server(settings: &Http2Settings) -> Http2 {
        Http2 { settings: *settings, peer: PeerSettings::default(), last: 0, resets_table: false }
    }

    /// Whether `bytes`, the first of a connection, are the preface of HTTP/2. None if there are too few to tell.
    pub fn is_preface(bytes: &[u8]) -> Option<bool> {
        let len = bytes.len().min(PREFACE.len());
        match bytes[..len] == PREFACE[..len] {
            true if len < PREFACE.len() => None,
            is_preface => Some(is_preface),
        }
    }

    /// Maximum number of bytes that [`read`](Http2::read) may need at once: a frame with its header.
    pub const BYTES_AT_ONCE_MAX: usize = frame::HEADER_BYTES + frame::PAYLOAD_BYTES_MAX;

    /// Looks at the front of `bytes`, the unused bytes of the connection: at most one frame, or the next part of a DATA
    /// frame. Returns how many bytes were used. What was read does not depend on how the bytes arrive, except that the
    /// content of a DATA frame comes in other parts.
    ///
    /// A field block is decoded once it is whole. `head` and `text` are overwritten then, and only then. The spans of
    /// `head` point into `text`.
    ///
    /// # Errors
    /// The rule that ends the connection. The fault is permanent: every later call returns it. Faults that end a stream
    /// are [`Frame::StreamError`].
    pub fn read(
        &mut self,
        _bytes: &[u8],
        _limits: &Limits,
        _head: &mut Head,
        _text: &mut Vec<u8>,
    ) -> Result<(usize, Frame), Http2Fault> {
        Ok((0, Frame::NeedMore))
    }

    /// A field block has begun and is not whole: it counts as a head that is being read.
    pub fn is_in_block(&self) -> bool {
        false
    }

    /// Returns the last stream that the peer has opened. GOAWAY needs it.
    pub fn last_stream(&self) -> u32 {
        self.last
    }

    /// Returns the settings of the peer.
    pub fn peer(&self) -> &PeerSettings {
        &self.peer
    }

    pub(crate) fn resets_table(&self) -> bool {
        self.resets_table
    }

    /// Appends what this end sends first: at a server, its SETTINGS.
    pub fn write_preface(&self, out: &mut Vec<u8>) {
        self.settings.write(out);
    }
}
