//! Opens many connections, one request each, and holds them.

use std::io::{self, ErrorKind, Read};
use std::net::Ipv4Addr;

use super::Group;
use super::probe::connect;
use super::response::ResponseParser;
use super::wire::{Stream, blocking};
use crate::failure::{Failure, Result};
use crate::interrupt;

/// Below the 28,000 ports that Linux has for one source address by default.
const PER_SOURCE: usize = 20_000;

/// Connections that have been answered once, and those that have not.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    pub(crate) connections: Vec<Box<dyn Stream>>,
    pub(crate) failed: usize,
}

/// Opens `count` keep-alive connections and makes one request of `group` on each. Ends with the first one that is kept waiting: the
/// server may hold no more than it has threads for, and the rest would wait as long, one by one.
pub(crate) fn open(port: u16, count: usize, group: &Group) -> Result<Idle> {
    let request = group.request(port, false);
    let mut idle = Idle::default();
    for at in 0..count {
        interrupt::check()?;
        let stream = connect(port, source(at))
            .map_err(|error| Failure::step(format!("idle connection {at} of {count}"), error))?;
        let mut stream = blocking(group.tls, stream)?;
        match stream.write_all(&request).and_then(|()| read_answer(&mut stream)) {
            Ok(true) => idle.connections.push(stream),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                idle.failed = count - idle.connections.len();
                return Ok(idle);
            }
            Ok(false) | Err(_) => idle.failed += 1,
        }
    }
    Ok(idle)
}

/// A source address that has a port left for the client of this number.
pub(crate) fn source(at: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, u8::try_from(1 + at / PER_SOURCE).unwrap_or(u8::MAX))
}

/// Whether a whole answer came that is good and leaves the connection open.
pub(crate) fn read_answer(stream: &mut impl Read) -> io::Result<bool> {
    let mut parser = ResponseParser::default();
    let mut input = [0; 4096];
    loop {
        let received = stream.read(&mut input)?;
        match parser.feed(&input[..received]) {
            Ok((_, Some(answer))) => return Ok((200..300).contains(&answer.status) && !answer.close),
            Ok(_) if received > 0 => {}
            _ => return Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;
    use crate::workloads::HEALTH;

    #[test]
    fn a_server_that_keeps_one_waiting_is_asked_no_more() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut first, _) = listener.accept().unwrap();
            let _ = first.read(&mut [0; 1024]).unwrap();
            first.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK").unwrap();
            (first, listener)
        });
        let idle = open(port, 1000, &HEALTH).unwrap();
        assert_eq!((idle.connections.len(), idle.failed), (1, 999));
        drop(server.join().unwrap());
    }
}
