//! Lets the receiver of an upgraded connection pause its reads: the waker of the receiver is one of the feed.

use std::io;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use super::{Core, Feed};

impl Feed {
    /// Asks a receiver whether it has room for bytes. Otherwise its waker wakes the connection.
    pub(crate) fn ask_for_room(
        &self,
        ask: impl FnOnce(&mut Context<'_>) -> io::Result<bool>,
    ) -> io::Result<bool> {
        // Before the question, because the waker may be called meanwhile.
        self.core.lock().awaits_room = true;
        let waker = Waker::from(self.core.clone());
        let has_room = ask(&mut Context::from_waker(&waker))?;
        if has_room {
            self.core.lock().awaits_room = false;
        }
        Ok(has_room)
    }

    /// Returns whether the receiver had no room, and its waker was not called since.
    pub(crate) fn awaits_room(&self) -> bool {
        self.core.lock().awaits_room
    }
}

impl Wake for Core {
    fn wake(self: Arc<Core>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Core>) {
        let mut state = self.lock();
        if std::mem::take(&mut state.awaits_room) {
            Core::wake(self, state);
        }
    }
}
