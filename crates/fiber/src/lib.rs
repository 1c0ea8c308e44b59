//! Stackful fibers: many waits on one thread, in plain blocking code.
//!
//! A fiber is a function call with a stack of its own. When it has to wait (for a socket, the clock, another fiber),
//! its thread goes on with another one. There is no `async`, no `await` and no second kind of function; panics,
//! `catch_unwind` and destructors work as in a thread. Switching costs some tens of nanoseconds, a waiting
//! fiber some 5 KiB of memory.
//!
//! ```
//! use std::io::{Read, Write};
//! use weftwork_fiber::net::{TcpListener, TcpStream};
//!
//! weftwork_fiber::run(|| {
//!     let listener = TcpListener::bind("127.0.0.1:0").unwrap();
//!     let address = listener.local_addr().unwrap();
//!     weftwork_fiber::spawn(move || {
//!         let (mut peer, _) = listener.accept().unwrap();
//!         let mut bytes = [0; 5];
//!         peer.read_exact(&mut bytes).unwrap();
//!         peer.write_all(&bytes).unwrap();
//!     });
//!
//!     let mut stream = TcpStream::connect(address).unwrap();
//!     stream.write_all(b"hello").unwrap();
//!     let mut echo = String::new();
//!     stream.read_to_string(&mut echo).unwrap();
//!     assert_eq!(echo, "hello");
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # The rules
//!
//! - **Pinned.** A fiber runs on the thread that spawned it, always; nothing about it is `Send`. Work is spread by
//!   running one [`Runtime`] a thread and sending to it through its [`Remote`].
//! - **Cooperative.** A fiber runs until it waits. The waits are the functions of this crate: [`sleep`],
//!   [`yield_now`], [`JoinHandle::join`], [`sync`], [`net`], [`wait_readable`], [`blocking()`]. Foreign blocking (a
//!   std socket, a file, a lock of std held by another thread) stalls every fiber of the thread: wrap it in
//!   [`blocking()`]. A std mutex held across a wait and locked by another fiber of the thread deadlocks it: use
//!   [`sync::Mutex`].
//! - **Thread-locals belong to the thread**, so all its fibers share them, and another fiber may change one across
//!   a wait. Pinning does not make them fiber-local. **Never wait in the initialiser of a `thread_local!`**: another fiber
//!   may initialise it meanwhile, and std replaces that value under whoever borrows it, which is undefined behaviour. Nor
//!   in that of a `LazyLock` or `OnceLock`: another fiber that asks for it deadlocks the thread.
//! - **Cancelling unwinds.** [`JoinHandle::cancel`], [`timeout`] and dropping the [`Runtime`] throw through the
//!   fiber from its suspension point, so that destructors run. This needs `panic = "unwind"`. A wait within a callback from C
//!   (`extern "C"`) cannot be unwound: the process aborts.
//! - **A fiber that unwinds is not suspended.** std counts panics by thread: if another fiber ran while one unwinds,
//!   it would see [`std::thread::panicking`] and poison its locks. So in destructors during unwinding `sleep` and
//!   [`blocking()`] block the thread, [`yield_now`] does nothing, [`sync`] does not wait, and a socket call that would have
//!   to fails with `WouldBlock`: a peer that does not read would hold up all fibers. A `lock` or `acquire` that would have to
//!   wait there panics, which in a destructor aborts the process: use `try_lock` and `try_acquire`.
//! - **Outside a fiber** sockets, `sleep` and [`blocking()`] block the thread as std does; [`sync`] works as long as
//!   it does not have to wait, and else panics and says so; [`spawn`] and [`timeout`] need a runtime and a fiber.
//! - **Stacks are small and guarded**: 64 KiB by default; [`on_large_stack`] lends what needs more a larger
//!   one. One that overflows meets its guard page; the process says `fiber stack overflow: ... raise stack_bytes` and aborts.
//! - **A logger may not wait** over the lines that mio writes, at level trace and with its feature `log` alone: the poller
//!   is at work meanwhile.
//!
//! Unix only: epoll or kqueue through mio. On other systems the crate is empty.

#![cfg(unix)]

mod blocking;
mod call;
mod config;
mod context;
mod fiber;
mod inbox;
mod large_stack;
pub mod net;
mod overflow;
mod poller;
mod pool;
mod remote;
mod runtime;
mod scheduler;
mod slab;
mod stack;
pub mod sync;
mod task;
mod time;
mod timers;
mod wait;

pub use blocking::{BlockingPool, blocking, set_blocking_threads_max};
pub use config::Config;
pub use fiber::{JoinError, JoinHandle, in_fiber, spawn, yield_now};
pub use large_stack::on_large_stack;
pub use poller::{Interest, Ready};
pub use pool::PoolFull;
pub use remote::{Remote, RuntimeGone};
pub use runtime::{Runtime, run, run_with};
pub use task::is_interruption;
pub use time::{Elapsed, sleep, timeout};
pub use wait::{Signal, wait_for, wait_readable, wait_writable};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
