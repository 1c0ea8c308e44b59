//! Tests that a handler sees that its client wants no response, and that its siblings see nothing.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use weftwork::{Request, Response, Result, Running};
use weftwork_wire::ErrorCode;

use super::CASE;
use crate::Waits;
use crate::support::{Http2Client, eventually};

/// A server whose handlers count what they see.
struct Watched {
    server: Running,
    begun: Arc<AtomicUsize>,
    gone: Arc<AtomicUsize>,
}

fn start() -> Watched {
    let (begun, gone) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let (own_begun, own_gone) = (begun.clone(), gone.clone());
    let server = CASE.start(move |req: &mut Request| -> Result<Response> {
        let (begun, gone) = (own_begun.clone(), own_gone.clone());
        match req.path() {
            "/watch" => {
                begun.fetch_add(1, Ordering::SeqCst);
                while !req.client_gone() {
                    weftwork::sleep(Duration::from_millis(1));
                }
                gone.fetch_add(1, Ordering::SeqCst);
                Ok(Response::text("nobody reads this"))
            }
            "/write" => Ok(Response::stream(move |out| {
                begun.fetch_add(1, Ordering::SeqCst);
                loop {
                    if let Err(error) = out.write_all(&[0; 1000]) {
                        gone.fetch_add(1, Ordering::SeqCst);
                        return Err(error);
                    }
                }
            })),
            "/pause" => Ok(Response::stream(move |out| {
                out.write_all(b"begun")?;
                begun.fetch_add(1, Ordering::SeqCst);
                let paused = out.pause(Duration::from_secs(600));
                gone.fetch_add(usize::from(paused.is_err()), Ordering::SeqCst);
                paused.map(drop)
            })),
            "/read" => {
                let mut body = req.body();
                begun.fetch_add(1, Ordering::SeqCst);
                let read = body.read_to_end(&mut Vec::new());
                gone.fetch_add(usize::from(read.is_err()), Ordering::SeqCst);
                Ok(Response::text("read"))
            }
            _ => Ok(Response::text("hello")),
        }
    });
    Watched { server, begun, gone }
}

impl Watched {
    #[track_caller]
    fn waits_until(&self, what: &str, count: &AtomicUsize, least: usize) {
        eventually(what, || count.load(Ordering::SeqCst) >= least);
    }

    /// Opens a stream whose handler is in progress.
    #[track_caller]
    fn open(&self, client: &mut Http2Client, path: &str) -> u32 {
        let begun = self.begun.load(Ordering::SeqCst);
        let stream = match path {
            "/read" => client.request("POST", path, &[("expect", "100-continue")], false),
            _ => client.get(path),
        };
        self.waits_until("a handler begins", &self.begun, begun + 1);
        stream
    }

    #[track_caller]
    fn is_well(&self) {
        eventually("every connection ends", || self.server.stats().connections == 0);
    }
}

/// What a handler does while its client leaves.
const PATHS: [&str; 4] = ["/watch", "/write", "/pause", "/read"];

#[test]
fn a_reset_ends_what_a_handler_waits_for() {
    for path in PATHS {
        let watched = start();
        let mut client = Http2Client::connect(&watched.server);
        client.grants = false;
        let stream = watched.open(&mut client, path);
        assert_eq!(watched.gone.load(Ordering::SeqCst), 0, "{path}");
        client.reset(stream);
        watched.waits_until(path, &watched.gone, 1);
        client.grant(0, 1 << 20);
        let sibling = client.get("/");
        client.answer(sibling).is(200, "hello");
        assert_eq!(client.goaways, [], "{path}");
        drop(client);
        watched.is_well();
    }
}

#[test]
fn a_client_that_vanishes_ends_all_its_requests() {
    for path in PATHS {
        let watched = start();
        let mut client = Http2Client::connect(&watched.server);
        client.grants = false;
        let count = if CASE.waits == Waits::ForClient { 1 } else { 5 };
        for _ in 0..count {
            watched.open(&mut client, path);
        }
        client.vanish();
        watched.waits_until(path, &watched.gone, count);
        watched.is_well();
    }
}

/// A reset frees the stream when its handler is done, and not before.
#[test]
fn a_reset_request_counts_until_its_handler_is_done() {
    let Some(gate) = CASE.gate() else { return };
    let site = CASE.site_with(|settings| settings.http2_streams_max(3));
    let mut client = Http2Client::connect(&site.running);
    for _ in 0..50 {
        let stream = client.get(gate);
        client.reset(stream);
    }
    site.inside.gate.wait_for(1);
    client.ping();
    assert!(site.calls() <= 3, "{} handlers were called", site.calls());
    site.inside.gate.open();
    drop(client);
    site.is_well();
}

/// Rapid reset (CVE-2023-44487).
#[test]
fn a_flood_of_resets_ends_the_connection() {
    let site = CASE.site();
    let mut client = Http2Client::connect(&site.running);
    for _ in 0..2000 {
        // A whole response would give points back.
        let stream = client.request("POST", "/echo", &[("content-length", "1")], false);
        client.reset(stream);
        if !client.goaways.is_empty() {
            break;
        }
    }
    client.wait_for_goaways(1);
    assert_eq!(client.goaways[0].1, weftwork_wire::ErrorCode::ENHANCE_YOUR_CALM);
    client.ends();
    site.is_well();
}

/// RFC 9113 section 5.1: what was on its way when the server reset a stream is dropped. The other requests of the connection are
/// answered.
#[test]
fn what_was_on_its_way_at_a_reset_is_dropped() {
    let long: &[(&str, &str)] = &[("content-length", "9999999")];
    let bad: &[(&str, &str)] = &[("content-length", "many")];
    // HEADERS with END_STREAM and END_HEADERS, and fields without HPACK's table.
    let (valid, malformed) = (b"\0\x05lower\x04case", b"\0\x05Upper\x04case");
    for (what, fields, code) in [
        ("an early response", long, ErrorCode::NO_ERROR),
        ("a malformed head", bad, ErrorCode::PROTOCOL_ERROR),
        ("a body longer than declared", &[("content-length", "3")], ErrorCode::PROTOCOL_ERROR),
        ("too many streams", &[], ErrorCode::REFUSED_STREAM),
    ] {
        for trailers in [valid, malformed] {
            let site = CASE.site_with(|settings| settings.http2_streams_max(2));
            let mut client = Http2Client::connect(&site.running);
            let sibling = client.request("POST", "/echo-any", &[], false);
            let blocks = code == ErrorCode::REFUSED_STREAM;
            let other = blocks.then(|| client.request("POST", "/echo-any", &[], false));
            let late = client.request("POST", "/", fields, false);
            if what == "a body longer than declared" {
                client.send_data(late, b"longer", false);
            }
            assert_eq!(client.wait_for_reset(late), code, "{what}");
            for _ in 0..20 {
                client.send_data(late, b"late", false);
            }
            let header = [&[0, 0, trailers.len() as u8, 1, 5], &late.to_be_bytes()[..]].concat();
            client.send(&[&header[..], trailers].concat());
            for upload in other.into_iter().chain([sibling]) {
                client.send_data(upload, b"whole", true);
                client.answer(upload).is(200, "whole");
            }
            assert_eq!((client.goaways.len(), client.reset_of(late)), (0, Some(code)), "{what}");
            assert_eq!(site.running.stats().http2_resets_sent, 1, "{what}");
        }
    }
}
