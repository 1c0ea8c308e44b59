//! Loom models of the hand-offs between threads: the hand-off cell, the connection slot, the inbox and the thread
//! pool.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p weftwork --lib --release loom`

mod thread_pool;

use std::sync::Arc;

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use super::conn_slot::ConnSlot;
use super::handoff::HandoffCell;
use super::loops::Inbox;

/// A loop that counts its leaders.
struct EventLoop(Arc<AtomicUsize>);

impl EventLoop {
    fn lead(&self) {
        assert_eq!(self.0.fetch_add(1, Ordering::SeqCst), 0, "two threads lead one loop");
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn stuck(seen: u64, epoch: u64) -> bool {
    super::adaptive::is_stuck(seen, epoch)
}

/// The leader comes back while the monitor retakes its loop: exactly one of them has it.
#[test]
fn loom_handoff_has_one_owner() {
    loom::model(|| {
        let cell = Arc::new(HandoffCell::new());
        let leaders = Arc::new(AtomicUsize::new(0));
        let ticket = cell.release(EventLoop(leaders.clone()));
        let monitor = {
            let cell = cell.clone();
            thread::spawn(move || cell.retake().map(|taken| taken.lead()).is_some())
        };
        let kept = cell.reacquire(ticket).map(|mine| mine.lead()).is_some();
        assert!(kept ^ monitor.join().unwrap());
    });
}

/// The loop was retaken, and is led and released by another thread, while the first thread returns from its handler:
/// exactly one of them leads on.
#[test]
fn loom_handoff_after_a_retake() {
    loom::model(|| {
        let cell = Arc::new(HandoffCell::new());
        let ticket = cell.release(EventLoop(Arc::default()));
        let second = {
            let cell = cell.clone();
            thread::spawn(move || {
                let Some(taken) = cell.retake() else { return false };
                taken.lead();
                cell.invalidate();
                let ticket = cell.release(taken);
                cell.reacquire(ticket).map(|mine| mine.lead()).is_some()
            })
        };
        let first = cell.reacquire(ticket).map(|mine| mine.lead()).is_some();
        assert!(first ^ second.join().unwrap());
    });
}

/// Two events come while the thread with the connection puts it back: each event is handled.
#[test]
fn loom_conn_slot_misses_no_event() {
    /// Reads what has come, and puts the connection back.
    fn serve(slot: &ConnSlot<()>, mut conn: Option<()>, has_come: &AtomicBool) {
        while let Some(out) = conn {
            has_come.store(false, Ordering::SeqCst);
            conn = slot.put(0, out).map(|(back, _)| back);
        }
    }
    loom::model(|| {
        let slot = Arc::new(ConnSlot::new(0));
        let has_come = Arc::new(AtomicBool::new(false));
        let told = [(), ()].map(|()| {
            let (slot, has_come) = (slot.clone(), has_come.clone());
            thread::spawn(move || {
                has_come.store(true, Ordering::SeqCst);
                serve(&slot, slot.take(0, false), &has_come);
            })
        });
        serve(&slot, Some(()), &has_come);
        told.into_iter().for_each(|told| told.join().unwrap());
        assert!(!has_come.load(Ordering::SeqCst), "nobody has read it");
        assert!(slot.withdraw().is_some(), "it is where it belongs");
    });
}

/// One thread gets an event for bytes and another the close event, while a third puts the connection back: the last
/// thread with the connection knows of the close.
#[test]
fn loom_conn_slot_loses_no_close() {
    /// Puts back a connection that knows whether its peer has closed.
    fn put_back(slot: &ConnSlot<bool>, mut conn: bool) {
        while let Some((knows, ended)) = slot.put(0, conn) {
            conn = knows || ended;
        }
    }
    loom::model(|| {
        let slot = Arc::new(ConnSlot::new(0));
        let told = [false, true].map(|ended| {
            let slot = slot.clone();
            thread::spawn(move || {
                if let Some(knows) = slot.take(0, ended) {
                    put_back(&slot, knows || ended);
                }
            })
        });
        put_back(&slot, false);
        told.into_iter().for_each(|told| told.join().unwrap());
        // A close that no thread has seen is returned by the next `put`.
        let knows = slot.withdraw().unwrap();
        let put = slot.put(0, knows);
        assert!(knows || put.is_some_and(|(_, ended)| ended), "the end is forgotten");
    });
}

/// Two threads get events, and the monitor evicts the connection: exactly one of them has it.
#[test]
fn loom_conn_slot_is_left_once() {
    loom::model(|| {
        let slot = Arc::new(ConnSlot::new(0));
        assert!(slot.put(0, ()).is_none());
        let takers = [true, false].map(|ended| {
            let slot = slot.clone();
            thread::spawn(move || slot.take(0, ended).is_some())
        });
        let sent = slot.withdraw().is_some();
        let taken = takers.map(|taker| taker.join().unwrap());
        assert_eq!(u32::from(sent) + taken.map(u32::from).iter().sum::<u32>(), 1);
    });
}

/// An event for the previous connection comes while the slot is reused: the next connection does not get that event.
#[test]
fn loom_conn_slot_tells_the_next_connection_nothing() {
    loom::model(|| {
        let slot = Arc::new(ConnSlot::new(0));
        let late = {
            let slot = slot.clone();
            thread::spawn(move || slot.take(0, true).is_some())
        };
        assert!(slot.reuse(0, 1));
        assert!(slot.put(1, ()).is_none(), "it is told of what it has not missed");
        assert!(late.join().unwrap() ^ slot.withdraw().is_some(), "exactly one has it");
        assert!(!slot.reuse(0, 2), "it was passed on before");
    });
}

/// The thread that puts a connection back is slow, and the connection is taken and closed meanwhile: the slot stays
/// with the next connection.
#[test]
fn loom_conn_slot_stays_with_the_next_connection() {
    loom::model(|| {
        let slot = Arc::new(ConnSlot::new(0));
        let puts = {
            let slot = slot.clone();
            thread::spawn(move || slot.put(0, 0))
        };
        if slot.withdraw().is_some() {
            assert!(slot.reuse(0, 1));
            let back = slot.put(1, 1).is_some() || slot.take(1, false).is_some();
            let late = puts.join().unwrap();
            assert!(back ^ late.is_some(), "it is lost, or there twice");
            assert!(slot.reuse(1, 2), "it is not the next one's");
        }
    });
}

/// The monitor finds a stuck leader after earlier retakes: the parity of the epoch must survive them.
#[test]
fn loom_handoff_is_found_stuck_again() {
    loom::model(|| {
        let cell = HandoffCell::new();
        for _ in 0..3 {
            cell.release(());
            let seen = cell.epoch();
            assert!(stuck(seen, cell.epoch()));
            assert!(cell.retake().is_some());
        }
        let ticket = cell.release(());
        let seen = cell.epoch();
        assert!(cell.reacquire(ticket).is_some());
        assert!(!stuck(seen, cell.epoch()));
    });
}

/// A message that comes while the loop goes to sleep is seen before, or its sender must wake the loop.
#[test]
fn loom_inbox_loses_no_message() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::new());
        let senders: Vec<_> = (0..2)
            .map(|message| {
                let inbox = inbox.clone();
                thread::spawn(move || inbox.push(message))
            })
            .collect();
        let sleeps = inbox.prepare_park();
        let woken = senders.into_iter().map(|sender| sender.join().unwrap()).filter(|woken| *woken).count();
        let mut messages = Vec::new();
        inbox.take_all(&mut messages);
        assert_eq!(messages.len(), 2);
        // The loop is asleep with messages in its inbox: one sender must wake it. An extra wake-up does no harm.
        assert!(woken == 1 || !sleeps);
    });
}

/// A loop checks a flag before it sleeps, and the flag changes meanwhile: the loop sees the change, or is woken.
#[test]
fn loom_inbox_wakes_a_loop_that_has_not_looked() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::<()>::new());
        let is_changed = Arc::new(AtomicBool::new(false));
        let other = {
            let (inbox, is_changed) = (inbox.clone(), is_changed.clone());
            thread::spawn(move || {
                is_changed.swap(true, Ordering::SeqCst);
                inbox.wake()
            })
        };
        let sleeps = inbox.prepare_park();
        let has_seen = is_changed.load(Ordering::SeqCst);
        let is_woken = other.join().unwrap();
        assert!(sleeps && (has_seen || is_woken));
    });
}

/// A message that comes while the loop ends is gone with it, before or after.
#[test]
fn loom_inbox_keeps_nothing_for_a_loop_that_has_ended() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::new());
        let message = std::sync::Arc::new(());
        let sender = {
            let (inbox, message) = (inbox.clone(), message.clone());
            thread::spawn(move || inbox.push(message))
        };
        inbox.close();
        let _ = sender.join().unwrap();
        assert_eq!(std::sync::Arc::strong_count(&message), 1);
    });
}
