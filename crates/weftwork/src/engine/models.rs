//! Loom models of the hand-overs between threads: the hand-off cell, the connection slot, the inbox and the thread pool.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p weftwork --lib --release loom`

mod thread_pool;

use std::sync::Arc;

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use super::conn_slot::ConnSlot;
use super::handoff::HandoffCell;
use super::inbox::Inbox;

/// A loop whose leaders are counted: two at once would be the end of all order.
struct EventLoop(Arc<AtomicUsize>);

impl EventLoop {
    fn lead(&self) {
        assert_eq!(self.0.fetch_add(1, Ordering::SeqCst), 0, "two threads lead one loop");
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn stuck(seen: u64, turn: u64) -> bool {
    super::adaptive::is_stuck(seen, turn)
}

/// The leader comes back while the watcher takes its loop away: exactly one of them has it.
#[test]
fn loom_handoff_has_one_owner() {
    loom::model(|| {
        let cell = Arc::new(HandoffCell::new());
        let leaders = Arc::new(AtomicUsize::new(0));
        let lay = cell.release(EventLoop(leaders.clone()));
        let watcher = {
            let cell = cell.clone();
            thread::spawn(move || cell.retake().map(|taken| taken.lead()).is_some())
        };
        let kept = cell.reacquire(lay).map(|mine| mine.lead()).is_some();
        assert!(kept ^ watcher.join().unwrap());
    });
}

/// The loop was taken away, and is led and laid down by another thread, while the first one comes back from
/// its handler: exactly one of them goes on with it.
#[test]
fn loom_handoff_after_a_theft() {
    loom::model(|| {
        let cell = Arc::new(HandoffCell::new());
        let lay = cell.release(EventLoop(Arc::default()));
        let second = {
            let cell = cell.clone();
            thread::spawn(move || {
                let Some(taken) = cell.retake() else { return false };
                taken.lead();
                cell.invalidate();
                let lay = cell.release(taken);
                cell.reacquire(lay).map(|mine| mine.lead()).is_some()
            })
        };
        let first = cell.reacquire(lay).map(|mine| mine.lead()).is_some();
        assert!(first ^ second.join().unwrap());
    });
}

/// Two events come while the thread that is out with a connection puts it back: somebody sees to each.
#[test]
fn loom_conn_slot_misses_no_event() {
    /// Whoever has the connection reads what has come, and puts it back.
    fn serve(place: &ConnSlot<()>, mut conn: Option<()>, has_come: &AtomicBool) {
        while let Some(out) = conn {
            has_come.store(false, Ordering::SeqCst);
            conn = place.put(0, out).map(|(back, _)| back);
        }
    }
    loom::model(|| {
        let place = Arc::new(ConnSlot::new(0));
        let has_come = Arc::new(AtomicBool::new(false));
        let told = [(), ()].map(|()| {
            let (place, has_come) = (place.clone(), has_come.clone());
            thread::spawn(move || {
                has_come.store(true, Ordering::SeqCst);
                serve(&place, place.take(0, false), &has_come);
            })
        });
        serve(&place, Some(()), &has_come);
        told.into_iter().for_each(|told| told.join().unwrap());
        assert!(!has_come.load(Ordering::SeqCst), "nobody has read it");
        assert!(place.withdraw().is_some(), "it is where it belongs");
    });
}

/// One is told of more bytes and another of the end, while a third puts the connection back: the thread that has it last knows of the
/// end.
#[test]
fn loom_conn_slot_forgets_no_end() {
    /// Whoever has the connection, which knows whether its peer has ended, puts it back.
    fn put_back(place: &ConnSlot<bool>, mut conn: bool) {
        while let Some((knows, ended)) = place.put(0, conn) {
            conn = knows || ended;
        }
    }
    loom::model(|| {
        let place = Arc::new(ConnSlot::new(0));
        let told = [false, true].map(|ended| {
            let place = place.clone();
            thread::spawn(move || {
                if let Some(knows) = place.take(0, ended) {
                    put_back(&place, knows || ended);
                }
            })
        });
        put_back(&place, false);
        told.into_iter().for_each(|told| told.join().unwrap());
        // What nobody was told of yet is told when it is next put back.
        let knows = place.withdraw().unwrap();
        let put = place.put(0, knows);
        assert!(knows || put.is_some_and(|(_, ended)| ended), "the end is forgotten");
    });
}

/// Two are told of events, and the watcher sends the connection away: exactly one of them has it.
#[test]
fn loom_conn_slot_is_left_once() {
    loom::model(|| {
        let place = Arc::new(ConnSlot::new(0));
        assert!(place.put(0, ()).is_none());
        let takers = [true, false].map(|ended| {
            let place = place.clone();
            thread::spawn(move || place.take(0, ended).is_some())
        });
        let sent = place.withdraw().is_some();
        let taken = takers.map(|taker| taker.join().unwrap());
        assert_eq!(u32::from(sent) + taken.map(u32::from).iter().sum::<u32>(), 1);
    });
}

/// An event for who had the place comes while it is passed on, and the next one is put there: that one is not told of it.
#[test]
fn loom_conn_slot_tells_the_next_one_nothing() {
    loom::model(|| {
        let place = Arc::new(ConnSlot::new(0));
        let late = {
            let place = place.clone();
            thread::spawn(move || place.take(0, true).is_some())
        };
        assert!(place.reuse(0, 1));
        assert!(place.put(1, ()).is_none(), "it is told of what it has not missed");
        assert!(late.join().unwrap() ^ place.withdraw().is_some(), "exactly one has it");
        assert!(!place.reuse(0, 2), "it was passed on before");
    });
}

/// Who puts a connection back is slow, and it is taken meanwhile and leaves: the place is the next one's, and stays that.
#[test]
fn loom_conn_slot_is_the_next_ones_whoever_is_late() {
    loom::model(|| {
        let place = Arc::new(ConnSlot::new(0));
        let puts = {
            let place = place.clone();
            thread::spawn(move || place.put(0, 0))
        };
        if place.withdraw().is_some() {
            assert!(place.reuse(0, 1));
            let back = place.put(1, 1).is_some() || place.take(1, false).is_some();
            let late = puts.join().unwrap();
            assert!(back ^ late.is_some(), "it is lost, or there twice");
            assert!(place.reuse(1, 2), "it is not the next one's");
        }
    });
}

/// The watcher finds a stuck leader whatever was stolen before: the parity of the turns must survive it.
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
        let lay = cell.release(());
        let seen = cell.epoch();
        assert!(cell.reacquire(lay).is_some());
        assert!(!stuck(seen, cell.epoch()));
    });
}

/// A message that comes while the loop goes to sleep is either seen before, or its bringer has to wake.
#[test]
fn loom_inbox_loses_no_letter() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::new());
        let bringers: Vec<_> = (0..2)
            .map(|message| {
                let inbox = inbox.clone();
                thread::spawn(move || inbox.push(message))
            })
            .collect();
        let sleeps = inbox.prepare_park();
        let woken =
            bringers.into_iter().map(|bringer| bringer.join().unwrap()).filter(|woken| *woken).count();
        let mut messages = Vec::new();
        inbox.take_all(&mut messages);
        assert_eq!(messages.len(), 2);
        // Asleep with messages in the box: one of the bringers has to wake it. A wake too many does no harm.
        assert!(woken == 1 || !sleeps);
    });
}

/// A loop looks at something before it sleeps, which is changed meanwhile: it sees the change, or is woken.
#[test]
fn loom_inbox_nudges_who_has_not_seen() {
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
        let bringer = {
            let (inbox, message) = (inbox.clone(), message.clone());
            thread::spawn(move || inbox.push(message))
        };
        inbox.close();
        let _ = bringer.join().unwrap();
        assert_eq!(std::sync::Arc::strong_count(&message), 1);
    });
}
