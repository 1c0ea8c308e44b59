//! The runtime of the servers on tokio. With one core, it uses one thread, which is the cheaper runtime. With more
//! cores, it uses a thread for each.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use ::tokio::net::{TcpListener, TcpSocket};
use ::tokio::runtime::Builder;

use crate::routes::BLOCKING_THREADS;

pub fn run<F: Future>(workers: usize, future: F) -> io::Result<F::Output> {
    let mut builder = if workers == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    // No effect with one thread.
    builder.worker_threads(workers);
    let runtime = builder.enable_all().max_blocking_threads(BLOCKING_THREADS).build()?;
    Ok(runtime.block_on(future))
}

pub fn listen(port: u16) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_nodelay(true)?;
    socket.bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port).into())?;
    socket.listen(4096)
}
