//! Settings of both ends.

use super::frame::kind;
use super::write::write;

/// Numbers of settings.
mod id {
    pub(super) const TABLE_BYTES_MAX: u16 = 0x1;
    pub(super) const PUSH: u16 = 0x2;
    pub(super) const STREAMS_MAX: u16 = 0x3;
    pub(super) const WINDOW: u16 = 0x4;
    pub(super) const FRAME_BYTES_MAX: u16 = 0x5;
    pub(super) const HEAD_BYTES_MAX: u16 = 0x6;
    pub(super) const CONNECT_PROTOCOL: u16 = 0x8;
    pub(super) const NO_PRIORITY_TREE: u16 = 0x9;
}

/// Settings that an end announces (RFC 9113 §6.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2Settings {
    /// Maximum number of streams that are open at once. Default: 100, as RFC 9113 §6.5.2 recommends.
    pub streams_max: u32,
    /// Window of a new stream, in bytes. Default: 65,535.
    pub window: u32,
    /// Maximum bytes of a head, each field counted as name + value + 32. It is announced only, and
    /// [`Limits::head_bytes_max`](crate::Limits::head_bytes_max) is what counts. Default: 32 KiB.
    pub head_bytes_max: u32,
    /// Whether extended CONNECT is offered (RFC 8441). Default: true.
    pub connect_protocol: bool,
}

impl Http2Settings {
    /// Appends the SETTINGS frame of a server.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let settings = [
            (id::STREAMS_MAX, self.streams_max),
            (id::WINDOW, self.window),
            (id::HEAD_BYTES_MAX, self.head_bytes_max),
            (id::CONNECT_PROTOCOL, u32::from(self.connect_protocol)),
            // RFC 9218 §2.1: in the first SETTINGS, or never.
            (id::NO_PRIORITY_TREE, 1),
        ];
        let mut payload = [0; 6 * 5];
        for ((id, value), bytes) in settings.into_iter().zip(payload.chunks_exact_mut(6)) {
            bytes[..2].copy_from_slice(&id.to_be_bytes());
            bytes[2..].copy_from_slice(&value.to_be_bytes());
        }
        write(kind::SETTINGS, 0, 0, &payload, out);
    }
}

impl Default for Http2Settings {
    fn default() -> Self {
        Http2Settings {
            streams_max: 100,
            window: super::Window::DEFAULT,
            head_bytes_max: 32 << 10,
            connect_protocol: true,
        }
    }
}

/// Settings that the peer has announced, or their defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerSettings {
    /// Window of a new stream, in bytes.
    pub window: u32,
    /// Maximum payload of a frame.
    pub frame_bytes_max: u32,
    /// Maximum number of streams that we may have open at once.
    pub streams_max: u32,
    /// Maximum bytes of a head that the peer is willing to read.
    pub head_bytes_max: u32,
    /// The peer takes extended CONNECT (RFC 8441).
    pub connect_protocol: bool,
}

impl Default for PeerSettings {
    fn default() -> Self {
        PeerSettings {
            window: super::Window::DEFAULT,
            frame_bytes_max: super::frame::PAYLOAD_BYTES_MAX as u32,
            streams_max: u32::MAX,
            head_bytes_max: u32::MAX,
            connect_protocol: false,
        }
    }
}
