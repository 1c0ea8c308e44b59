//! Reports handlers that take too long. A thread watches the calls from outside, so a call costs little.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use http::Method;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::context::Context;
use super::deadlines::Tick;
use super::events::Event;
use crate::transport::log_queue::log_line;

/// Bytes of a request line that are kept for the log.
const LINE_BYTES: usize = 64;
/// Minimum time between two checks, however short the limit for handlers is.
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(5);
const CHECK_INTERVAL_MIN: Duration = Duration::from_millis(5);

/// Slot in which a thread or a fiber publishes its call. The thread writes it, and the watchdog reads it.
#[derive(Debug, Default)]
pub(crate) struct CallSlot {
    /// Odd during a call. Every call has another number.
    epoch: AtomicU64,
    /// Last call that was reported in the log.
    warned: AtomicU64,
    /// Number of calls that were later parts of a request.
    later_parts: AtomicU64,
    begun: AtomicU64,
    line: [AtomicU64; LINE_BYTES / 8],
    thread: String,
    /// Total to which the counts are added when the slot is dropped.
    before: Arc<AtomicU64>,
}

impl Drop for CallSlot {
    fn drop(&mut self) {
        self.before.fetch_add(self.calls(), Ordering::Relaxed);
    }
}

impl CallSlot {
    /// Returns the number of handler calls, including the current call.
    fn calls(&self) -> u64 {
        // The order matters. A reader that sees the number of a later part also sees that it is one.
        let all = self.epoch.load(Ordering::Acquire).div_ceil(2);
        all.saturating_sub(self.later_parts.load(Ordering::Relaxed))
    }

    /// Begins a call like [`enter`](CallSlot::enter), for a later part of a request whose handler has returned: the writer of a
    /// streamed body, or a poll of a future.
    pub(crate) fn enter_later_part(&self, now: Tick, head: &[u8]) {
        self.later_parts.fetch_add(1, Ordering::Relaxed);
        self.enter(now, head);
    }

    /// Begins a call. `head` is the request as it arrived, from its first byte.
    ///
    /// The request line is copied, because it belongs to the caller. That takes eight loads and stores if the head is
    /// long enough.
    #[inline]
    pub(crate) fn enter(&self, now: Tick, head: &[u8]) {
        // The number is already odd if the last call ended by unwinding.
        let epoch = (self.epoch.load(Ordering::Relaxed) + 1) | 1;
        // A reader that sees a word of this call also sees that the last call has ended.
        fence(Ordering::Release);
        match head.first_chunk::<LINE_BYTES>() {
            Some(start) => self.write(start),
            None => self.write_short(head),
        }
        self.begun.store(now.0, Ordering::Relaxed);
        self.epoch.store(epoch, Ordering::Release);
    }

    #[inline]
    fn write(&self, start: &[u8; LINE_BYTES]) {
        for (word, bytes) in self.line.iter().zip(start.as_chunks().0) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
    }

    /// The bytes after the last whole word are the end of a head, and not part of a path.
    fn write_short(&self, head: &[u8]) {
        let words = head.as_chunks().0;
        for (at, word) in self.line.iter().enumerate() {
            word.store(words.get(at).map_or(0, |bytes| u64::from_le_bytes(*bytes)), Ordering::Relaxed);
        }
    }

    /// Returns when the current call began, or the part of it that counts.
    pub(crate) fn begun(&self) -> Tick {
        Tick(self.begun.load(Ordering::Relaxed))
    }

    /// Excludes the time of the current call before `from`, which may be in the future.
    pub(crate) fn exclude_until(&self, from: Tick) {
        self.begun.store(from.0, Ordering::Relaxed);
    }

    /// Ends the call.
    #[inline]
    pub(crate) fn leave(&self) {
        self.epoch.store(self.epoch.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Returns the current call: its number, its start, and its request line.
    fn read(&self) -> Option<(u64, Tick, [u8; LINE_BYTES])> {
        let epoch = self.epoch.load(Ordering::Acquire);
        let begun = self.begun();
        let mut line = [0; LINE_BYTES];
        for (bytes, word) in line.as_chunks_mut().0.iter_mut().zip(&self.line) {
            *bytes = word.load(Ordering::Relaxed).to_le_bytes();
        }
        fence(Ordering::Acquire);
        let still = self.epoch.load(Ordering::Relaxed) == epoch;
        (epoch % 2 == 1 && still).then_some((epoch, begun, line))
    }
}

/// All slots of a server.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    slots: Mutex<Vec<Weak<CallSlot>>>,
    /// Number of calls in slots that were dropped.
    before: Arc<AtomicU64>,
    /// Highest number of calls that was returned so far.
    calls_max: AtomicU64,
}

impl Watchdog {
    /// Returns a slot for the calling thread. It is removed when its owner drops it.
    pub(crate) fn call_slot(&self) -> Arc<CallSlot> {
        let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
        let (epoch, warned, later_parts, begun, line) = Default::default();
        let slot = Arc::new(CallSlot {
            epoch,
            warned,
            later_parts,
            begun,
            line,
            thread,
            before: self.before.clone(),
        });
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.len() == slots.capacity() {
            slots.retain(|slot| slot.strong_count() > 0);
        }
        slots.push(Arc::downgrade(&slot));
        slot
    }

    /// Returns the number of calls in all slots.
    pub(crate) fn calls(&self) -> u64 {
        let before = self.before.load(Ordering::Relaxed);
        let calls = before + self.all().iter().map(|slot| slot.calls()).sum::<u64>();
        // A slot that is being dropped may be counted in neither place, and the number must not fall.
        self.calls_max.fetch_max(calls, Ordering::Relaxed).max(calls)
    }

    /// Returns the number of calls in progress, writers of streamed bodies included.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code))]
    pub(crate) fn calls_in_progress(&self) -> usize {
        self.all().iter().filter(|slot| slot.epoch.load(Ordering::Relaxed) % 2 == 1).count()
    }

    fn all(&self) -> Vec<Arc<CallSlot>> {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.iter().filter_map(Weak::upgrade).collect()
    }
}

/// Runs the watchdog's thread until the server cuts its connections.
pub(crate) fn watch(cx: &Context) {
    let limit = cx.warn_after;
    let pause = Timespec::try_from((limit / 4).clamp(CHECK_INTERVAL_MIN, CHECK_INTERVAL_MAX)).ok();
    while let Ok(0) | Err(rustix::io::Errno::INTR) =
        poll(&mut [PollFd::from_borrowed_fd(cx.closing_fd(), PollFlags::IN)], pause.as_ref())
    {
        let now = cx.clock.now();
        for slot in cx.watchdog.all() {
            let Some((epoch, begun, line)) = slot.read() else { continue };
            if begun.until(now) < limit || slot.warned.swap(epoch, Ordering::Relaxed) == epoch {
                continue;
            }
            cx.record(Event::HandlerIsSlow);
            log_line!(
                Warn,
                "a handler is still running after {:.1?} (handler_warn_after is {limit:?}) at {}, on the thread {}",
                begun.until(now),
                request_line(&line),
                slot.thread
            );
        }
    }
}

/// Returns the start of a request for a slot, if it did not arrive as a request line.
#[cold]
pub(crate) fn line_of(method: &Method, target: &[u8]) -> [u8; LINE_BYTES] {
    let mut line = [0; LINE_BYTES];
    let parts = method.as_str().bytes().chain([b' ']).chain(target.iter().copied()).chain([b' ']);
    line.iter_mut().zip(parts).for_each(|(to, byte)| *to = byte);
    line
}

/// Returns method and path. The query may contain data that must not be logged.
fn request_line(line: &[u8]) -> String {
    let line = line.strip_prefix(b"\r\n").unwrap_or(line);
    let target = line.iter().position(|byte| *byte == b' ').map_or(line.len(), |space| space + 1);
    let end = line[target..].iter().position(|byte| matches!(byte, b' ' | b'?' | b'\r' | 0));
    let (end, more) = end.map_or((line.len(), "..."), |end| (target + end, ""));
    format!("{}{more}", line[..end].escape_ascii())
}

#[cfg(test)]
mod tests {
    //! Tests that the watchdog sees what a slot publishes.

    use super::*;

    #[test]
    fn a_post_shows_the_call_in_progress() {
        let watchdog = Watchdog::default();
        let slot = watchdog.call_slot();
        assert!(slot.read().is_none());
        slot.enter(Tick(7), b"GET /short HTTP/1.1\r\n\r\n");
        let (first, begun, line) = slot.read().unwrap();
        assert_eq!((begun, request_line(&line).as_str()), (Tick(7), "GET /short"));
        slot.exclude_until(Tick(20));
        assert_eq!(slot.read().map(|(epoch, begun, _)| (epoch, begun)), Some((first, Tick(20))));
        slot.leave();
        assert!(slot.read().is_none());
        assert_eq!((first, slot.epoch.load(Ordering::Relaxed)), (1, 2));
        slot.enter(Tick(8), b"");
        slot.enter(Tick(9), format!("PUT /{} HTTP/1.1\r\n\r\n", "x".repeat(200)).as_bytes());
        let (second, _, line) = slot.read().unwrap();
        assert_ne!(first, second);
        assert_eq!(request_line(&line), format!("PUT /{}...", "x".repeat(LINE_BYTES - 5)));
    }

    #[test]
    fn posts_are_forgotten_with_their_owners() {
        let watchdog = Watchdog::default();
        let kept = watchdog.call_slot();
        (0..1000).for_each(|_| drop(watchdog.call_slot()));
        assert_eq!(watchdog.all().len(), 1);
        assert!(watchdog.slots.lock().unwrap().len() < 10);
        assert_eq!(kept.thread, std::thread::current().name().unwrap());
    }

    #[test]
    fn calls_are_counted_beyond_their_posts() {
        let watchdog = Watchdog::default();
        let (kept, gone) = (watchdog.call_slot(), watchdog.call_slot());
        for slot in [&kept, &gone, &gone] {
            slot.enter(Tick(1), b"GET / HTTP/1.1\r\n\r\n");
            slot.leave();
        }
        assert_eq!(watchdog.calls(), 3);
        // The call unwinds.
        gone.enter(Tick(1), b"");
        drop(gone);
        assert_eq!(watchdog.calls(), 4);
        kept.enter(Tick(2), b"");
        kept.enter(Tick(2), b"");
        kept.leave();
        assert_eq!(watchdog.calls(), 6);
    }

    #[test]
    fn a_writer_is_watched_and_is_no_call() {
        let watchdog = Watchdog::default();
        let slot = watchdog.call_slot();
        slot.enter(Tick(1), b"GET / HTTP/1.1\r\n\r\n");
        let call = slot.read().unwrap().0;
        slot.leave();
        slot.enter_later_part(Tick(2), b"GET / HTTP/1.1\r\n\r\n");
        let (writer, begun, _) = slot.read().unwrap();
        assert!(writer != call && begun == Tick(2) && watchdog.calls() == 1);
        slot.leave();
        slot.enter(Tick(3), b"");
        assert_eq!(watchdog.calls(), 2);
        drop(slot);
        assert_eq!(watchdog.calls(), 2);
    }

    #[test]
    fn no_query_is_request_line() {
        for (line, want) in [
            ("GET /a?b=secret HTTP/1.1\r\nHost", "GET /a"),
            ("\r\nGET /a HTTP/1.1\r\n", "GET /a"),
            ("OPTIONS * HTTP/1.1\r\n", "OPTIONS *"),
            ("GET\r\n", "GET\\r\\n..."),
            ("", "..."),
        ] {
            assert_eq!(request_line(line.as_bytes()), want);
        }
    }
}
