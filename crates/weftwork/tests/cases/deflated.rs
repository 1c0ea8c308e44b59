//! Tests permessage-deflate (RFC 7692) with the parameters of sections 12 and 13 of Autobahn's test suite: sizes, frames and
//! offers. The client compresses and decompresses by itself.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use weftwork::{Request, Running, SocketEvent, WebSocketHub, WebSockets, websocket};

use super::CASE;
use crate::support::Client;

const SIZES: [usize; 8] = [0, 16, 64, 256, 1024, 8192, 32_768, 131_072];
/// Sizes of the client's frames. 0 means one frame for each message.
const FRAMES: [usize; 4] = [0, 256, 4096, 32_768];
const BOTH: &str = "server_no_context_takeover; client_no_context_takeover";
/// What a sender leaves out (section 7.2.1).
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

/// An offer, the accepted parameters, and the windows of client and server in bits.
type Offer = (String, Option<String>, u8, u8);

fn offers() -> Vec<Offer> {
    let usual = || Some(BOTH.to_owned());
    let limited = |bits: u8| Some(format!("{BOTH}; server_max_window_bits={bits}"));
    let one = |text: &str| format!("permessage-deflate{text}");
    let mut offers = vec![
        (one(""), usual(), 15, 15),
        (one("; server_no_context_takeover"), usual(), 15, 15),
        (one("; client_no_context_takeover; client_max_window_bits"), usual(), 15, 15),
        (one("; server_max_window_bits=8"), None, 15, 15),
        // The first that can be accepted.
        (format!("{}, {}", one("; server_max_window_bits=8"), one("; server_max_window_bits=9")), limited(9), 15, 9),
        (format!("{}, {}, {}", one("; unknown"), one("; server_no_context_takeover"), one("")), usual(), 15, 15),
    ];
    // No compressor has a window of 8 bits.
    offers.extend((8..=15).map(|bits| (one(&format!("; client_max_window_bits={bits}")), usual(), bits.max(9), 15)));
    for bits in 9..=15 {
        let window = format!("; server_max_window_bits={bits}");
        offers.push((one(&window), limited(bits), 15, bits));
        offers.push((one(&format!("; server_no_context_takeover{window}")), limited(bits), 15, bits));
    }
    offers
}

fn start() -> Running {
    let hub = WebSocketHub::new(WebSockets::new(), |hub, from, event| {
        if let SocketEvent::Message(message) = event {
            hub.send_to(from.id, &message);
        }
    });
    let handler = move |req: &mut Request| match req.path() {
        "/hub" => hub.join(req),
        _ => websocket(req, |mut socket| {
            while let Some(message) = socket.read()? {
                socket.send(message)?;
            }
            Ok(())
        }),
    };
    CASE.bind("127.0.0.1:0").start(handler).unwrap()
}

/// Returns the accepted parameters.
fn shake_hands(client: &mut Client, path: &str, offer: &str) -> Option<String> {
    client.send(format!(
        "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Extensions: {offer}\r\n\r\n"
    ));
    let answer = client.answer_head();
    assert_eq!(answer.status, 101, "{offer}");
    let accepted = answer.field("sec-websocket-extensions")?;
    Some(accepted.strip_prefix("permessage-deflate; ").unwrap_or(accepted).to_owned())
}

/// Text whose words come again after some 20 KiB, so that each window matters. Binary messages are the same bytes, with zeros.
fn message(size: usize, is_text: bool) -> Vec<u8> {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let words = std::iter::repeat_with(move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        format!("{:x} ", random % 4096).into_bytes()
    });
    let mut bytes: Vec<u8> = words.take(1 + size / 2).flatten().take(size).collect();
    if !is_text {
        bytes.iter_mut().step_by(7).for_each(|byte| *byte = 0);
    }
    bytes
}

fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        length @ ..126 => bytes.push(0x80 | length as u8),
        length @ ..65_536 => bytes.extend([&[0x80 | 126][..], &(length as u16).to_be_bytes()].concat()),
        length => bytes.extend([&[0x80 | 127][..], &(length as u64).to_be_bytes()].concat()),
    }
    // The mask.
    bytes.extend([0; 4]);
    bytes.extend(payload);
    bytes
}

fn send(client: &mut Client, message: &[u8], opcode: u8, window_bits: Option<u8>, frame_bytes: usize) {
    let payload = match window_bits {
        Some(bits) => {
            let mut out = Vec::with_capacity(2 * message.len() + 100);
            let mut compress = Compress::new_with_window_bits(Compression::default(), false, bits);
            compress.compress_vec(message, &mut out, FlushCompress::Sync).unwrap();
            let end = out.len() - TAIL.len();
            // An empty message is one empty block.
            if message.is_empty() { vec![0] } else { out[..end].to_vec() }
        }
        None => message.to_vec(),
    };
    let size = if frame_bytes == 0 { usize::MAX } else { frame_bytes };
    let parts: Vec<&[u8]> = if payload.is_empty() { vec![&[]] } else { payload.chunks(size).collect() };
    let compressed = if window_bits.is_some() { 0x40 } else { 0 };
    let count = parts.len();
    for (at, part) in parts.into_iter().enumerate() {
        let first = if at == 0 { opcode | compressed } else { 0 };
        client.send(frame(first | if at + 1 == count { 0x80 } else { 0 }, part));
    }
}

/// Returns the opcode and the message of the next frame. Also returns whether it was compressed.
fn receive(client: &mut Client, window_bits: u8) -> (u8, Vec<u8>, bool) {
    let head = client.exactly(2);
    let length = match head[1] {
        126 => u64::from(u16::from_be_bytes(client.exactly(2).try_into().unwrap())),
        127 => u64::from_be_bytes(client.exactly(8).try_into().unwrap()),
        length => u64::from(length),
    };
    let payload = client.exactly(length as usize);
    if head[0] & 0x40 == 0 {
        return (head[0], payload, false);
    }
    let (mut decompress, mut out) = (Decompress::new_with_window_bits(false, window_bits), Vec::new());
    let bytes = [&payload, &TAIL[..]].concat();
    // In small steps, so that nothing is known of what lies before the window.
    loop {
        let (taken, given, mut step) = (decompress.total_in() as usize, decompress.total_out(), [0; 200]);
        decompress.decompress(&bytes[taken..], &mut step, FlushDecompress::Sync).unwrap();
        let count = (decompress.total_out() - given) as usize;
        out.extend_from_slice(&step[..count]);
        if count < step.len() && decompress.total_in() == bytes.len() as u64 {
            break;
        }
    }
    (head[0] & !0x40, out, true)
}

#[test]
fn every_offer_size_and_frame_gives_the_same_messages() {
    let running = start();
    for (number, (offer, expected, client_bits, server_bits)) in offers().into_iter().enumerate() {
        for path in ["/socket", "/hub"] {
            let mut client = Client::connect(&running);
            let accepted = shake_hands(&mut client, path, &offer);
            assert_eq!(accepted, expected, "{offer}");
            for (at, size) in SIZES.into_iter().enumerate() {
                // Long messages take their time, so not every offer has them.
                if size > 10_000 && number % 4 != at % 4 {
                    continue;
                }
                // Each size meets each size of frames with some offer.
                let frame_bytes = FRAMES[(at + offer.len()) % FRAMES.len()];
                for (opcode, is_text) in [(1, true), (2, false)] {
                    let message = message(size, is_text);
                    let bits = accepted.as_ref().map(|_| client_bits);
                    send(&mut client, &message, opcode, bits, frame_bytes);
                    let (first, got, is_compressed) = receive(&mut client, server_bits);
                    let what = format!("{offer}, {path}, {size} bytes in frames of {frame_bytes}");
                    assert!(first == 0x80 | opcode && got == message, "{what}: {} bytes", got.len());
                    // A short message may not become smaller.
                    assert!(!is_compressed || accepted.is_some(), "{what}");
                    assert!(is_compressed || accepted.is_none() || size < 1024, "{what}");
                }
            }
        }
    }
}
