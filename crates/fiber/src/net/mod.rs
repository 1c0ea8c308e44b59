//! Sockets in the shapes of `std::net` and `std::os::unix::net` that suspend the fiber instead of the thread.
//!
//! Each call is tried first; if it would block, the fiber waits for the descriptor and tries again. A socket is
//! registered with its thread's poller at its first wait and deregistered when it is dropped. After 128 calls
//! in a row that did not have to wait a fiber yields, so that a busy peer cannot keep a thread to itself.
//!
//! Outside a fiber the same calls block the thread, as those of std do. In a fiber that unwinds, in its destructors, a call
//! that would have to wait fails with `WouldBlock`.
//!
//! A socket that has waited belongs to that runtime, so sockets are not `Send`. `into_std` and `from_std` take one
//! to another thread:
//!
//! ```compile_fail
//! fn is_send<T: Send>() {}
//! is_send::<weftwork_fiber::net::TcpStream>();
//! ```

mod io;
mod lookup;
mod tcp;
mod udp;
mod unix;

pub use lookup::{Resolve, lookup};
pub use tcp::{TcpListener, TcpStream};
pub use udp::UdpSocket;
pub use unix::{UnixDatagram, UnixListener, UnixStream};
