//! Frames as the caller sees them, and the layout of their headers.

use http::StatusCode;

use super::fault::{ErrorCode, Http2Fault};
use super::priority::Priority;

/// What was read: see [`Http2::read`](super::Http2::read).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The bytes are too few. Call again with the same bytes and more.
    NeedMore,
    /// Bytes that mean nothing alone: the preface, a part of a field block, the padding of a frame.
    Part,
    /// A request. Its parts are in `head` and `text`.
    Head {
        /// The stream that it opens.
        stream: u32,
        /// No body follows.
        ends: bool,
        /// The value of its Priority field (RFC 9218 §5), or the default.
        priority: Priority,
    },
    /// A response, at the client's end. Its fields are in `head.fields` and `text`. After an interim response, another
    /// one follows.
    Response {
        /// The stream of the request.
        stream: u32,
        /// The status.
        status: StatusCode,
        /// No body follows.
        ends: bool,
    },
    /// Trailers, which end their stream. They are in `head.fields` and `text`. The caller checks that the stream is
    /// open: otherwise the fault is [`Violation::StreamClosed`](super::Violation::StreamClosed), which ends the connection.
    Trailers {
        /// The stream.
        stream: u32,
    },
    /// The next part of a DATA frame.
    Data {
        /// The stream.
        stream: u32,
        /// Where the content starts in the given bytes.
        start: usize,
        /// Length of the content.
        len: usize,
        /// Bytes that the frame takes from the windows of stream and connection, with its padding. The first part of a
        /// frame has all of them, and the others have 0.
        flow: u32,
        /// Bytes among `flow` that are padding. The caller can grant them again at once.
        padding: u32,
        /// The stream ends after this part.
        ends: bool,
    },
    /// WINDOW_UPDATE.
    Window {
        /// The stream, or 0 for the connection.
        stream: u32,
        /// The increment, at least 1.
        by: u32,
    },
    /// RST_STREAM. The stream was opened once.
    Reset {
        /// The stream.
        stream: u32,
        /// The reason.
        code: ErrorCode,
    },
    /// SETTINGS of the peer: see [`Http2::peer`](super::Http2::peer). The caller shifts all windows for sending, then
    /// writes [`settings_ack`](super::Http2::write_settings_ack).
    Settings {
        /// Difference of the new initial window to the last one: see [`Window::shift`](super::Window::shift).
        window_shift: i32,
    },
    /// The peer uses the settings that were written.
    SettingsAcked,
    /// PRIORITY_UPDATE (RFC 9218 §7.1). The stream may be unknown, which the caller ignores.
    Priority {
        /// The stream.
        stream: u32,
        /// Its new priority.
        priority: Priority,
    },
    /// PING. The caller writes [`ping_ack`](super::Http2::write_ping_ack).
    Ping([u8; 8]),
    /// The response to a PING.
    PingAcked([u8; 8]),
    /// GOAWAY.
    GoAway {
        /// The last stream of ours that the peer has begun.
        last: u32,
        /// The reason.
        code: ErrorCode,
    },
    /// The peer broke a rule in a way that ends one stream. The connection goes on.
    ///
    /// If the fault is about the head of a request, the stream was opened by it. `head.method` is the method, if it was
    /// read before the fault.
    StreamError {
        /// What ends, and why.
        fault: Http2Fault,
        /// The peer sends nothing more on the stream.
        ends: bool,
        /// The frame was the head of a request: the caller may answer it with [`Http2Fault::status`].
        is_request: bool,
    },
    /// A frame that the caller need not know of: PRIORITY, or one of unknown type.
    Nothing,
}

/// Types of frames.
pub(super) mod kind {
    pub(in super::super) const DATA: u8 = 0x0;
    pub(in super::super) const HEADERS: u8 = 0x1;
    pub(in super::super) const PRIORITY: u8 = 0x2;
    pub(in super::super) const RST_STREAM: u8 = 0x3;
    pub(in super::super) const SETTINGS: u8 = 0x4;
    pub(in super::super) const PUSH_PROMISE: u8 = 0x5;
    pub(in super::super) const PING: u8 = 0x6;
    pub(in super::super) const GOAWAY: u8 = 0x7;
    pub(in super::super) const WINDOW_UPDATE: u8 = 0x8;
    pub(in super::super) const CONTINUATION: u8 = 0x9;
    pub(in super::super) const PRIORITY_UPDATE: u8 = 0x10;
}

/// Flags of frames.
pub(super) mod flag {
    pub(in super::super) const ACK: u8 = 0x1;
    pub(in super::super) const END_STREAM: u8 = 0x1;
    pub(in super::super) const END_HEADERS: u8 = 0x4;
    pub(in super::super) const PADDED: u8 = 0x8;
    pub(in super::super) const PRIORITY: u8 = 0x20;
}

/// Length of the header of a frame.
pub(super) const HEADER_BYTES: usize = 9;

/// Maximum length of a payload that every peer takes, and that we take (RFC 9113 §4.2).
pub(super) const PAYLOAD_BYTES_MAX: usize = 16_384;

/// The header of a frame (RFC 9113 §4.1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) len: u32,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl Header {
    /// Reads the header at the start of `bytes`. The reserved bit is ignored.
    #[inline]
    pub(super) fn read(bytes: &[u8]) -> Option<Header> {
        let [a, b, c, kind, flags, stream @ ..] = *bytes.first_chunk::<HEADER_BYTES>()?;
        let len = u32::from_be_bytes([0, a, b, c]);
        Some(Header { len, kind, flags, stream: u32::from_be_bytes(stream) & STREAM_MAX })
    }

    #[inline]
    pub(super) fn bytes(self) -> [u8; HEADER_BYTES] {
        let [_, a, b, c] = self.len.to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, d, e, f, g]
    }

    #[inline]
    pub(super) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The last stream id. Without the reserved bit.
pub(super) const STREAM_MAX: u32 = 0x7fff_ffff;

/// Reads 32 bits at `at`. The caller has checked the length.
#[inline]
pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(word)
}
