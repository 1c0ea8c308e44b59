//! Tests that request bodies arrive whole, and that a client sends no more than the server has space for.

use std::io::Read;
use std::sync::Arc;

use weftwork::{Request, Response, Result};
use weftwork_wire::ErrorCode;

use super::CASE;
use crate::Waits;
use crate::support::{Gate, Http2Client, noise};

const MIB: usize = 1 << 20;

#[test]
fn bodies_arrive_with_and_without_a_length() {
    let site = CASE.site();
    let mut client = Http2Client::connect(&site.running);
    for size in [0, 1, 1000, 70_000, MIB] {
        for has_length in [true, false] {
            for path in ["/echo-any", "/echo-stream"] {
                let stream = client.post(path, &noise(size), has_length);
                client.answer(stream).is(200, noise(size));
            }
        }
    }
    drop(client);
    site.is_well();
}

/// Their parts take turns.
#[test]
fn bodies_of_many_requests_arrive_at_once() {
    const PART: usize = 300;
    let site = CASE.site();
    let mut client = Http2Client::connect(&site.running);
    let streams: Vec<_> =
        (0..20).map(|number| client.request("POST", ["/echo-any", "/echo-stream"][number % 2], &[], false)).collect();
    for part in noise(10 * PART).chunks(PART) {
        streams.iter().for_each(|stream| client.send_data(*stream, part, false));
    }
    for stream in streams {
        client.send_data(stream, b"", true);
        client.answer(stream).is(200, noise(10 * PART));
    }
}

/// The handler has begun before its body is there.
#[test]
fn a_handler_waits_for_its_body() {
    let site = CASE.site();
    let mut client = Http2Client::connect(&site.running);
    let body = noise(200_000);
    let fields = [("expect", "100-continue")];
    let streams: Vec<_> = (0..4).map(|_| client.request("POST", "/echo-any", &fields, false)).collect();
    // In `reactor`, the second one begins when the first one has ended.
    for stream in streams {
        client.wait("100", |client| client.interim(stream) == [100]);
        client.send_body(stream, &body);
        client.answer(stream).is(200, &body);
    }
}

/// A body is read in turns with the response that depends on it.
#[test]
fn a_dialogue() {
    let site = CASE.site();
    let mut client = Http2Client::connect(&site.running);
    let stream = client.request("POST", "/echo-stream", &[("expect", "100-continue")], false);
    client.wait("100", |client| client.interim(stream) == [100]);
    for count in 1..=50 {
        client.send_data(stream, b"part", false);
        client.wait_for_bytes(stream, 4 * count);
    }
    client.send_data(stream, b"", true);
    client.answer(stream).is(200, b"part".repeat(50));
}

/// Reads its body when the gate is open.
fn start_slow(gate: &Arc<Gate>) -> weftwork::Running {
    let gate = gate.clone();
    CASE.start(move |req: &mut Request| -> Result<Response> {
        if req.path() == "/" {
            return Ok(Response::text("hello"));
        }
        let gate = gate.clone();
        weftwork::blocking(move || gate.pass());
        let (mut body, mut count) = (req.body().limit(u64::MAX), 0);
        let mut part = [0; 1000];
        loop {
            match body.read(&mut part)? {
                0 => return Ok(Response::text(count.to_string())),
                read => count += read,
            }
        }
    })
}

#[test]
fn flow_control_holds_the_client_back() {
    if CASE.waits == Waits::ForClient {
        return;
    }
    let gate = Arc::<Gate>::default();
    let server = start_slow(&gate);
    let mut client = Http2Client::connect(&server);
    let stream = client.request("POST", "/slow", &[], false);
    let mut sent = 0;
    loop {
        let space = client.space(stream);
        if space == 0 {
            break;
        }
        client.send_data(stream, &vec![0; space], false);
        sent += space;
        assert!(sent < 2 * MIB, "nothing holds the client back");
        // What the server reads ahead, it has read then.
        client.ping();
        if sent > 64 << 10 {
            gate.wait_for(1);
            client.ping();
        }
    }
    // A sibling goes on.
    let sibling = client.get("/");
    client.answer(sibling).is(200, "hello");
    gate.open();
    client.send_body(stream, &vec![0; 4 * MIB]);
    client.answer(stream).is(200, (sent + 4 * MIB).to_string());
}

#[test]
fn a_body_beyond_the_limit_is_answered_with_413() {
    let site = CASE.site_with(|settings| settings.body_bytes_max(100_000));
    let mut client = Http2Client::connect(&site.running);
    let sibling = client.request("POST", "/echo", &[], false);
    for has_length in [true, false] {
        let stream = client.post("/echo", &noise(200_000), has_length);
        assert_eq!(client.answer(stream).status, 413);
    }
    client.send_data(sibling, b"goes on", true);
    client.answer(sibling).is(200, "goes on");
    assert_eq!(client.goaways, []);
}

#[test]
fn a_body_that_nobody_reads_is_not_awaited() {
    let site = CASE.site();
    let mut client = Http2Client::connect(&site.running);
    for has_length in [true, false] {
        let stream = client.post("/ignore", &noise(MIB), has_length);
        client.answer(stream).is(200, "not read");
    }
    let next = client.get("/");
    client.answer(next).is(200, "hello");
    drop(client);
    site.is_well();
}

/// RFC 9113 section 6.1: padding counts in the windows.
#[test]
fn a_body_of_padded_frames_arrives() {
    let site = CASE.site();
    let mut client = Http2Client::connect(&site.running);
    let stream = client.request("POST", "/echo-any", &[("content-length", "2000")], false);
    for (at, byte) in noise(2000).into_iter().enumerate() {
        client.wait("space for a frame", |client| client.space(stream) >= 257);
        client.send_padded(stream, &[byte], 255, at == 1999);
    }
    client.answer(stream).is(200, noise(2000));
}

/// The request may be in its handler, so there is no status.
#[test]
fn trailers_above_a_limit_end_their_stream_with_an_error() {
    let site = CASE.site();
    let mut client = Http2Client::connect(&site.running);
    let stream = client.request("POST", "/echo-any", &[], false);
    client.send_data(stream, b"a body", false);
    let names: Vec<String> = (0..101).map(|number| format!("name-{number}")).collect();
    client.send_trailers(stream, &names.iter().map(|name| (name.as_str(), "value")).collect::<Vec<_>>());
    assert_eq!(client.wait_for_reset(stream), ErrorCode::ENHANCE_YOUR_CALM);
    let sibling = client.get("/");
    client.answer(sibling).is(200, "hello");
}
