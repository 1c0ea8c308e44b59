//! The responses of all servers. They send the same bytes on the same routes: /health, /json, /echo, /slow, /wait. Over
//! HTTP/2, some also have /upload and /bytes.

use std::time::Duration;

use serde::Serialize;

pub const HEALTH: &str = "OK";
pub const TEXT: &str = "text/plain; charset=utf-8";
pub const JSON: &str = "application/json";
/// Number of threads for blocking calls, the same as for weft and the floor.
pub const BLOCKING_THREADS: usize = 512;
/// The largest body that /echo accepts.
pub const ECHO_BYTES_MAX: usize = 16 << 20;
/// A longer body is sent back while it arrives, as with weft, if a peer can do so and profits from it.
pub const GATHERED_BYTES_MAX: usize = 64 << 10;

/// Returns the length of such a body, from its `Content-Length`.
pub fn goes_through<V: AsRef<[u8]>>(length: Option<V>) -> Option<u64> {
    let length: u64 = str::from_utf8(length?.as_ref()).ok()?.parse().ok()?;
    (length > GATHERED_BYTES_MAX as u64).then_some(length)
}

/// The body of /json, serialized for each request.
#[derive(Serialize)]
pub struct Message {
    pub message: &'static str,
}

pub const MESSAGE: Message = Message { message: "Hello, World!" };

/// Reads the time from `?ms=` or `?us=`. Default: 1 ms.
pub fn time(query: Option<&str>) -> Duration {
    let time = query.and_then(|query| query.split_once('=')).and_then(|(unit, count)| match unit {
        "ms" => count.parse().ok().map(Duration::from_millis),
        "us" => count.parse().ok().map(Duration::from_micros),
        _ => None,
    });
    time.unwrap_or(Duration::from_millis(1))
}

/// Blocks the thread, for /slow.
pub fn block(time: Duration) -> &'static str {
    std::thread::sleep(time);
    "blocked\n"
}
