//! Tests that unsent messages are dropped without the lock, because their drop may run other code.

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use bytes::Bytes;

use crate::{Feed, FeedLimits, FeedSender, OverflowStrategy};

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
