//! Tests which offers are accepted, and that compressed messages arrive whole, however they are cut.

use std::io::{self, Read};

use bytes::Bytes;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};

use super::super::frames::{self, FrameError, FrameEvent, Incoming};
use super::super::{Message, WebSocketHub, WebSockets};
use super::{DEFLATED_BYTES_MIN, Deflate, TAIL};
use crate::{Request, TestClient};

const BYTES_MAX: usize = 20_000;

/// Returns the accepted extension for these field lines.
fn accepted(options: WebSockets, offers: &[&str]) -> Option<String> {
    let hub = WebSocketHub::new(options, |_, _, _| {});
    let client = TestClient::new(move |req: &mut Request| hub.join(req));
    let mut connection = client.connect();
    let fields: String =
        offers.iter().map(|offer| format!("Sec-WebSocket-Extensions: {offer}\r\n")).collect();
    connection.send(format!("{HANDSHAKE}{fields}\r\n"));
    let answer = String::from_utf8(connection.received()).unwrap();
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    let line = answer.lines().find_map(|line| line.strip_prefix("sec-websocket-extensions: "));
    line.map(str::to_owned)
}

const HANDSHAKE: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";
const USUAL: &str = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";

#[test]
fn the_first_offer_that_can_be_accepted_is() {
    let limited = |bits: u8| format!("{USUAL}; server_max_window_bits={bits}");
    for (offers, expected) in [
        (&["permessage-deflate"][..], Some(USUAL.to_owned())),
        (&["permessage-deflate; client_max_window_bits"], Some(USUAL.to_owned())),
        (
            &["permessage-deflate;client_max_window_bits=8 ; server_no_context_takeover"],
            Some(USUAL.to_owned()),
        ),
        (&["permessage-deflate; client_no_context_takeover"], Some(USUAL.to_owned())),
        (&["permessage-deflate; server_max_window_bits=9"], Some(limited(9))),
        (&["permessage-deflate; server_max_window_bits=\"15\""], Some(limited(15))),
        (
            &["x-other, permessage-deflate; server_max_window_bits=8, permessage-deflate"],
            Some(USUAL.to_owned()),
        ),
        (&["permessage-bzip2", "permessage-deflate; server_max_window_bits=10"], Some(limited(10))),
        (&[], None),
        (&["x-webkit-deflate-frame"], None),
        (&["permessage-deflate; unknown"], None),
        (&["permessage-deflate; server_no_context_takeover=1"], None),
        (&["permessage-deflate; server_max_window_bits"], None),
        (&["permessage-deflate; server_max_window_bits=8"], None),
        (&["permessage-deflate; server_max_window_bits=16"], None),
        (&["permessage-deflate; server_max_window_bits=09"], None),
        (&["permessage-deflate; client_max_window_bits=7"], None),
        (&["permessage-deflate; client_max_window_bits; client_max_window_bits"], None),
        (&["permessage-deflate;"], None),
    ] {
        assert_eq!(accepted(WebSockets::new(), offers), expected, "{offers:?}");
    }
    assert_eq!(accepted(WebSockets::new().without_compression(), &["permessage-deflate"]), None);
}

fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [9, 8, 7, 250];
    let mut bytes = vec![first];
    match payload.len() {
        short @ ..126 => bytes.push(0x80 | short as u8),
        middle @ ..65_536 => {
            bytes.push(0x80 | 126);
            bytes.extend_from_slice(&(middle as u16).to_be_bytes());
        }
        long => {
            bytes.push(0x80 | 127);
            bytes.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    bytes.extend_from_slice(&mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

/// Compresses as a client does that has its own window, level, and block lengths.
fn deflated(payload: &[u8], window_bits: u8, level: u32, block_bytes: usize) -> Vec<u8> {
    let mut compress = Compress::new_with_window_bits(Compression::new(level), false, window_bits);
    let mut out = Vec::with_capacity(8 * payload.len() + 1000);
    for block in payload.chunks(block_bytes) {
        compress.compress_vec(block, &mut out, FlushCompress::Sync).unwrap();
    }
    if payload.is_empty() {
        return vec![0];
    }
    assert!(out.ends_with(TAIL));
    out.truncate(out.len() - TAIL.len());
    out
}

/// Bytes in parts of these lengths, over and over.
struct Parts<'b>(&'b [u8], std::iter::Cycle<std::vec::IntoIter<usize>>);

impl Read for Parts<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = self.1.next().unwrap().min(self.0.len()).min(into.len());
        into[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        Ok(count)
    }
}

fn read(bytes: &[u8], lengths: Vec<usize>) -> (Vec<FrameEvent>, FrameError) {
    let mut incoming = Incoming::new(BYTES_MAX as u64, 128, true);
    let (mut parts, mut all) = (Parts(bytes, lengths.into_iter().cycle()), Vec::new());
    loop {
        match incoming.next(&mut parts) {
            Ok(event) => all.push(event),
            Err(failed) => return (all, failed),
        }
    }
}

/// Checks that the bytes give these events: whole, and byte by byte.
#[track_caller]
fn gives(bytes: &[u8], expected: &[FrameEvent]) {
    for lengths in [vec![usize::MAX], vec![1], vec![7, 1, 130]] {
        let (all, failed) = read(bytes, lengths);
        assert!(all == expected, "{} events instead of {}: {failed:?}", all.len(), expected.len());
        assert!(
            matches!(&failed, FrameError::Io(error) if error.kind() == io::ErrorKind::WouldBlock),
            "{failed:?}"
        );
    }
}

#[track_caller]
fn fails(bytes: &[u8], expected: u16) {
    for lengths in [vec![usize::MAX], vec![1]] {
        match read(bytes, lengths) {
            (all, FrameError::Protocol(code, _)) => assert_eq!((code, all.len()), (expected, 0)),
            other => panic!("{other:?}"),
        }
    }
}

fn text(text: &str) -> FrameEvent {
    FrameEvent::Message(Message::Text(text.to_owned()))
}

fn binary(bytes: &[u8]) -> FrameEvent {
    FrameEvent::Message(Message::Binary(Bytes::copy_from_slice(bytes)))
}

/// RFC 7692 section 7.2.3.
#[test]
fn the_examples_of_the_rfc() {
    let hello = [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
    let stored = [0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00];
    let last = [0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00];
    let blocks = [0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00];
    for payload in [&hello[..], &stored, &last, &blocks] {
        gives(&frame(0xc1, payload), &[text("Hello")]);
        for cut in 0..payload.len() {
            let parts = [frame(0x41, &payload[..cut]), frame(0x80, &payload[cut..])].concat();
            gives(&parts, &[text("Hello")]);
        }
    }
    gives(&frame(0xc2, &[0x00]), &[binary(b"")]);
    gives(&frame(0xc2, &[]), &[binary(b"")]);
    // A message is not compressed just because it could be, and control frames may come between.
    let parts = [
        frame(0x41, &hello[..3]),
        frame(0x89, b"ping"),
        frame(0x00, &[]),
        frame(0x80, &hello[3..]),
        frame(0x01, b"pl"),
        frame(0x80, b"ain"),
        frame(0xc1, &hello),
        frame(0x81, b"plain"),
    ];
    let ping = FrameEvent::Ping(Bytes::from_static(b"ping"));
    gives(&parts.concat(), &[ping, text("Hello"), text("plain"), text("Hello"), text("plain")]);
}

#[test]
fn violations_have_their_codes() {
    let hello = [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
    let begun = || frame(0x41, &hello[..3]);
    for violation in [
        frame(0xc9, b""),
        frame(0xc8, b""),
        frame(0xc0, &hello),
        frame(0xe1, &hello),
        frame(0xd1, &hello),
        [begun(), frame(0xc0, &hello[3..])].concat(),
        [begun(), frame(0x81, b"x")].concat(),
        [begun(), frame(0xc1, &hello)].concat(),
        [frame(0x01, b"x"), frame(0xc1, &hello)].concat(),
        [&[0xc1, 7][..], &hello].concat(),
    ] {
        fails(&violation, frames::CLOSE_PROTOCOL);
    }
    for malformed in
        [&[0x07][..], &hello[..4], &hello[..6], &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x55]]
    {
        fails(&frame(0xc1, malformed), frames::CLOSE_TEXT);
    }
    // No UTF-8.
    fails(&frame(0xc1, &deflated(b"\xff\xfe", 15, 6, 10)), frames::CLOSE_TEXT);
    // Without the extension, the bit is reserved.
    let mut incoming = Incoming::new(1000, 128, false);
    let failed = incoming.next(&mut &frame(0xc1, &hello)[..]);
    assert!(matches!(failed, Err(FrameError::Protocol(frames::CLOSE_PROTOCOL, _))), "{failed:?}");
}

/// The limit holds for the size after decompression, in one frame and in many.
#[test]
fn a_message_is_bounded_before_it_is_kept() {
    let mut dice = Dice(1);
    let noise: Vec<u8> = (0..BYTES_MAX).map(|_| dice.roll(256) as u8).collect();
    for payload in [vec![b'x'; BYTES_MAX], noise.clone()] {
        gives(&frame(0xc2, &deflated(&payload, 15, 6, BYTES_MAX)), &[binary(&payload)]);
        let more = [&payload[..], b"x"].concat();
        let deflated = deflated(&more, 15, 6, BYTES_MAX + 1);
        fails(&frame(0xc2, &deflated), frames::CLOSE_TOO_LARGE);
        // The size counts first, even if what follows is no compressed data.
        fails(&frame(0xc2, &[&deflated[..], &[0x07; 5]].concat()), frames::CLOSE_TOO_LARGE);
    }
    // Data that cannot be compressed takes a little more than its size.
    gives(&frame(0xc2, &deflated(&noise, 15, 0, BYTES_MAX)), &[binary(&noise)]);
    // A bomb, of which only a few KiB past the limit are decompressed.
    let bomb = deflated(&vec![0; 2 << 20], 15, 9, usize::MAX);
    assert!(bomb.len() < 6000);
    let parts: Vec<Vec<u8>> = bomb.chunks(1000).map(|part| frame(0x00, part)).collect();
    fails(&[frame(0x42, &[])].into_iter().chain(parts).collect::<Vec<_>>().concat(), frames::CLOSE_TOO_LARGE);
    fails(&frame(0xc2, &vec![0; 2 * BYTES_MAX]), frames::CLOSE_TOO_LARGE);
}

/// Returns the payload of a frame of the server, decompressed with this window.
fn payload(frame: &[u8], window_bits: u8) -> (u8, Vec<u8>) {
    let start = match frame[1] {
        126 => 4,
        127 => 10,
        _ => 2,
    };
    if frame[0] & 0x40 == 0 {
        return (frame[0], frame[start..].to_vec());
    }
    let mut out = Vec::with_capacity(1 << 20);
    let bytes = [&frame[start..], TAIL].concat();
    let mut decompress = Decompress::new_with_window_bits(false, window_bits);
    decompress.decompress_vec(&bytes, &mut out, FlushDecompress::Sync).unwrap();
    (frame[0], out)
}

#[test]
fn what_becomes_smaller_is_sent_compressed_within_the_window() {
    let long = "a line of text that comes again and again\n".repeat(5000);
    let mut dice = Dice(1);
    let noise: Vec<u8> = (0..5000).map(|_| dice.roll(256) as u8).collect();
    for offer in ["", "; server_max_window_bits=9", "; server_max_window_bits=12"] {
        let deflate = Deflate::of_offer(format!("permessage-deflate{offer}").as_bytes()).unwrap();
        let window = deflate.window_bits();
        for _ in 0..3 {
            let frame = frames::message(&Message::from(long.as_str()), Some(deflate));
            assert!(frame.len() < long.len() / 4, "{offer}: {} bytes", frame.len());
            let (byte, got) = payload(&frame, window);
            assert!(
                byte == 0xc1 && got == long.as_bytes(),
                "{offer}: {byte:x}, {} of {} bytes",
                got.len(),
                long.len()
            );
        }
        let frame = frames::message(&Message::Binary(noise.clone().into()), Some(deflate));
        assert!(payload(&frame, window) == (0x82, noise.clone()), "{offer}");
        let short = "x".repeat(DEFLATED_BYTES_MIN - 1);
        let frame = frames::message(&Message::from(short.as_str()), Some(deflate));
        assert_eq!(payload(&frame, window), (0x81, short.into_bytes()));
    }
}

/// A compressor is used again only if its output was whole: `zlib-rs` 0.6.8 loses a part of its own buffer with each
/// reset before, and then panics.
#[test]
fn messages_that_become_no_smaller_cost_the_next_ones_nothing() {
    let deflate = Deflate::of_offer(b"permessage-deflate").unwrap();
    let (mut dice, line) = (Dice(1), "a line of text ".repeat(50));
    for _ in 0..3000 {
        let noise: Vec<u8> =
            (0..DEFLATED_BYTES_MIN + dice.roll(2000)).map(|_| dice.roll(256) as u8).collect();
        let frame = frames::message(&Message::Binary(noise.clone().into()), Some(deflate));
        assert!(payload(&frame, 15) == (0x82, noise));
        // Almost random, so that it is cut anywhere in a block.
        let text: String = (0..200).map(|_| char::from(b'0' + dice.roll(70) as u8)).collect();
        let frame = frames::message(&Message::from(text.as_str()), Some(deflate));
        assert_eq!(payload(&frame, 15).1, text.as_bytes());
    }
    let frame = frames::message(&Message::from(line.as_str()), Some(deflate));
    assert_eq!(payload(&frame, 15), (0xc1, line.into_bytes()));
}

/// A deterministic source of numbers (xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }
}

/// Messages of all kinds, compressed in all ways, in frames and reads of random lengths.
#[test]
fn messages_arrive_whole_however_they_are_cut() {
    for seed in 1..=20 {
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let (mut bytes, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..12 {
            let length = [0, 1, 100, 1000, 10_000][dice.roll(5)];
            let letters = 1 + dice.roll(26);
            let message: Vec<u8> = (0..length).map(|_| b'a' + dice.roll(letters) as u8).collect();
            let (is_text, is_deflated) = (dice.roll(2) == 0, dice.roll(3) > 0);
            expected.push(if is_text { text(str::from_utf8(&message).unwrap()) } else { binary(&message) });
            let block_bytes = [70, 1000, 50_000][dice.roll(3)];
            let sent = match is_deflated {
                true => deflated(&message, 9 + dice.roll(7) as u8, dice.roll(10) as u32, block_bytes),
                false => message,
            };
            let (mut first, mut rest) =
                (if is_text { 1 } else { 2 } | if is_deflated { 0x40 } else { 0 }, &sent[..]);
            loop {
                let part = rest
                    .split_off(..dice.roll(rest.len() + 1).max(usize::from(rest.len() > 5000) * 3000))
                    .unwrap();
                let is_last = rest.is_empty();
                bytes.extend(frame(first | if is_last { 0x80 } else { 0 }, part));
                if is_last {
                    break;
                }
                first = 0;
                if dice.roll(4) == 0 {
                    // Control frames come before the end of the message.
                    bytes.extend(frame(0x8a, b"pong"));
                    let at = expected.len() - 1;
                    expected.insert(at, FrameEvent::Pong);
                }
            }
        }
        let lengths = (0..50).map(|_| 1 + dice.roll(2000)).collect();
        let (all, failed) = read(&bytes, lengths);
        assert!(all == expected, "seed {seed}: {} of {} events, then {failed:?}", all.len(), expected.len());
    }
}

/// Random bytes, and messages with one changed byte: nothing panics, and nothing is larger than the limit.
#[test]
fn no_bytes_break_the_decompression() {
    let valid = deflated("hello, hello and hello again".repeat(20).as_bytes(), 15, 6, 100);
    for seed in 1..=1000 {
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let mut payload = valid.clone();
        if seed % 2 == 0 {
            payload = (0..dice.roll(300)).map(|_| dice.roll(256) as u8).collect();
        } else {
            let at = dice.roll(payload.len());
            payload[at] ^= 1 + dice.roll(255) as u8;
        }
        let (all, _) = read(&frame(0xc2, &payload), vec![usize::MAX]);
        for event in all {
            assert!(matches!(event, FrameEvent::Message(Message::Binary(bytes)) if bytes.len() <= BYTES_MAX));
        }
    }
}

/// A message to a hub is compressed once for all sockets that have agreed on the same.
#[test]
fn a_hub_sends_to_each_socket_what_was_negotiated() {
    let hub = WebSocketHub::new(WebSockets::new(), |hub, _, event| {
        if let super::super::SocketEvent::Message(message) = event {
            hub.send(&message);
        }
    });
    let long = Message::from("a line of text ".repeat(100));
    let (own, first) = (hub.clone(), long.clone());
    let client = TestClient::new(move |req: &mut Request| own.join_with(req, (), [first.clone()]));
    let offers = ["", "permessage-deflate", "permessage-deflate; server_max_window_bits=10"];
    let mut connections = offers.map(|offer| {
        let mut connection = client.connect();
        connection.send(format!("{HANDSHAKE}Sec-WebSocket-Extensions: {offer}\r\n\r\n"));
        let answer = connection.received();
        let head = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
        (connection, answer[head..].to_vec())
    });
    let plain = long.as_text().unwrap().as_bytes().to_vec();
    let windows = [(0x81, 15), (0xc1, 15), (0xc1, 10)];
    for ((_, first), (byte, window)) in connections.iter().zip(windows) {
        assert_eq!(payload(first, window), (byte, plain.clone()), "the first message");
    }
    connections[1].0.send(frame(0xc1, &deflated(&plain, 15, 6, plain.len())));
    for ((connection, _), (byte, window)) in connections.iter_mut().zip(windows) {
        assert_eq!(payload(&connection.received(), window), (byte, plain.clone()));
    }
    assert_eq!(hub.send_where(&long, |_| true), 3);
    for ((connection, _), (byte, window)) in connections.iter_mut().zip(windows) {
        assert_eq!(payload(&connection.received(), window), (byte, plain.clone()));
    }
    // Control frames are never compressed.
    connections[1].0.send(frame(0x89, &[b'x'; 125]));
    assert_eq!(connections[1].0.received(), [&b"\x8a\x7d"[..], &[b'x'; 125]].concat());
}
