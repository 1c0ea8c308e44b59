//! Tests that many slow clients do not delay quick ones, and are disconnected at their deadline.

use std::time::Duration;

use super::CASE;
use crate::support::{Client, Guarantee, eventually};

const CLIENTS: usize = 500;
/// The same where each client has a thread, of which 128 wait at a time.
const CLIENTS_WITH_THREADS: usize = 200;
/// The value of `standby_kept`.
const STANDBY: usize = 8;

/// `weftwork-bench slow-heads` does the same with ten thousand clients, and takes longer.
#[test]
fn slow_heads() {
    const HEAD: &[u8] = b"GET /";
    let costs_no_thread = CASE.guarantees(Guarantee::ClientsCostNoThread);
    let (timeout, count) = if costs_no_thread { (2, CLIENTS) } else { (1, CLIENTS_WITH_THREADS) };
    let timeout = Duration::from_secs(timeout);
    let site = CASE.start_with(|s| s.head_timeout(timeout).threads_max(128));
    site.client().get("/").is(200, "hello");
    let idle = site.running.threads();
    let connect = || {
        let mut client = site.client();
        // Clients that have sent nothing for a second are closed for those that wait.
        client.send_ahead(&HEAD[..1]);
        client
    };
    let mut clients: Vec<Client> = (0..count).map(|_| connect()).collect();
    for byte in HEAD[1..].chunks(1) {
        for client in &mut clients {
            drop(client.try_send(byte));
        }
        if costs_no_thread {
            site.client().get("/").is(200, "hello");
            // A busy machine may keep a leader off its core for so long that it counts as blocked.
            let threads = site.running.threads();
            assert!(threads <= idle + STANDBY, "{threads} threads, {idle} at idle");
        }
        assert!(site.running.threads() <= site.running.settings().threads_max);
    }
    // On engines with a thread for each connection, later clients wait for earlier ones.
    eventually("all of them are ended", || site.running.stats().timeouts >= count as u64);
    for client in clients {
        let response = client.rest();
        assert!(response.starts_with(b"HTTP/1.1 408 "), "{:?}", String::from_utf8_lossy(&response));
    }
    site.is_well();
}
