//! How late does an event reach ten thousand clients, and what does each of them cost? The demo's clock, looked at
//! by as many as there should be.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::crowd::{CrowdOptions, Crowded};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::load::idle::source;
use crate::load::probe::connect;
use crate::procs::usage::Usage;

pub(crate) const HELP: &str = "\
Event streams: how late a tick reaches every client, and what a client costs.

Usage: weftwork-bench events [OPTIONS]

Options:
  --clients N          clients of the demo's clock, which ticks once a second [10000]
  --seconds S          measured time [20]
  --engine ENGINE      engine of the server [its own default]
  --weft PATH          measure this binary instead of building weftwork-cli
  --cores SERVER,LOAD  cores to pin to [0,1]
  -h, --help           this text
";

/// What a client asks, as a page's EventSource does.
const ASK: &[u8] = b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n";
/// An event that is later than this is not counted finer.
const LATE_MS_MAX: u64 = 60_000;

pub(crate) fn run(options: &CrowdOptions) -> Result<()> {
    let mut crowded = Crowded::start(options)?;
    let mut crowd = Crowd::open(crowded.server.port, options.clients)?;
    // What opening them has left is used up by the first ticks.
    crowd.listen(Duration::from_secs(3))?;
    crowd.forget();
    let before = Usage::of(crowded.server.pid());
    crowd.listen(options.time)?;
    let cpu = Usage::of(crowded.server.pid()).cpu_us_since(&before);
    let cost = crowded.cost(options.clients)?;
    println!("{options}");
    println!("{cost}");
    println!("events           {} received, {} clients gone", crowd.late_ms.len(), crowd.gone);
    println!("CPU an event     {:.2} us", cpu / crowd.late_ms.len().max(1) as f64);
    let at = |quantile: f64| crowd.late_ms.value_at_quantile(quantile);
    println!("late             p50 {} ms, p99 {} ms, most {} ms", at(0.5), at(0.99), crowd.late_ms.max());
    Ok(())
}

/// All clients, on this one thread.
struct Crowd {
    clients: Vec<TcpStream>,
    epoll: std::os::fd::OwnedFd,
    late_ms: Histogram<u64>,
    gone: usize,
}

impl Crowd {
    fn open(port: u16, count: usize) -> Result<Crowd> {
        let late_ms = Histogram::new_with_bounds(1, LATE_MS_MAX, 3)
            .map_err(|error| Failure::step("a histogram", error))?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut clients = Vec::with_capacity(count);
        for at in 0..count {
            interrupt::check()?;
            let mut stream = connect(port, source(at))
                .map_err(|error| Failure::step(format!("client {at} of {count}"), error))?;
            stream.write_all(ASK)?;
            read_head(&mut stream)?;
            stream.set_nonblocking(true)?;
            epoll::add(&epoll, &stream, EventData::new_u64(at as u64), EventFlags::IN | EventFlags::ET)?;
            clients.push(stream);
        }
        Ok(Crowd { clients, epoll, late_ms, gone: 0 })
    }

    fn forget(&mut self) {
        self.late_ms.reset();
    }

    /// Takes what comes, for this long.
    fn listen(&mut self, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        let mut events = Vec::with_capacity(1024);
        loop {
            interrupt::check()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            events.clear();
            let patience = Timespec::try_from(left.min(Duration::from_millis(100))).ok();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), patience.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                self.hear(event.data.u64() as usize);
            }
        }
    }

    fn hear(&mut self, at: usize) {
        let mut bytes = [0; 2048];
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        loop {
            match self.clients[at].read(&mut bytes) {
                Ok(0) => {
                    self.gone += 1;
                    return;
                }
                Ok(count) => {
                    for sent in ticks(&bytes[..count]) {
                        let late = now.saturating_sub(sent).as_millis() as u64;
                        self.late_ms.saturating_record(late.max(1));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.gone += 1;
                    return;
                }
            }
        }
    }
}

fn read_head(stream: &mut TcpStream) -> Result<()> {
    let (mut head, mut bytes) = (Vec::new(), [0; 1024]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream.read(&mut bytes)?;
        if count == 0 {
            break;
        }
        head.extend_from_slice(&bytes[..count]);
    }
    if head.starts_with(b"HTTP/1.1 200 ") {
        return Ok(());
    }
    let line = String::from_utf8_lossy(&head[..head.len().min(40)]).into_owned();
    Err(Failure::Run(format!("/events answers {line:?}")))
}

/// When the ticks in these bytes were sent: `data: 1795271711.034 s since 1970`.
fn ticks(bytes: &[u8]) -> impl Iterator<Item = Duration> {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    text.lines().filter_map(|line| {
        let (seconds, millis) = line.strip_prefix("data: ")?.split(' ').next()?.split_once('.')?;
        Some(Duration::from_secs(seconds.parse().ok()?) + Duration::from_millis(millis.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_says_when_it_was_sent() {
        let bytes = b"45\r\nid: 7\nevent: tick\ndata: 1795271711.034 s since 1970\n\n\r\n3\r\n:\n\n\r\n";
        assert_eq!(ticks(bytes).collect::<Vec<_>>(), [Duration::from_millis(1_795_271_711_034)]);
        assert_eq!(ticks(b":\n\ndata: x\n\n").count(), 0);
    }
}
