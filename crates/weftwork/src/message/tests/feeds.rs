//! Tests that code of the user runs without the lock: drops of unsent messages, and what senders are told.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use bytes::Bytes;

use crate::message::FeedPoll;
use crate::{Feed, FeedClosed, FeedLimits, FeedSender, OverflowStrategy};

/// Uses its feed when it is dropped.
struct Asking(FeedSender, Sender<(usize, u64)>);

impl AsRef<[u8]> for Asking {
    fn as_ref(&self) -> &[u8] {
        b"message"
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let _ = self.1.send(self.0.waiting());
    }
}

/// If the feed's lock were held, the thread would wait for itself. It may be the thread of a loop.
#[test]
fn a_message_that_is_dropped_may_ask_its_feed() {
    let endings: [fn(Feed, &FeedSender); 4] = [
        |feed, _| drop(feed),
        |_, sender| sender.cut(),
        |_feed, sender| sender.send("one more").unwrap_or(()),
        |_feed, sender| sender.send("one more").unwrap_or(()),
    ];
    for (at, end) in endings.into_iter().enumerate() {
        let overflow = if at == 3 { OverflowStrategy::DropOldest } else { OverflowStrategy::Disconnect };
        let limits = FeedLimits { messages_max: 1, overflow, ..FeedLimits::default() };
        let (sender, feed) = Feed::new(limits);
        let (sends, receives) = channel();
        sender.send(Bytes::from_owner(Asking(sender.clone(), sends))).unwrap();
        std::thread::spawn(move || end(feed, &sender));
        let waiting = receives.recv_timeout(Duration::from_secs(10));
        let wanted = if at == 3 { (1, "one more".len() as u64) } else { (0, 0) };
        assert_eq!(waiting, Ok(wanted), "{at}");
    }
}

/// A sender whose feed takes four messages, and a count of the calls.
fn counted() -> (FeedSender, Feed, Arc<AtomicUsize>) {
    let limits = FeedLimits { messages_max: 8, bytes_max: 100, ..FeedLimits::default() };
    let (sender, feed) = Feed::new(limits);
    (sender, feed, Arc::default())
}

/// Registers a call that counts, and uses the sender. If a lock were held, it would wait for itself.
fn count_room(sender: &FeedSender, calls: &Arc<AtomicUsize>) {
    let (own, calls) = (sender.clone(), calls.clone());
    sender.on_room(move || {
        own.waiting();
        calls.fetch_add(1, SeqCst);
    });
}

#[test]
fn there_is_room_below_half_and_the_call_comes_at_a_quarter() {
    let (sender, mut feed, calls) = counted();
    count_room(&sender, &calls);
    assert_eq!(calls.load(SeqCst), 1, "there is room, so it is called at once");
    (0..3).for_each(|_| sender.send("m").unwrap());
    assert!(sender.room());
    sender.send("m").unwrap();
    assert!(!sender.room());
    count_room(&sender, &calls);
    feed.pull();
    assert_eq!((sender.room(), calls.load(SeqCst)), (true, 1));
    feed.pull();
    assert_eq!(calls.load(SeqCst), 2);
    feed.pull();
    feed.pull();
    assert_eq!(calls.load(SeqCst), 2, "once");
    // Bytes count too. A message of any length is accepted while there is room.
    sender.send("m".repeat(49)).unwrap();
    assert!(sender.room());
    sender.send("m".repeat(1000)).unwrap();
    assert!(!sender.room());
    count_room(&sender, &calls);
    feed.pull();
    assert_eq!(calls.load(SeqCst), 2);
    feed.pull();
    assert_eq!(calls.load(SeqCst), 3);
}

#[test]
fn each_end_is_news_for_those_who_wait_for_room() {
    let ends: [fn(&mut Option<Feed>, &FeedSender); 5] = [
        |feed, _| *feed = None,
        |_, sender| sender.cut(),
        |_, sender| sender.close(),
        |feed, _| drop(feed.as_mut().unwrap().finish()),
        |_, sender| while sender.send("overflow").is_ok() {},
    ];
    for (at, end) in ends.into_iter().enumerate() {
        let (sender, feed, calls) = counted();
        let mut feed = Some(feed);
        (0..4).for_each(|_| sender.send("m").unwrap());
        count_room(&sender, &calls);
        assert_eq!(calls.load(SeqCst), 0);
        end(&mut feed, &sender);
        assert_eq!((calls.load(SeqCst), sender.room()), (1, false), "{at}");
        count_room(&sender, &calls);
        assert_eq!(calls.load(SeqCst), 2, "{at}: it has ended already");
        assert_eq!(crate::wait(poll_fn(|cx| sender.poll_ready(cx))), Err(FeedClosed));
        assert_eq!(sender.send_blocking("late"), Err(FeedClosed));
    }
}

#[test]
fn the_end_comes_when_the_connection_lets_go() {
    let (sender, feed, calls) = counted();
    let (theirs, own) = (calls.clone(), sender.clone());
    sender.on_closed(move || {
        own.waiting();
        theirs.fetch_add(1, SeqCst);
    });
    sender.on_closed(|| panic!("it is contained"));
    let closed = sender.closed();
    sender.send("m").unwrap();
    sender.close();
    assert_eq!(calls.load(SeqCst), 0, "a message waits for the client");
    drop(feed);
    assert_eq!(calls.load(SeqCst), 1);
    crate::wait(closed);
}

/// A future that fills a feed gives up when the server ends the feed, and cuts what is not whole.
#[test]
fn a_sender_cannot_cut_what_the_server_has_ended() {
    let (sender, mut feed) = Feed::new(FeedLimits::default());
    sender.send("tick").unwrap();
    assert_eq!(feed.finish(), None);
    sender.cut();
    assert_eq!(feed.pull(), FeedPoll::Message("tick".into()));
    assert_eq!((feed.pull(), feed.why_cut()), (FeedPoll::End, None));
}
