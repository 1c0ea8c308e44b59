//! Compares the messages that a WebSocket hub sees when a compressed message arrives in different frames and pieces.
//! A second decompressor reads what arrives and what is sent.

use std::sync::{Arc, Mutex};

use miniz_oxide::inflate::{TINFLStatus, decompress_to_vec_with_limit};
use weftwork::{Message, Request, SocketEvent, TestClient, WebSocketHub, WebSockets};

use crate::uneven;

/// Maximum size of a message, and of the input: a longer frame is refused before it is read.
const BYTES_MAX: usize = 4096;
/// What a sender leaves out, and an empty last block.
const END: &[u8] = &[0x00, 0x00, 0xff, 0xff, 0x01, 0x00, 0x00, 0xff, 0xff];

thread_local! {
    static ECHO: Echo = Echo::new();
}

/// A hub that returns each message, and notes it.
struct Echo {
    client: TestClient,
    seen: Arc<Mutex<Vec<Message>>>,
}

impl Echo {
    fn new() -> Echo {
        let seen = Arc::<Mutex<Vec<Message>>>::default();
        let notes = seen.clone();
        let options = WebSockets::new().message_bytes_max(BYTES_MAX as u64);
        let hub = WebSocketHub::new(options, move |hub, from, event| {
            if let SocketEvent::Message(message) = event {
                hub.send_to(from.id, &message);
                notes.lock().unwrap().push(message);
            }
        });
        Echo { client: TestClient::new(move |req: &mut Request<'_>| hub.join(req)), seen }
    }

    /// Sends a message in frames of these lengths, in pieces of other lengths. Returns the messages that the hub saw,
    /// and what it sent.
    fn serve(
        &self,
        message: &[u8],
        opcode: u8,
        window_bits: u8,
        frame_len: impl FnMut() -> usize,
        piece_len: impl FnMut() -> usize,
    ) -> (Vec<Message>, Vec<u8>) {
        let mut connection = self.client.connect();
        connection.send(format!(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits={window_bits}\r\n\r\n"
        ));
        let accepted = connection.received();
        assert!(accepted.starts_with(b"HTTP/1.1 101 "), "the handshake");
        let parts = cut(message, frame_len);
        let last = parts.len() - 1;
        let frames = parts.iter().enumerate().flat_map(|(at, part)| {
            let first = if at == 0 { 0x40 | opcode } else { 0 };
            frame(first | if at == last { 0x80 } else { 0 }, part)
        });
        connection.send_pieces(cut(&frames.collect::<Vec<u8>>(), piece_len));
        (std::mem::take(&mut self.seen.lock().unwrap()), connection.received())
    }
}

/// Cuts bytes into parts, at least one.
fn cut(bytes: &[u8], mut next_len: impl FnMut() -> usize) -> Vec<&[u8]> {
    let (mut parts, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        let (part, behind) = rest.split_at(next_len().clamp(1, rest.len()));
        parts.push(part);
        rest = behind;
    }
    if parts.is_empty() {
        parts.push(bytes);
    }
    parts
}

/// Encodes a frame of a client, with a mask of zeros.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u16;
    let mut bytes = match length {
        ..126 => vec![first, 0x80 | length as u8],
        _ => [&[first, 0x80 | 126][..], &length.to_be_bytes()].concat(),
    };
    bytes.extend([0; 4]);
    bytes.extend(payload);
    bytes
}

/// Returns the opcode and the payload of the only frame of a server.
fn sent(frame: &[u8]) -> (u8, Vec<u8>) {
    let start = if frame[1] == 126 { 4 } else { 2 };
    let payload = &frame[start..];
    if frame[0] & 0x40 == 0 {
        return (frame[0] & 0x0f, payload.to_vec());
    }
    let inflated = decompress_to_vec_with_limit(&[payload, END].concat(), BYTES_MAX);
    (frame[0] & 0x0f, inflated.expect("the server sends valid data"))
}

/// Checks that `input`, a compressed message after two bytes of parameters, means the same however it is cut.
pub fn every_way(input: &[u8]) {
    let Some((&[kind, window], message)) = input.split_first_chunk::<2>() else { return };
    if message.len() > BYTES_MAX {
        return;
    }
    let (opcode, window_bits) = (1 + kind % 2, 9 + window % 7);
    ECHO.with(|echo| {
        let all = || usize::MAX;
        let (seen, answer) = echo.serve(message, opcode, window_bits, all, all);
        for (frame_at_once, step) in [(true, 1), (false, 1), (false, 0)] {
            let mut lengths = uneven(message);
            let frame_len = || if frame_at_once { usize::MAX } else { lengths() };
            let mut pieces = uneven(input);
            let piece_len = || if step == 0 { pieces() } else { step };
            let again = echo.serve(message, opcode, window_bits, frame_len, piece_len);
            assert_eq!(again.0, seen, "the messages that arrive");
            assert_eq!(again.1, answer, "what is sent");
        }
        let known = decompress_to_vec_with_limit(&[message, END].concat(), BYTES_MAX);
        if let [arrived] = &seen[..] {
            let bytes = match arrived {
                Message::Text(text) => text.as_bytes(),
                Message::Binary(bytes) => bytes,
            };
            assert!(bytes.len() <= BYTES_MAX, "the limit holds");
            // The second decompressor ends with the first block that is marked as the last.
            assert!(message.is_empty() || bytes.starts_with(&known.expect("both accept it")));
            assert_eq!(sent(&answer), (opcode, bytes.to_vec()), "what is sent");
        } else {
            assert_eq!((seen.len(), sent(&answer).0), (0, 8), "a close");
            if let Err(error) = known {
                let is_large = error.status == TINFLStatus::HasMoreOutput;
                let code = [answer[2], answer[3]];
                assert!(
                    !is_large || code == 1009_u16.to_be_bytes(),
                    "the code of a message that is too large"
                );
            }
        }
    });
}
