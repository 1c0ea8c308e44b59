//! Tests that a limit of the address space makes requests wait, and does not end the process.

use std::process::Command;

use crate::client::Client;
use crate::process::{Weft, command};

/// More clients than a server has threads for.
const CLIENTS: usize = 600;

/// Returns `weft` with a limit in kilobytes.
fn limited(kilobytes: u32, line: &str) -> Command {
    let weft = command(line, &[]);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit -v {kilobytes}; exec \"$0\" \"$@\"")]).arg(weft.get_program());
    shell.args(weft.get_args());
    for (name, value) in weft.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

fn serves_within(kilobytes: u32, arenas: Option<&str>, engine: &str) {
    let case = format!("{kilobytes} kB, {engine}, arenas {arenas:?}");
    let mut shell = limited(kilobytes, &format!("--port 0 --engine {engine} --drain-timeout 0s"));
    arenas.map(|arenas| shell.env("MALLOC_ARENA_MAX", arenas));
    let weft = Weft::start_command(shell);
    // A loop of `fibers` stands still in each of these requests.
    let clients = if engine == "fibers" { 8 } else { CLIENTS };
    let mut clients: Vec<Client> = (0..clients).map(|_| weft.connect()).collect();
    for client in &mut clients {
        client.send(b"GET /slow?ms=300 HTTP/1.1\r\nHost: here\r\n\r\n");
    }
    for client in clients.iter_mut().take(20) {
        let status = client.answer(false).status;
        assert!([200, 503].contains(&status), "{case}: {status}");
    }
    drop(clients);
    assert_eq!(weft.connect().ask("GET /health").status, 200, "{case}");
    weft.signal("-TERM");
    let (code, out, err) = weft.end();
    assert_eq!(code, Some(0), "{case}: {out} {err}");
    let is_warned = err.contains("the limit of the address space") && err.contains("threads (threads_max)");
    assert!(is_warned, "{case}: {err}");
}

#[test]
fn threads_leave_room_for_allocations() {
    for kilobytes in [400_000, 900_000] {
        for arenas in [None, Some("1")] {
            // Threads of `reactor` are for upgraded connections only.
            std::thread::scope(|scope| {
                for engine in ["adaptive", "pool", "workers", "fibers"] {
                    scope.spawn(move || serves_within(kilobytes, arenas, engine));
                }
            });
        }
    }
}
