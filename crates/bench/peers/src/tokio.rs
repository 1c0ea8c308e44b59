//! On which runtime do the servers on tokio run? One thread: they get one core.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use ::tokio::net::{TcpListener, TcpSocket};
use ::tokio::runtime::Builder;

use crate::routes::BLOCKING_THREADS;

pub fn run<F: Future>(future: F) -> io::Result<F::Output> {
    let runtime =
        Builder::new_current_thread().enable_all().max_blocking_threads(BLOCKING_THREADS).build()?;
    Ok(runtime.block_on(future))
}

pub fn listen(port: u16) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_nodelay(true)?;
    socket.bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port).into())?;
    socket.listen(4096)
}
