//! Synchronization between the fibers of one thread.
//!
//! All types here belong to one thread. Their values need not be `Send`, and they use no atomics. An operation
//! that does not have to wait works anywhere on that thread. An operation that has to wait suspends the fiber.
//! Outside a fiber it panics, because no other fiber could run meanwhile. In a fiber that unwinds, no other
//! fiber may run, so the operation returns its error if it has one (`send`, `recv`, `join`) and otherwise
//! panics (`lock`, `acquire`). Use the `try_` forms in destructors.
//!
//! Between threads, use [`Remote::spawn`](crate::Remote::spawn) to reach a runtime, or
//! [`blocking`](crate::blocking()) around a std channel. A channel across threads would make all types here pay
//! for atomics.

mod channel;
mod mutex;
mod oneshot;
mod semaphore;
pub(crate) mod wait_list;

pub use channel::{IntoIter, Receiver, RecvError, SendError, Sender, TryRecvError, TrySendError, channel};
pub use mutex::{Mutex, MutexGuard};
pub use oneshot::{OneshotReceiver, OneshotSender, oneshot};
pub use semaphore::{Permit, Semaphore};
