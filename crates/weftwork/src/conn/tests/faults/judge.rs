//! Checks which timeouts have passed, by a second and plainer version of the rules.

use crate::transport::Tick;

/// The default settings, in milliseconds: `rate_grace`; `body_idle_timeout` and `write_timeout`; what one byte pays
/// for at the `rate_bytes_min` of 500 B/s.
const GRACE: u64 = 10_000;
const PAUSE: u64 = 30_000;
const BYTE: u64 = 2;

/// Who lets time pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// A handler, or the queue in front of it.
    Us,
    /// The client, while a call waits for its bytes.
    Sender,
    /// The client, while a call waits until it takes bytes.
    Taker,
    /// The client, while nobody but a loop waits.
    Client,
}

#[derive(Debug, Default)]
pub(super) struct Judge {
    now: u64,
    ours: u64,
    sending: u64,
    taking: u64,
    /// The request in progress, on the clock of a client that sends.
    since: u64,
    last: u64,
    /// Of its body: before the call, however it was cut, and in it.
    held: u64,
    came_in_call: u64,
    first_wait: Option<u64>,
    in_call: bool,
    blocked: Option<Blocked>,
}

/// Since when the client has let us wait with a response, on the clock of one who takes, and what it took since.
#[derive(Clone, Copy, Debug)]
struct Blocked {
    since: u64,
    last: u64,
    taken: u64,
}

impl Judge {
    pub(super) fn now(&self) -> Tick {
        Tick(self.now)
    }

    pub(super) fn pass(&mut self, time: u64, who: Who) {
        self.now += time;
        match who {
            Who::Us => self.ours += time,
            Who::Sender => self.sending += time,
            Who::Taker => self.taking += time,
            Who::Client => {}
        }
    }

    /// The clock of a client that sends stands still while we work and while it is waited for to take.
    fn senders(&self) -> u64 {
        self.now - self.ours - self.taking
    }

    fn takers(&self) -> u64 {
        self.now - self.ours - self.sending
    }

    pub(super) fn received(&mut self, count: usize) {
        self.last = self.senders();
        self.came_in_call += count as u64;
    }

    pub(super) fn begins_call(&mut self, held: usize) {
        (self.in_call, self.first_wait, self.held, self.came_in_call) = (true, None, held as u64, 0);
    }

    pub(super) fn ends_call(&mut self) {
        (self.in_call, self.since) = (false, self.senders());
    }

    /// So much of what was offered was taken.
    pub(super) fn sent(&mut self, count: usize, offered: usize) {
        let now = self.takers();
        if let Some(blocked) = &mut self.blocked {
            (blocked.last, blocked.taken) = (now, blocked.taken + count as u64);
        }
        // A call offers all that there is. What else is there when it is over, only the connection knows.
        if self.in_call && count == offered {
            self.blocked = None;
        }
    }

    pub(super) fn blocks(&mut self) {
        let now = self.takers();
        self.blocked.get_or_insert(Blocked { since: now, last: now, taken: 0 });
    }

    /// Nothing is left to send.
    pub(super) fn is_done(&mut self) {
        self.blocked = None;
    }

    /// A call waits for a body: neither longer than a client may take, nor less long.
    pub(super) fn check_read(&mut self, until: Tick) {
        let (now, left) = (self.senders(), until.0.saturating_sub(self.now));
        let first = *self.first_wait.get_or_insert(now);
        let came = self.held + self.came_in_call;
        let longest = first + GRACE.max(came * BYTE);
        assert!(left <= PAUSE && now + left <= longest, "a body is waited for for {left} ms: {self:?}");
        let shortest = (self.last + PAUSE).min(self.since + GRACE.max(came * BYTE));
        assert!(now + left >= shortest, "a body is waited for for no more than {left} ms: {self:?}");
    }

    /// The same for whoever waits until a response is taken, where it is known to the millisecond.
    pub(super) fn check_write(&self, until: Tick) {
        let left = until.0.saturating_sub(self.now);
        let Blocked { since, last, taken } = self.blocked.expect("nothing keeps it from sending");
        let due = (last + PAUSE).min(since + PAUSE.max(taken * BYTE));
        assert_eq!(self.takers() + left, due, "a reader is waited for for {left} ms: {self:?}");
    }
}
