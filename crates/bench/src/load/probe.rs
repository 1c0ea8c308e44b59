//! Sends a server a single request.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::time::{Duration, Instant};

use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

use super::Group;
use super::response::ResponseParser;
use super::wire::blocking;
use crate::failure::{Failure, Result};

const TIMEOUT: Duration = Duration::from_secs(2);

/// One answer, whole.
#[derive(Debug)]
pub(crate) struct Probed {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    /// Head and body, as they came.
    pub(crate) wire_bytes: usize,
    pub(crate) took: Duration,
}

/// Asks once, on a connection of its own.
pub(crate) fn probe(port: u16, group: &Group) -> Result<Probed> {
    let socket = connect(port, Ipv4Addr::LOCALHOST)?;
    let start = Instant::now();
    let request = group.request(port, group.close);
    let mut writer = socket.try_clone()?;
    let mut stream = blocking(group.tls, socket)?;
    let asking = match group.tls {
        Some(_) => stream.write_all(&request).map(|()| None)?,
        // Large bodies are sent and received at once: a server that echoes need not hold them.
        None => Some(std::thread::spawn(move || writer.write_all(&request))),
    };
    let mut parser = ResponseParser::keeping();
    let mut wire_bytes = 0;
    let mut input = vec![0; 64 * 1024];
    let status = loop {
        let received = stream.read(&mut input).map_err(|error| Failure::step(group.path, error))?;
        let fed = parser.feed(&input[..received]);
        let (used, answer) = fed.map_err(|_| Failure::step(group.path, "the answer is not HTTP"))?;
        wire_bytes += used;
        match answer.or_else(|| if received == 0 { parser.end() } else { None }) {
            Some(answer) => break answer.status,
            None if received == 0 => return Err(Failure::step(group.path, "closed without an answer")),
            None => {}
        }
    };
    let took = start.elapsed();
    // Its outcome is in the answer.
    let _ = asking.map(std::thread::JoinHandle::join);
    Ok(Probed { status, body: parser.into_body(), wire_bytes, took })
}

pub(crate) fn connect(port: u16, source: Ipv4Addr) -> io::Result<TcpStream> {
    let socket = net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if source != Ipv4Addr::LOCALHOST {
        net::bind(&socket, &SocketAddrV4::new(source, 0))?;
    }
    // Where the queue of a listener is full, a connect would be tried again for minutes.
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(TIMEOUT))?;
    net::connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(None)?;
    Ok(stream)
}
