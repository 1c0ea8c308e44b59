//! A server that ends in good order: `cargo run --example shutdown`, then Ctrl-C in the middle of a request.

use std::time::Duration;

use weftwork::Signals;
use weftwork::prelude::*;

/// Takes a moment, and is not interrupted.
fn slow(_: &mut Request) -> String {
    weftwork::sleep(Duration::from_millis(300));
    "done\n".into()
}

fn main() -> weftwork::Result<()> {
    // Before the start, so that no signal comes in between.
    let signals = Signals::install()?;
    let server = Server::bind("127.0.0.1:8080")?.settings(|s| s.drain_timeout(Duration::from_secs(10)));
    let running = server.start(slow)?;
    println!("at {:?}; stop with Ctrl-C, twice to stop at once", running.local_addr());
    let report = running.wait(signals)?;
    println!("{report}");
    // Here is the place to flush and to close what the handlers used: none of them runs any more.
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_request_in_flight_is_finished() {
        let running = Server::bind("127.0.0.1:0").unwrap().start(slow).unwrap();
        let mut client = TcpStream::connect(running.local_addr().unwrap()).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        while running.counts().accepted == 0 {
            std::thread::yield_now();
        }
        let report = running.shutdown(Duration::from_secs(10));
        assert_eq!((report.drained, report.cut), (1, 0), "{report}");
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("Connection: close\r\n") && answer.ends_with("done\n"), "{answer}");
    }
}
