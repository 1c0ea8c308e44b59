//! Stackful fibers: many waits on one thread, in plain blocking code.
//!
//! A fiber is a function call with its own stack. When a fiber waits for a socket, the clock or another fiber,
//! its thread runs another fiber. There is no `async`, no `await` and no second kind of function. Panics,
//! `catch_unwind` and destructors work as in a thread. A switch costs tens of nanoseconds, and a waiting fiber
//! about 5 KiB of memory.
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
//! - **Pinned.** A fiber always runs on the thread that spawned it, and nothing about it is `Send`. To
//!   distribute work, run one [`Runtime`] per thread and send to it through its [`Remote`].
//! - **Cooperative.** A fiber runs until it waits. It waits in functions of this crate: [`sleep`],
//!   [`yield_now`], [`JoinHandle::join`], [`sync`], [`net`], [`wait_readable`], [`blocking()`]. Other blocking
//!   calls (a std socket, a file, a std lock held by another thread) block every fiber of the thread. Wrap them
//!   in [`blocking()`]. If a std mutex is held across a wait and another fiber of the thread locks it, the
//!   thread deadlocks. Use [`sync::Mutex`].
//! - **Thread-locals belong to the thread.** All its fibers share them, and another fiber may change one across
//!   a wait. Pinning does not make them fiber-local. **Never wait in the initialiser of a `thread_local!`.**
//!   Another fiber may initialise it meanwhile, and std then replaces a value that is borrowed, which is
//!   undefined behaviour. Do not wait in the initialiser of a `LazyLock` or `OnceLock` either: another fiber
//!   that uses it deadlocks the thread.
//! - **Cancelling unwinds.** [`JoinHandle::cancel`], [`timeout`] and dropping the [`Runtime`] unwind the fiber
//!   from its suspension point, so that destructors run. This requires `panic = "unwind"`. A wait within a
//!   callback from C (`extern "C"`) cannot be unwound, so the process aborts.
//! - **A fiber that unwinds is not suspended.** std counts panics by thread. If another fiber ran meanwhile, it
//!   would see [`std::thread::panicking`] and poison its locks. In destructors during unwinding, the following
//!   therefore holds:
//!   - `sleep` and [`blocking()`] block the thread.
//!   - [`yield_now`] does nothing, and [`sync`] does not wait.
//!   - A socket call that must wait fails with `WouldBlock`, because a peer that does not read would block all
//!     fibers.
//!   - A `lock` or `acquire` that must wait panics, which aborts the process in a destructor. Use `try_lock` and
//!     `try_acquire`.
//! - **Outside a fiber**, sockets, `sleep` and [`blocking()`] block the thread as std does. [`sync`] works if
//!   it does not have to wait, and panics otherwise. [`spawn`] requires a runtime, and [`timeout`] requires a
//!   fiber.
//! - **Stacks are small and guarded.** The default is 64 KiB. [`on_large_stack`] provides a larger stack for a
//!   single call. A stack overflow hits the guard page: the process writes
//!   `fiber stack overflow: ... raise stack_bytes` and aborts.
//! - **A logger must not wait** in lines that mio writes, because the poller is in use. mio logs only at level
//!   trace and with its feature `log`.
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
