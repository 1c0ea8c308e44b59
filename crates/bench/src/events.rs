//! Measures how late an event reaches ten thousand clients of the demo's clock, and what each of them costs.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::clients::{ClientsArgs, LoadedServer};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::procs::usage::Usage;

/// What a client asks, as a page's EventSource does.
const ASK: &[u8] = b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n";
/// An event that is later than this is not counted finer.
const LATE_MS_MAX: u64 = 60_000;

pub(crate) fn run(args: &ClientsArgs) -> Result<()> {
    let time = Duration::from_secs(args.seconds.unwrap_or(20));
    let mut loaded = LoadedServer::start(args, None)?;
    let mut listeners = Listeners::open(loaded.server.port, args)?;
    // Events that came while the clients were opened are used up by the first ticks.
    listeners.listen(Duration::from_secs(3))?;
    listeners.late_ms.reset();
    let before = Usage::of(loaded.server.pid());
    listeners.listen(time)?;
    let cpu = Usage::of(loaded.server.pid()).cpu_us_since(&before);
    println!("{}", loaded.cost(args.clients)?);
    let late_ms = &listeners.late_ms;
    println!("events           {} received, {} clients gone", late_ms.len(), listeners.gone);
    println!("CPU an event     {:.2} us", cpu / late_ms.len().max(1) as f64);
    let [p50, p99] = [0.5, 0.99].map(|quantile| late_ms.value_at_quantile(quantile));
    println!("late             p50 {p50} ms, p99 {p99} ms, most {} ms", late_ms.max());
    Ok(())
}

/// All clients, on this one thread.
struct Listeners {
    clients: Vec<TcpStream>,
    epoll: std::os::fd::OwnedFd,
    late_ms: Histogram<u64>,
    gone: usize,
}

impl Listeners {
    fn open(port: u16, args: &ClientsArgs) -> Result<Listeners> {
        let late_ms = Histogram::new_with_bounds(1, LATE_MS_MAX, 3)
            .map_err(|error| Failure::step("a histogram", error))?;
        let mut all = Listeners {
            clients: Vec::with_capacity(args.clients),
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            late_ms,
            gone: 0,
        };
        args.connect(port, |at, mut stream| {
            stream.write_all(ASK)?;
            read_head(&mut stream)?;
            stream.set_nonblocking(true)?;
            let flags = EventFlags::IN | EventFlags::ET;
            epoll::add(&all.epoll, &stream, EventData::new_u64(at as u64), flags)?;
            all.clients.push(stream);
            Ok(())
        })?;
        Ok(all)
    }

    /// Reads what comes, for this long.
    fn listen(&mut self, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        let mut events = Vec::with_capacity(1024);
        while Instant::now() < until {
            interrupt::check()?;
            events.clear();
            let timeout = Timespec::try_from(Duration::from_millis(100)).ok();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                self.read(event.data.u64() as usize);
            }
        }
        Ok(())
    }

    fn read(&mut self, at: usize) {
        let mut bytes = [0; 2048];
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        loop {
            match self.clients[at].read(&mut bytes) {
                Ok(count) if count > 0 => {
                    for sent in ticks(&bytes[..count]) {
                        let late = now.saturating_sub(sent).as_millis() as u64;
                        self.late_ms.saturating_record(late.max(1));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                _ => {
                    self.gone += 1;
                    return;
                }
            }
        }
    }
}

/// Reads the head of the answer, and no more than that.
fn read_head(stream: &mut TcpStream) -> Result<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte)? > 0 {
        head.push(byte[0]);
    }
    if head.starts_with(b"HTTP/1.1 200 ") {
        return Ok(());
    }
    Err(Failure::Run(format!("/events answers {:?}", String::from_utf8_lossy(&head))))
}

/// Returns when the ticks in these bytes were sent: `data: 1795271711.034 s since 1970`.
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
