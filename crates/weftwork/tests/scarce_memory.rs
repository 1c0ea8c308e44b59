//! Tests how fibers continue when the memory for stacks and threads is used up. It runs in a process of its
//! own.
#![cfg(all(target_os = "linux", feature = "fibers"))]

// Each test binary uses a part of it.
#[allow(dead_code, unused_imports)]
mod support;

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{Client, eventually, is_logged, keep_log, logged};
use weftwork::{Engine, Request, Response, Running, Server};

const STACK_BYTES: u64 = 1 << 30;

fn start() -> Running {
    let server = Server::bind("127.0.0.1:0").unwrap().engine(Engine::Fibers { threads: Some(1) });
    let server = server.settings(|s| s.fiber_stack_bytes(STACK_BYTES));
    let running = server.start(|req: &mut Request| match req.path() {
        "/hour" => {
            weftwork::sleep(Duration::from_secs(3600));
            Response::text("late")
        }
        "/blocking" => Response::text(weftwork::blocking(|| "done")),
        _ => Response::text("hello"),
    });
    running.unwrap()
}

/// Limits the address space of the process to this many bytes more than now, while `act` runs.
fn with_memory<T>(bytes: u64, act: impl FnOnce() -> T) -> T {
    let all = getrlimit(Resource::As);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let size: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
    setrlimit(Resource::As, Rlimit { current: Some(size * 1024 + bytes), ..all }).unwrap();
    let done = act();
    setrlimit(Resource::As, all).unwrap();
    done
}

/// One test, because the limit belongs to the whole process.
#[test]
fn without_memory_the_log_names_the_missing_resource() {
    keep_log();
    let running = start();
    let mut other = Client::connect(&running);
    other.get("/").is(200, "hello");

    // There is enough memory for everything except another thread. The call still runs.
    with_memory(1 << 20, || other.get("/blocking").is(200, "done"));
    is_logged(&["the system refuses another thread for weftwork::blocking", "0 are there", "pids.max"]);

    let mut held = Client::connect(&running);
    held.send("GET /hour HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it has its stack", || running.stats().requests == 3);
    let refusal = with_memory(STACK_BYTES / 2, || {
        other.send("GET /hour HTTP/1.1\r\nHost: a\r\n\r\n");
        other.answer()
    });
    assert!(refusal.status == 503 && refusal.text().contains("too busy"), "{refusal:?}");
    is_logged(&[
        "no memory, or no more mappings (vm.max_map_count), for a fiber's stack; fiber_stack_bytes is 1GiB",
    ]);
    assert!(logged(&["queue_max"]).is_empty());
}
