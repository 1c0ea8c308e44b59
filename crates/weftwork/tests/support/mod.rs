//! The parts that all suites share: a strict client, a site with every kind of handler, and the engines to run
//! it on.

mod answer;
mod client;
mod client_stream;
mod engine;
mod gate;
mod http2;
mod http2_exchange;
mod http2_exchanges;
pub(crate) mod http2_peer;
mod lines;
mod logged;
pub(crate) mod over_http2;
mod request_text;
mod site;
mod socket;
#[cfg(feature = "tracing")]
pub(crate) mod spans;
#[cfg(feature = "_tls")]
pub(crate) mod tls;
#[cfg(not(feature = "_tls"))]
#[path = "no_tls.rs"]
pub(crate) mod tls;
#[cfg(feature = "_tls")]
pub(crate) mod tls_peer;
mod tree;

use std::time::{Duration, Instant};

#[allow(unused_imports)]
pub(crate) use answer::Answer;
#[allow(unused_imports)]
pub(crate) use client::Client;
#[allow(unused_imports)]
pub(crate) use client_stream::ClientStream;
#[allow(unused_imports)]
pub(crate) use engine::{ENGINES, EngineCase, Guarantee, own_address};
#[allow(unused_imports)]
pub(crate) use gate::Gate;
#[allow(unused_imports)]
pub(crate) use http2::{ANNOUNCED, Http2Client, Tunnel};
#[allow(unused_imports)]
pub(crate) use lines::Lines;
#[allow(unused_imports)]
pub(crate) use logged::{is_logged, keep_log, logged, panic_at};
#[allow(unused_imports)]
pub(crate) use site::{Site, SiteState};
#[allow(unused_imports)]
pub(crate) use tree::{CHANGED, Tree};

/// The maximum of every wait in a test. A test that takes longer hangs.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// Returns once `holds` does.
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < TIMEOUT, "waited {TIMEOUT:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns `count` bytes that repeat, but never at a distance that is the size of a buffer.
pub(crate) fn noise(count: usize) -> Vec<u8> {
    const PERIOD: usize = 8191;
    let mut seed = 0x2545_f491_u32;
    let mut bytes = Vec::with_capacity(count + PERIOD);
    bytes.extend((0..PERIOD).map(|_| {
        seed ^= seed << 13;
        seed ^= seed >> 17;
        seed ^= seed << 5;
        seed as u8
    }));
    while bytes.len() < count {
        bytes.extend_from_within(..PERIOD);
    }
    bytes.truncate(count);
    bytes
}

/// Returns `data` as chunks of `size`, without the last chunk.
pub(crate) fn chunks(data: &[u8], size: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len() * 2);
    for chunk in data.chunks(size) {
        out.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
    }
    out
}
