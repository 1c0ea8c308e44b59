//! Tests of the attacks that HTTP/2 is known for: each ends its connection, and is counted.

use weftwork::Settings;
use weftwork_wire::{ErrorCode, Http2Settings};

use super::CASE;
use crate::support::{Http2Client, Site, eventually};

/// Types of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const PRIORITY_UPDATE: u8 = 16;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn site() -> Site {
    CASE.site_with(|settings: Settings| settings.http2_streams_max(2))
}

/// Opens a request whose body has not come.
fn open(client: &mut Http2Client) -> u32 {
    client.request("POST", "/echo", &[("content-length", "10")], false)
}

/// Expects that the connection has ended over too many frames of a kind.
#[track_caller]
fn is_too_much(what: &str, site: &Site, mut client: Http2Client, kind: &str) {
    client.wait_for_goaways(1);
    assert_eq!(client.goaways[0].1, ErrorCode::ENHANCE_YOUR_CALM, "{what}");
    client.ends();
    drop(client);
    site.is_well();
    let stats = site.running.stats();
    assert_eq!((stats.http2_goaways, stats.http2_streams), (1, 0), "{what}");
    assert!(stats.http2_costly_frames >= 90, "{what}: {stats:?}");
    #[cfg(feature = "metrics")]
    {
        let page = super::observed::page_of(site.running.status());
        assert!(page.contains("weftwork_http2_goaways_total{reason=\"budget_spent\"} 1\n"), "{what}: {page}");
        let name = format!("weftwork_http2_costly_frames_total{{kind=\"{kind}\"}} ");
        let count = page.lines().find_map(|line| line.strip_prefix(&name)).expect("the kind is counted");
        assert!(count.parse::<u64>().unwrap() >= 90, "{what}: {count}");
    }
    let _ = kind;
}

/// Floods of one frame: CVE-2019-9512, -9513, -9515, -9518.
#[test]
fn floods_of_cheap_frames_end_the_connection() {
    for (what, kind, count, flood) in [
        ("PING", "ping", 1_100, frame(PING, 0, 0, &[0; 8])),
        ("PING that nobody sent", "ping", 1_100, frame(PING, 1, 0, &[0; 8])),
        ("SETTINGS", "settings", 250, frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1])),
        ("acknowledged SETTINGS", "settings", 1_100, frame(SETTINGS, 1, 0, b"")),
        ("windows of one byte", "window_update", 1_100, frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])),
        ("of the connection", "window_update", 1_100, frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("DATA without content", "empty_data", 150, frame(DATA, 0, 1, b"")),
        ("DATA of padding", "empty_data", 150, frame(DATA, 8, 1, &[3, 0, 0, 0])),
        ("PRIORITY", "other", 1_100, frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1])),
        ("PRIORITY_UPDATE", "priority_update", 1_100, frame(PRIORITY_UPDATE, 0, 0, &[0, 0, 0, 1, b'u', b'=', b'1'])),
        ("an unknown type", "other", 1_100, frame(0x20, 0, 0, b"")),
        ("GOAWAY", "goaway", 150, frame(GOAWAY, 0, 0, &[0; 8])),
        ("RST_STREAM", "rst_stream", 1_100, frame(RST_STREAM, 0, 1, &[0, 0, 0, 8])),
    ] {
        let site = site();
        let mut client = Http2Client::connect(&site.running);
        assert_eq!(open(&mut client), 1);
        client.send(&flood.repeat(count));
        is_too_much(what, &site, client, kind);
    }
}

/// Trailers that are no trailers, on streams of their own.
#[test]
fn floods_of_heads_end_the_connection() {
    let site = site();
    let mut client = Http2Client::connect(&site.running);
    let heads = |stream| frame(HEADERS, 5, stream, b"");
    client.send(&(0..150).flat_map(|number| heads(2 * number + 1)).collect::<Vec<_>>());
    // The client knows nothing of these streams, so it cannot read their resets.
    eventually("the connection ends", || site.running.stats().http2_goaways == 1);
    client.vanish();
    site.is_well();
}

/// Each frame of the client lets the server send one byte more of long responses (CVE-2019-9511).
#[test]
fn windows_of_one_byte_end_the_connection() {
    let site = CASE.site();
    let mut client = Http2Client::connect_with(&site.running, &Http2Settings { window: 0, ..Http2Settings::default() });
    let stream = client.get("/bytes/100000");
    client.wait_for_head(stream);
    while client.goaways.is_empty() {
        let received = client.received(stream);
        client.send(&frame(WINDOW_UPDATE, 0, stream, &[0, 0, 0, 1]));
        client.wait("a byte", |client| client.received(stream) > received || !client.goaways.is_empty());
        assert!(received < 10_000, "nothing ends the connection");
    }
    is_too_much("a byte each", &site, client, "window_update");
}

/// For each small message, some clients of gRPC send PING, and windows for the stream and for the connection.
#[test]
fn a_client_that_confirms_each_part_of_a_response_keeps_its_connection() {
    let site = CASE.site();
    let mut client = Http2Client::connect(&site.running);
    let stream = client.request("POST", "/echo-stream", &[("expect", "100-continue")], false);
    client.wait("100", |client| client.interim(stream) == [100]);
    client.ping();
    let costly = site.running.stats().http2_costly_frames;
    for count in 1..=700 {
        client.send_data(stream, b"part", false);
        client.wait_for_bytes(stream, 4 * count);
        client.grant(stream, 4);
        client.grant(0, 4);
        client.ping();
    }
    client.send_data(stream, b"", true);
    client.answer(stream).is(200, b"part".repeat(700));
    assert_eq!((client.goaways.len(), site.running.stats().http2_costly_frames), (0, costly));
}

/// A browser does so with the images of a page that is left.
#[test]
fn a_client_that_cancels_many_requests_keeps_its_connection() {
    let site = CASE.site();
    let mut client = Http2Client::connect(&site.running);
    for _ in 0..5 {
        let opened: Vec<_> = (0..100).map(|_| open(&mut client)).collect();
        client.ping();
        opened.iter().for_each(|stream| client.reset(*stream));
        client.ping();
    }
    let last = client.get("/");
    client.answer(last).is(200, "hello");
    assert_eq!(client.goaways, []);
}

/// The client makes the server reset its streams (CVE-2025-8671).
#[test]
fn resets_that_a_client_provokes_end_the_connection() {
    let too_much = |stream| frame(WINDOW_UPDATE, 0, stream, &[0x7f, 0xff, 0xff, 0xff]);
    let nothing = |stream| frame(WINDOW_UPDATE, 0, stream, &[0; 4]);
    let too_long = |stream| frame(DATA, 0, stream, b"eleven byte");
    let too_short = |stream| frame(DATA, 1, stream, b"short");
    let trailers_too_early = |stream| frame(HEADERS, 5, stream, b"");
    type Provoke<'a> = &'a dyn Fn(u32) -> Vec<u8>;
    let provoke: [(&str, Provoke<'_>); 5] = [
        ("a window too large", &too_much),
        ("a window of nothing", &nothing),
        ("a body too long", &too_long),
        ("a body too short", &too_short),
        ("trailers before the body", &trailers_too_early),
    ];
    for (what, provoke) in provoke {
        let site = site();
        let mut client = Http2Client::connect(&site.running);
        for _ in 0..110 {
            let stream = open(&mut client);
            client.send(&provoke(stream));
            client.wait("an end", |client| {
                client.reset_of(stream).is_some() || !client.goaways.is_empty()
            });
            if !client.goaways.is_empty() {
                break;
            }
        }
        is_too_much(what, &site, client, "stream_error");
        assert!(site.running.stats().http2_resets_sent >= 90, "{what}");
    }
}

#[test]
fn data_for_streams_that_are_over_costs_something() {
    let site = site();
    let mut client = Http2Client::connect(&site.running);
    let stream = open(&mut client);
    client.send(&frame(DATA, 0, stream, b"eleven byte"));
    client.wait_for_reset(stream);
    // What the server has allowed may have been on its way.
    client.send(&frame(DATA, 0, stream, &[0; 16_383]).repeat(4));
    client.send(&frame(DATA, 0, stream, b"a").repeat(1_100));
    is_too_much("late DATA", &site, client, "late_data");
}

#[test]
fn refused_requests_cost_something() {
    let site = site();
    let mut client = Http2Client::connect(&site.running);
    open(&mut client);
    open(&mut client);
    client.get_all([""; 1_100].map(|_| "/"));
    is_too_much("refused requests", &site, client, "refused_stream");
}

/// A client that does not know the limit yet may open many streams at once.
#[test]
fn a_client_that_has_not_read_the_settings_keeps_its_connection() {
    let site = CASE.site();
    let mut client = Http2Client::connect(&site.running);
    let opened = client.get_all([""; 900].map(|_| "/"));
    for stream in opened {
        client.wait("an end", |client| client.has_answer(stream) || client.reset_of(stream).is_some());
        assert!(client.reset_of(stream).is_none_or(|code| code == ErrorCode::REFUSED_STREAM));
    }
    let last = client.get("/");
    client.answer(last).is(200, "hello");
    assert_eq!(client.goaways, []);
}

/// Faults that end the connection at once, each with its reason.
#[test]
fn faults_of_a_connection_are_counted_by_reason() {
    let continued = |count: usize, part: &[u8]| {
        [frame(HEADERS, 1, 1, b""), frame(CONTINUATION, 0, 1, part).repeat(count)].concat()
    };
    let settings = [0, 4, 0, 0, 0, 1].repeat(33);
    for (what, reason, code, bytes) in [
        ("continuations", "continuations", ErrorCode::ENHANCE_YOUR_CALM, continued(9, b"\x82")),
        ("an empty one", "continuations", ErrorCode::ENHANCE_YOUR_CALM, continued(1, b"")),
        ("a bomb", "block_too_large", ErrorCode::ENHANCE_YOUR_CALM, bomb()),
        ("settings", "settings_too_many", ErrorCode::ENHANCE_YOUR_CALM, frame(SETTINGS, 0, 0, &settings)),
        ("an even stream", "protocol_error", ErrorCode::PROTOCOL_ERROR, frame(HEADERS, 5, 2, b"")),
        ("an idle stream", "protocol_error", ErrorCode::PROTOCOL_ERROR, frame(RST_STREAM, 0, 1, &[0; 4])),
        ("a window", "flow_control_error", ErrorCode::FLOW_CONTROL_ERROR, frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff])),
        ("a length", "frame_size_error", ErrorCode::FRAME_SIZE_ERROR, frame(PING, 0, 0, b"")),
        ("an index", "compression_error", ErrorCode::COMPRESSION_ERROR, frame(HEADERS, 5, 1, &[0xff, 0x80, 0x01])),
    ] {
        let site = site();
        let mut client = Http2Client::connect(&site.running);
        client.send(&bytes);
        client.wait_for_goaways(1);
        assert_eq!(client.goaways[0].1, code, "{what}");
        client.ends();
        drop(client);
        site.is_well();
        assert_eq!(site.running.stats().http2_goaways, 1, "{what}");
        #[cfg(feature = "metrics")]
        {
            let line = format!("weftwork_http2_goaways_total{{reason=\"{reason}\"}} 1\n");
            assert!(super::observed::page_of(site.running.status()).contains(&line), "{what}");
        }
        let _ = reason;
    }
}

/// A block that refers to a large entry of the table again and again (CVE-2016-6581).
fn bomb() -> Vec<u8> {
    let mut block = vec![0x82, 0x84, 0x86, 0x41, 1, b'a', 0x40, 1, b'a', 0x7f, 0xa1, 0x1e];
    block.extend([b'x'; 4_000]);
    block.resize(block.len() + 1_000, 0xbe);
    frame(HEADERS, 5, 1, &block)
}
