//! Sockets like those of `std::net` and `std::os::unix::net`, which suspend the fiber instead of the thread.
//!
//! Each call is tried first. If it would block, the fiber waits for the descriptor and tries again. A socket is
//! registered with the poller of its thread at its first wait, and deregistered on drop. After 128 calls in a
//! row without a wait, a fiber yields, so that a busy peer cannot occupy a thread.
//!
//! Outside a fiber, the same calls block the thread, as in std. In a fiber that unwinds, in its destructors, a
//! call that must wait fails with `WouldBlock`.
//!
//! A socket that has waited belongs to its runtime, so sockets are not `Send`. To move one to another thread,
//! use `into_std` and `from_std`:
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
