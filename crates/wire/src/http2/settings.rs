//! Settings of both ends (RFC 9113 §6.5.2).

use super::Window;
use super::fault::Violation::{self, SettingInvalid, SettingsTooMany, WindowSettingInvalid};
use super::frame::{PAYLOAD_BYTES_MAX, kind};
use super::write::write;

/// Numbers of settings.
mod id {
    pub(super) const TABLE_BYTES_MAX: u16 = 0x1;
    pub(super) const PUSH: u16 = 0x2;
    pub(super) const STREAMS_MAX: u16 = 0x3;
    pub(super) const WINDOW: u16 = 0x4;
    pub(super) const FRAME_BYTES_MAX: u16 = 0x5;
    pub(super) const HEAD_BYTES_MAX: u16 = 0x6;
    /// RFC 8441 §3
    pub(super) const CONNECT_PROTOCOL: u16 = 0x8;
    /// RFC 9218 §2.1
    pub(super) const NO_PRIORITY_TREE: u16 = 0x9;
}

/// Bytes of a setting.
const BYTES: usize = 6;
/// Maximum number of settings in a frame. There are 10 that mean anything.
const COUNT_MAX: usize = 32;

/// Settings that an end announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2Settings {
    /// Maximum number of streams that are open at once. Default: 100, as RFC 9113 §6.5.2 recommends.
    pub streams_max: u32,
    /// Window of a new stream, in bytes. Default: 65,535, as in RFC 9113.
    pub window: u32,
    /// Maximum bytes of a head, each field counted as name + value + 32. It is announced only:
    /// [`Limits::head_bytes_max`](crate::Limits::head_bytes_max) is what counts. Default: 32 KiB, as there.
    pub head_bytes_max: u32,
    /// Whether a server takes extended CONNECT (RFC 8441). Default: true, for WebSockets.
    pub connect_protocol: bool,
}

impl Http2Settings {
    /// Appends the SETTINGS frame of a server or a client.
    pub(super) fn write(&self, is_client: bool, out: &mut Vec<u8>) {
        let server = [
            (id::STREAMS_MAX, self.streams_max),
            (id::WINDOW, self.window),
            (id::HEAD_BYTES_MAX, self.head_bytes_max),
            (id::CONNECT_PROTOCOL, u32::from(self.connect_protocol)),
            (id::NO_PRIORITY_TREE, 1),
        ];
        let client = [(id::PUSH, 0), (id::WINDOW, self.window), (id::HEAD_BYTES_MAX, self.head_bytes_max)];
        let settings: &[(u16, u32)] = if is_client { &client } else { &server };
        let mut payload = Vec::with_capacity(BYTES * settings.len());
        for (id, value) in settings {
            payload.extend_from_slice(&id.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        write(kind::SETTINGS, 0, 0, &payload, out);
    }
}

impl Default for Http2Settings {
    fn default() -> Self {
        Http2Settings {
            streams_max: 100,
            window: Window::DEFAULT,
            head_bytes_max: 32 << 10,
            connect_protocol: true,
        }
    }
}

/// Settings that the peer has announced, or their defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerSettings {
    /// Maximum bytes of the table for encoding. It stays empty.
    pub(super) table_bytes_max: u32,
    /// Window of a new stream, in bytes.
    pub window: u32,
    /// Maximum bytes of the payload of a frame.
    pub frame_bytes_max: u32,
    /// Maximum number of streams that this end may have open at once.
    pub streams_max: u32,
    /// Maximum bytes of a head that the peer is willing to read.
    pub head_bytes_max: u32,
    /// The peer takes extended CONNECT (RFC 8441).
    pub connect_protocol: bool,
}

impl PeerSettings {
    /// Reads the payload of a SETTINGS frame, whose length is a multiple of 6. Unknown settings are ignored.
    pub(super) fn update(&mut self, payload: &[u8], is_client: bool) -> Result<(), Violation> {
        let (settings, _) = payload.as_chunks::<BYTES>();
        if settings.len() > COUNT_MAX {
            return Err(SettingsTooMany);
        }
        for &[a, b, value @ ..] in settings {
            self.set(u16::from_be_bytes([a, b]), u32::from_be_bytes(value), is_client)?;
        }
        Ok(())
    }

    fn set(&mut self, id: u16, value: u32, is_client: bool) -> Result<(), Violation> {
        match (id, value) {
            (id::TABLE_BYTES_MAX, _) => self.table_bytes_max = value,
            // Only a server pushes, and no server may offer it.
            (id::PUSH, 0) => {}
            (id::PUSH, 1) if !is_client => {}
            (id::STREAMS_MAX, _) => self.streams_max = value,
            (id::WINDOW, 0..=Window::MAX) => self.window = value,
            (id::WINDOW, _) => return Err(WindowSettingInvalid),
            (id::FRAME_BYTES_MAX, 0x4000..=0xff_ffff) => self.frame_bytes_max = value,
            (id::HEAD_BYTES_MAX, _) => self.head_bytes_max = value,
            // RFC 8441 §3: once offered, it stays.
            (id::CONNECT_PROTOCOL, 0) if !self.connect_protocol => {}
            (id::CONNECT_PROTOCOL, 1) => self.connect_protocol = true,
            (id::NO_PRIORITY_TREE, 0 | 1) => {}
            (id::PUSH | id::FRAME_BYTES_MAX | id::CONNECT_PROTOCOL | id::NO_PRIORITY_TREE, _) => {
                return Err(SettingInvalid);
            }
            _ => {}
        }
        Ok(())
    }
}

impl Default for PeerSettings {
    fn default() -> Self {
        PeerSettings {
            table_bytes_max: u32::from(super::TABLE_BYTES_MAX),
            window: Window::DEFAULT,
            frame_bytes_max: PAYLOAD_BYTES_MAX as u32,
            streams_max: u32::MAX,
            head_bytes_max: u32::MAX,
            connect_protocol: false,
        }
    }
}
