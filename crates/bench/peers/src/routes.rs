//! The answers of all servers: the same bytes on the same routes: /health, /json, /echo, /slow, /wait.

use std::time::Duration;

use serde::Serialize;

pub const HEALTH: &str = "OK";
pub const TEXT: &str = "text/plain; charset=utf-8";
pub const JSON: &str = "application/json";
/// Threads for calls that block: as many as weft and the floor may have.
pub const BLOCKING_THREADS: usize = 512;
/// The largest body that /echo takes.
pub const ECHO_BYTES_MAX: usize = 16 << 20;
/// A body that is longer goes back while it comes, as with weft, where a peer can do so and is the better for it.
pub const GATHERED_BYTES_MAX: usize = 64 << 10;

/// The length of a body that does, by its `Content-Length`.
pub fn goes_through<V: AsRef<[u8]>>(length: Option<V>) -> Option<u64> {
    let length: u64 = str::from_utf8(length?.as_ref()).ok()?.parse().ok()?;
    (length > GATHERED_BYTES_MAX as u64).then_some(length)
}

/// Serialized for each request.
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

/// What /slow does: block the thread.
pub fn block(time: Duration) -> &'static str {
    std::thread::sleep(time);
    "blocked\n"
}
