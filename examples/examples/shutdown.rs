//! Graceful shutdown that tells a load balancer first: `cargo run -p weftwork-examples --example shutdown`,
//! then press Ctrl-C during a request.

use std::time::Duration;

use weftwork::Signals;
use weftwork::prelude::*;

/// Takes a moment and is not interrupted. `/ready` is for a load balancer, which sends no more requests after a
/// 503. `drain_delay` gives it the time to notice.
fn site(req: &mut Request) -> Response {
    match req.path() {
        "/ready" if req.is_stopping() => text("stopping\n").with_status(StatusCode::SERVICE_UNAVAILABLE),
        "/ready" => text("ready\n"),
        _ => {
            weftwork::sleep(Duration::from_millis(300));
            text("done\n")
        }
    }
}

fn main() -> weftwork::Result<()> {
    // Installed before the start, so that no signal is missed.
    let signals = Signals::install()?;
    let seconds = Duration::from_secs;
    let server =
        Server::bind("127.0.0.1:8080")?.settings(|s| s.drain_delay(seconds(5)).drain_timeout(seconds(20)));
    let running = server.start(site)?;
    println!("at {:?}; stop with Ctrl-C, twice to stop at once", running.local_addr());
    let report = running.wait(signals)?;
    println!("{report}");
    // Flush and close what the handlers used here. No handler runs any more.
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_request_in_flight_is_finished() {
        let running = Server::bind("127.0.0.1:0").unwrap().start(site).unwrap();
        let mut client = TcpStream::connect(running.local_addr().unwrap()).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        while running.stats().accepted == 0 {
            std::thread::yield_now();
        }
        let report = running.shutdown(Duration::from_secs(10));
        assert_eq!((report.drained, report.cut), (1, 0), "{report}");
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("Connection: close\r\n") && answer.ends_with("done\n"), "{answer}");
    }

    #[test]
    fn a_load_balancer_sees_the_drain_first() {
        let server = Server::bind("127.0.0.1:0").unwrap();
        let running = server.settings(|s| s.drain_delay(Duration::from_secs(10))).start(site).unwrap();
        let (status, address) = (running.status(), running.local_addr().unwrap());
        let ready = || {
            let mut client = TcpStream::connect(address).unwrap();
            client.write_all(b"GET /ready HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            answer
        };
        assert!(ready().starts_with("HTTP/1.1 200 "));
        // Not joined: nothing waits for the end of the delay.
        std::thread::spawn(move || running.shutdown(Duration::from_secs(1)));
        while !status.is_stopping() {
            std::thread::yield_now();
        }
        assert!(ready().starts_with("HTTP/1.1 503 "));
    }
}
