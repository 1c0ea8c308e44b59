//! Tests on a pair of sockets, with a client of rustls.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use rustls::{ClientConnection, ContentType, StreamOwned};

use super::super::fuzzing::RawClient;
use super::super::testing::Configs;
use super::*;
use crate::transport::Stream;

fn connect(configs: &Configs) -> (Stream, StreamOwned<ClientConnection, UnixStream>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let stream = Stream::new(ours.into()).with_tls(configs.acceptor());
    stream.tls().unwrap().begin(&[]);
    (stream, StreamOwned::new(configs.client(), theirs))
}

fn tls(stream: &Stream) -> &TlsStream {
    stream.tls().unwrap()
}

/// Goes on with the handshake as far as the client's bytes allow.
fn advance(stream: &Stream) -> Result<(), HandshakeError> {
    loop {
        match tls(stream).handshake() {
            Handshake::Advance { .. } => drop(tls(stream).advance()?),
            Handshake::Done => return Ok(()),
            _ => match stream.recv(&mut Vec::new()) {
                Ok(1..) => {}
                _ => return Ok(()),
            },
        }
    }
}

fn open(configs: &Configs) -> (Stream, StreamOwned<ClientConnection, UnixStream>) {
    let (stream, mut client) = connect(configs);
    while tls(&stream).info().is_none() || client.conn.is_handshaking() {
        let _ = client.conn.complete_io(&mut client.sock);
        advance(&stream).unwrap();
    }
    (stream, client)
}

fn would_block<T: std::fmt::Debug>(result: io::Result<T>) {
    assert_eq!(result.unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn an_idle_stream_holds_no_buffers() {
    for configs in Configs::all() {
        let (stream, mut client) = open(&configs);
        client.write_all(b"GET").unwrap();
        let mut got = Vec::new();
        assert_eq!(stream.recv(&mut got).unwrap(), 3);
        assert_eq!(stream.send(b"answer", false).unwrap(), 6);
        let mut bytes = [0; 10];
        assert_eq!(client.read(&mut bytes).unwrap(), 6);
        let state = tls(&stream).state();
        assert_eq!((state.partial.capacity(), state.pending.capacity()), (0, 0));
        assert!(state.unsent.is_none());
        let info = tls(&stream).info().unwrap();
        assert_eq!(info.server_name(), Some("a.example"));
    }
}

#[test]
fn a_part_of_a_record_is_progress_and_no_end() {
    for configs in Configs::all() {
        let (stream, mut client) = open(&configs);
        client.conn.writer().write_all(&[7; 1000]).unwrap();
        let mut record = Vec::new();
        client.conn.write_tls(&mut record).unwrap();
        let mut got = Vec::new();
        would_block(stream.recv(&mut got));
        for byte in &record[..record.len() - 1] {
            client.sock.write_all(&[*byte]).unwrap();
            would_block(stream.recv(&mut got));
            assert_eq!(stream.take_progress(), 1);
        }
        client.sock.write_all(&record[record.len() - 1..]).unwrap();
        assert_eq!((stream.recv(&mut got).unwrap(), got.len()), (1000, 1000));
        assert!(stream.is_emptied(1000, 1000));
        // The record is longer than its plaintext, and its bytes do not count again.
        assert_eq!((stream.take_unreported(1000), stream.take_progress()), (0, 0));
        client.write_all(&[7; 1000]).unwrap();
        assert_eq!(stream.recv(&mut got).unwrap(), 1000);
        assert_eq!(stream.take_unreported(1000), 1000 - (record.len() - 1 - 1000));
    }
}

#[test]
fn what_does_not_fit_into_a_slice_is_kept() {
    for configs in Configs::all() {
        let (stream, mut client) = open(&configs);
        client.write_all(b"0123456789").unwrap();
        let mut bytes = [0; 4];
        let mut counts = Vec::new();
        for _ in 0..3 {
            counts.push(stream.recv_into(&mut bytes).unwrap());
        }
        assert_eq!((counts, &bytes[..2]), (vec![4, 4, 2], &b"89"[..]));
        would_block(stream.recv_into(&mut bytes));
    }
}

/// The kernel takes parts of records. Only whole ones are reported.
#[test]
fn a_slow_reader_gets_each_byte_once() {
    for configs in Configs::all() {
        let (stream, mut client) = open(&configs);
        let text: Vec<u8> = (0..3_000_000_u32).map(|n| (n / 7) as u8).collect();
        let (head, body) = text.split_at(100_001);
        let (mut sent, mut got, mut blocked) = (0, Vec::new(), 0);
        let mut part = [0; 1000];
        while got.len() < text.len() {
            let (first, second) = (&head[sent.min(head.len())..], &body[sent.saturating_sub(head.len())..]);
            let result = match second.is_empty() {
                true => Ok(0),
                false if first.is_empty() => stream.send(second, false),
                false => stream.send_both(first, second),
            };
            match result {
                Ok(count) => sent += count,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    blocked += 1;
                }
            }
            for _ in 0..7 {
                match client.read(&mut part) {
                    Ok(count) => got.extend_from_slice(&part[..count]),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
            }
        }
        assert!(got == text && sent == text.len() && blocked > 0, "{sent} {blocked}");
        assert!(tls(&stream).state().unsent.is_none());
    }
}

/// Other bytes cannot take the place of those in a record that is on its way.
#[test]
fn a_send_that_is_given_up_ends_the_stream_without_other_bytes() {
    for configs in Configs::all() {
        let (stream, mut client) = open(&configs);
        let mut sent = 0;
        while let Ok(count) = stream.send(&[7; 100_000], false) {
            sent += count;
        }
        assert!(stream.owes_report());
        stream.abandon_unsent();
        assert_eq!(stream.send(b"other", false).unwrap_err().kind(), ErrorKind::BrokenPipe);
        let mut got = Vec::new();
        while !stream.close_session() {
            let _ = client.read_to_end(&mut got);
        }
        drop(stream);
        assert_eq!(client.read_to_end(&mut got).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        assert!(got.len() >= sent && got.iter().all(|&byte| byte == 7), "{} of {sent}", got.len());
    }
}

#[test]
fn a_file_is_sent_to_a_slow_reader() {
    use std::io::Seek;
    let mut file = std::env::temp_dir();
    file.push(format!("weft-tls-{}", std::process::id()));
    let text: Vec<u8> = (0..1_000_000_u32).map(|n| (n / 3) as u8).collect();
    std::fs::write(&file, &text).unwrap();
    let mut opened = File::open(&file).unwrap();
    opened.rewind().unwrap();
    std::fs::remove_file(&file).unwrap();
    for configs in Configs::all() {
        let (mut stream, mut client) = open(&configs);
        let (mut offset, mut got, mut part) = (5, Vec::new(), [0; 1000]);
        while got.len() < text.len() - 5 {
            let left = text.len() as u64 - offset;
            if left > 0 {
                match stream.send_file(&opened, &mut offset, left) {
                    Ok(_) => {}
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
            }
            if let Ok(count) = client.read(&mut part) {
                got.extend_from_slice(&part[..count]);
            }
        }
        assert!(got == text[5..] && offset == text.len() as u64);
    }
}

#[test]
fn an_end_in_order_is_told_from_a_truncated_stream() {
    for configs in Configs::all() {
        let (stream, mut client) = open(&configs);
        client.write_all(b"x").unwrap();
        client.conn.send_close_notify();
        client.flush().unwrap();
        let mut byte = [0];
        assert_eq!(stream.recv_into(&mut byte).unwrap(), 1);
        assert_eq!(stream.recv_into(&mut byte).unwrap(), 0);
        assert!(stream.peer_has_gone());
        let (stream, client) = open(&configs);
        client.sock.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(stream.recv_into(&mut byte).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        assert_eq!(stream.recv(&mut Vec::new()).unwrap(), 0);
    }
}

#[test]
fn a_dropped_stream_says_so_and_one_that_is_cut_off_does_not() {
    for configs in Configs::all() {
        let (stream, mut client) = open(&configs);
        drop(stream);
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
        let (mut stream, mut client) = open(&configs);
        stream.reset_unless_ended();
        drop(stream);
        assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
}

#[test]
fn a_client_that_does_not_speak_tls_is_found_by_its_first_byte() {
    let configs = &Configs::all()[0];
    let (stream, mut client) = connect(configs);
    client.sock.write_all(b"G").unwrap();
    assert!(matches!(advance(&stream), Err(HandshakeError::NotTls)));
    assert_eq!(stream.send(b"plain", false).unwrap(), 5);
    let mut bytes = [0; 5];
    client.sock.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"plain");
}

/// Records are numbered, so a client could read nothing after one that was lost.
#[test]
fn a_refused_renegotiation_is_told_before_the_next_response() {
    for configs in Configs::all().iter().step_by(2) {
        let (stream, client) = open(configs);
        let (conn, mut socket) = client.into_parts();
        let mut hello = Vec::new();
        configs.client().write_tls(&mut hello).unwrap();
        let record = RawClient::of(conn).record(ContentType::Handshake, &hello[5..]).unwrap();
        socket.write_all(&record).unwrap();
        would_block(stream.recv(&mut Vec::new()));
        assert_eq!(stream.send(b"answer", false).unwrap(), 6);
        let mut bytes = [0; 1000];
        let count = socket.read(&mut bytes).unwrap();
        let (mut types, mut rest) = (Vec::new(), &bytes[..count]);
        while let Some(length) = records::record_len(rest) {
            types.push(ContentType::from(rest[0]));
            rest = &rest[length..];
        }
        assert_eq!(types, [ContentType::Alert, ContentType::ApplicationData]);
    }
}

#[test]
fn an_endless_hello_is_refused() {
    let configs = &Configs::all()[0];
    let (stream, mut client) = connect(configs);
    let record = [&[22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff][..], &[0; 0x4000 - 4]].concat();
    let mut fed = 0;
    let failed = loop {
        client.sock.write_all(&record).unwrap();
        fed += record.len();
        if let Err(error) = advance(&stream) {
            break error;
        }
        assert!(fed < 2 * HANDSHAKE_BYTES_MAX);
    };
    assert_eq!(failed.explain().0, crate::transport::events::HandshakeFailure::Malformed, "{failed:?}");
}
