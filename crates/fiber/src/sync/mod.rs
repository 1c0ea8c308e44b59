//! How do the fibers of one thread hand things to each other?
//!
//! All of these belong to one thread: what they hold need not be `Send`, and they use no atomics. Every operation
//! that does not have to wait works anywhere on that thread. One that has to wait suspends the fiber; outside a
//! fiber it panics and says so, since no other fiber could run meanwhile. In a fiber that unwinds, where none may
//! run, it returns its error where it has one (`send`, `recv`, `join`) and panics where it has none (`lock`,
//! `acquire`): use the `try_` forms in destructors.
//!
//! Between threads use [`Remote::spawn`](crate::Remote::spawn) towards a runtime, or
//! [`blocking`](crate::blocking()) around a channel of std: a channel across threads would make every one of
//! these pay for atomics.

mod channel;
mod mutex;
mod oneshot;
mod semaphore;
pub(crate) mod wait_list;

pub use channel::{IntoIter, Receiver, RecvError, SendError, Sender, TryRecvError, TrySendError, channel};
pub use mutex::{Mutex, MutexGuard};
pub use oneshot::{OneshotReceiver, OneshotSender, oneshot};
pub use semaphore::{Permit, Semaphore};
