//! Tests that responses arrive whole or break off visibly, as fast as their client takes them.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use weftwork::http::StatusCode;
use weftwork::{Request, Response, Result};
use weftwork_wire::{ErrorCode, Http2Settings};

use super::CASE;
use crate::support::{Gate, Http2Client, eventually, noise};

const MIB: usize = 1 << 20;

#[test]
fn long_bodies_arrive_whole() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&noise(MIB)).unwrap();
    let file = Arc::new(file);
    let server = CASE.start(move |req: &mut Request| -> Result<Response> {
        Ok(match req.path() {
            "/bytes" => Response::bytes(noise(MIB)),
            "/file" => Response::file(File::try_clone(&file)?)?,
            "/stream" => Response::stream(|out| out.write_all(&noise(MIB))),
            _ => Response::stream(|out| {
                for part in noise(MIB).chunks(5000) {
                    out.write_all(part)?;
                    out.flush()?;
                }
                Ok(())
            }),
        })
    });
    for window in [65_535, 10_000, 4 << 20] {
        let settings = Http2Settings { window, ..Http2Settings::default() };
        let mut client = Http2Client::connect_with(&server, &settings);
        let streams = client.get_all(["/bytes", "/file", "/stream", "/flushed", "/bytes", "/file"]);
        streams.into_iter().for_each(|stream| client.answer(stream).is(200, noise(MIB)));
    }
}

/// The response waits at the connection, and its request is over.
#[test]
fn a_short_response_waits_for_a_window() {
    let site = CASE.site();
    let settings = Http2Settings { window: 0, ..Http2Settings::default() };
    let mut client = Http2Client::connect_with(&site.running, &settings);
    let streams = client.get_all(["/bytes/1000", "/stream/1000", "/", "/status/204"]);
    client.answer(streams[3]).is(204, "");
    for stream in &streams[..3] {
        client.wait_for_head(*stream);
    }
    client.ping();
    for (stream, body) in streams.into_iter().zip([noise(1000), noise(1000), b"hello".to_vec()]) {
        assert_eq!(client.received(stream), 0);
        client.grant(stream, 400);
        client.wait_for_bytes(stream, body.len().min(400));
        client.grant(stream, 600);
        client.answer(stream).is(200, body);
    }
    drop(client);
    site.is_well();
}

#[test]
fn a_client_that_opens_no_window_is_cut_off_and_its_siblings_go_on() {
    for path in ["/bytes/1000", "/bytes/1000000", "/stream/1000", "/stream/1000000"] {
        let site = CASE.site_with(|settings| settings.write_timeout(Duration::from_millis(300)));
        let settings = Http2Settings { window: 0, ..Http2Settings::default() };
        let mut client = Http2Client::connect_with(&site.running, &settings);
        let stalled = client.get(path);
        client.wait_for_head(stalled);
        let sibling = client.get("/");
        client.wait_for_head(sibling);
        client.grant(sibling, 10);
        client.answer(sibling).is(200, "hello");
        assert_eq!(client.wait_for_reset(stalled), ErrorCode::CANCEL, "{path}");
        let next = client.get("/status/204");
        client.answer(next).is(204, "");
        drop(client);
        site.is_well();
    }
}

/// A client that reads a little, again and again, gets everything.
#[test]
fn a_slow_reader_gets_everything() {
    let site = CASE.site_with(|settings| settings.write_timeout(Duration::from_secs(5)).rate_bytes_min(0));
    for path in ["/bytes/300000", "/stream/300000"] {
        let settings = Http2Settings { window: 0, ..Http2Settings::default() };
        let mut client = Http2Client::connect_with(&site.running, &settings);
        let stream = client.get(path);
        client.wait_for_head(stream);
        while client.received(stream) < 300_000 {
            let received = client.received(stream);
            client.grant(stream, 10_000);
            client.wait_for_bytes(stream, (received + 10_000).min(300_000));
        }
        client.answer(stream).is(200, noise(300_000));
    }
}

#[test]
fn a_response_that_fails_never_looks_complete() {
    let site = CASE.site();
    let mut client = Http2Client::connect(&site.running);
    for path in ["/fail-stream", "/panic-stream", "/too-short/1000", "/too-short/100000"] {
        let stream = client.get(path);
        assert_eq!(client.wait_for_reset(stream), ErrorCode::INTERNAL_ERROR, "{path}");
        let sibling = client.get("/");
        client.answer(sibling).is(200, "hello");
    }
    let stream = client.get("/panic");
    assert_eq!(client.answer(stream).status, 500);
    let next = client.get("/");
    client.answer(next).is(200, "hello");
    assert_eq!(client.goaways, [], "none of them ends the connection");
}

/// A response that nobody takes is written no further than the buffers reach.
#[test]
fn a_writer_waits_for_its_client() {
    let written = Arc::<AtomicUsize>::default();
    let counted = written.clone();
    let server = CASE.start(move |_: &mut Request| {
        let counted = counted.clone();
        Response::stream(move |out| {
            for part in noise(4 * MIB).chunks(1000) {
                out.write_all(part)?;
                counted.fetch_add(part.len(), Ordering::SeqCst);
            }
            Ok(())
        })
    });
    let settings = Http2Settings { window: 0, ..Http2Settings::default() };
    let mut client = Http2Client::connect_with(&server, &settings);
    let stream = client.get("/");
    client.wait_for_head(stream);
    eventually("the writer has filled the buffers", || written.load(Ordering::SeqCst) > 100_000);
    client.ping();
    assert!(written.load(Ordering::SeqCst) < MIB);
    client.grant(stream, 8 << 20);
    client.answer(stream).is(200, noise(4 * MIB));
}

/// In `reactor` and `fibers`, this handler holds the loop that has its connection.
#[test]
fn what_is_flushed_arrives_while_the_handler_goes_on() {
    let gates = [(); 2].map(|()| Arc::<Gate>::default());
    let inside = gates.clone();
    let server = CASE.start(move |req: &mut Request| -> Result<Response> {
        let is_interim = req.path() == "/interim";
        let gate = inside[usize::from(is_interim)].clone();
        if is_interim {
            req.interim(StatusCode::EARLY_HINTS, &[])?;
            gate.pass();
            return Ok(Response::text("last"));
        }
        Ok(Response::stream(move |out| {
            out.write_all(b"first")?;
            out.flush()?;
            gate.pass();
            out.write_all(b" last")
        }))
    });
    let mut client = Http2Client::connect(&server);
    let stream = client.get("/");
    client.wait_for_bytes(stream, 5);
    gates[0].open();
    client.answer(stream).is(200, "first last");
    let stream = client.get("/interim");
    client.wait("103", |client| client.interim(stream) == [103]);
    gates[1].open();
    client.answer(stream).is(200, "last");
}

/// RFC 9218 section 10: responses of the same urgency share the connection, however many there are.
#[test]
fn incremental_responses_share_the_connection() {
    const FRAME: usize = (16 << 10) - 9;
    let site = CASE.site();
    let settings = Http2Settings { window: 4 << 20, ..Http2Settings::default() };
    let mut client = Http2Client::connect_with(&site.running, &settings);
    client.grants = false;
    let streams: Vec<u32> =
        (0..6).map(|_| client.request("GET", "/bytes/1500000", &[("priority", "i")], true)).collect();
    // A handler may be late. Heads need no window.
    streams.iter().for_each(|stream| client.wait_for_head(*stream));
    let mut window = 65_535;
    while !streams.iter().all(|stream| client.received(*stream) > 4 * FRAME) {
        client.wait("what the window allows", |client| {
            streams.iter().map(|stream| client.received(*stream)).sum::<usize>() == window
        });
        assert!(!streams.iter().any(|stream| client.has_answer(*stream)), "one is whole, and another has not begun");
        client.grant(0, 12 * FRAME as u32);
        window += 12 * FRAME;
    }
}
