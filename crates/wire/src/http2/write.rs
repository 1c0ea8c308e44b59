//! Writes frames. None of this needs the state of a connection.

use super::Http2;
use super::fault::ErrorCode;
use super::frame::{HEADER_BYTES, Header, PAYLOAD_BYTES_MAX, flag, kind};

impl Http2 {
    /// Appends DATA frames of at most 16,384 bytes, which every peer takes. The last one ends the stream if `ends` is
    /// set. Empty data is written only if it ends the stream. The windows are the caller's.
    pub fn write_data(stream: u32, data: &[u8], ends: bool, out: &mut Vec<u8>) {
        let mut rest = data;
        while rest.len() > PAYLOAD_BYTES_MAX {
            let (part, behind) = rest.split_at(PAYLOAD_BYTES_MAX);
            out.extend_from_slice(&Http2::data_header(stream, PAYLOAD_BYTES_MAX as u32, false));
            out.extend_from_slice(part);
            rest = behind;
        }
        if ends || !rest.is_empty() {
            out.extend_from_slice(&Http2::data_header(stream, rest.len() as u32, ends));
            out.extend_from_slice(rest);
        }
    }

    /// Returns the header of a DATA frame whose content, of `len` bytes, is sent past the codec. `len` is at most the
    /// peer's [`frame_bytes_max`](super::PeerSettings::frame_bytes_max).
    #[inline]
    pub fn data_header(stream: u32, len: u32, ends: bool) -> [u8; HEADER_BYTES] {
        Header { len, kind: kind::DATA, flags: if ends { flag::END_STREAM } else { 0 }, stream }.bytes()
    }

    /// Appends RST_STREAM.
    pub fn write_reset(stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
        write(kind::RST_STREAM, 0, stream, &code.0.to_be_bytes(), out);
    }

    /// Appends WINDOW_UPDATE, for a stream or for the connection (0). `by` is at least 1 and below 2^31.
    pub fn write_window_update(stream: u32, by: u32, out: &mut Vec<u8>) {
        write(kind::WINDOW_UPDATE, 0, stream, &by.to_be_bytes(), out);
    }

    /// Appends PING.
    pub fn write_ping(data: [u8; 8], out: &mut Vec<u8>) {
        write(kind::PING, 0, 0, &data, out);
    }

    /// Appends the response to a PING.
    pub fn write_ping_ack(data: [u8; 8], out: &mut Vec<u8>) {
        write(kind::PING, flag::ACK, 0, &data, out);
    }

    /// Appends GOAWAY. `last` is the last stream of the peer that is answered, or 2^31-1 to announce another GOAWAY.
    pub fn write_goaway(last: u32, code: ErrorCode, out: &mut Vec<u8>) {
        let mut payload = [0; 8];
        payload[..4].copy_from_slice(&last.to_be_bytes());
        payload[4..].copy_from_slice(&code.0.to_be_bytes());
        write(kind::GOAWAY, 0, 0, &payload, out);
    }

    /// Appends the acknowledgement of the peer's SETTINGS.
    pub fn write_settings_ack(out: &mut Vec<u8>) {
        write(kind::SETTINGS, flag::ACK, 0, &[], out);
    }
}

/// Appends a frame whose payload is short.
pub(super) fn write(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&Header { len: payload.len() as u32, kind, flags, stream }.bytes());
    out.extend_from_slice(payload);
}
