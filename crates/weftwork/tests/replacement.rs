//! Tests that SIGUSR2 replaces a program with several servers. The test runs itself again as that program.
#![cfg(target_os = "linux")]

// Each test binary uses a part of it.
#[allow(dead_code)]
mod support;

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use support::{Client, ENGINES, eventually};
use weftwork::prelude::*;
use weftwork::{Address, Engine};

const CHILD: &str = "WEFTWORK_TEST_REPLACEMENT";

/// A site, a redirect listener, and a side listener, in one process.
fn program(engine: &str) {
    let engine: Engine = engine.parse().unwrap();
    let redirect = |_: &mut Request| format!("redirect of {}", std::process::id());
    let redirect = Server::bind("127.0.0.1:0").unwrap().engine(engine).start(redirect).unwrap();
    let ready = |req: &mut Request| format!("side {} {}", std::process::id(), req.is_stopping());
    let site = Server::bind("127.0.0.1:0").unwrap().engine(engine).admin("127.0.0.1:0", ready).unwrap();
    let site = site.settings(|s| s.drain_delay(Duration::from_secs(60)).drain_idle_timeout(Duration::ZERO));
    let signals = weftwork::Signals::install().unwrap();
    let running = site.start(|_: &mut Request| format!("site of {}", std::process::id())).unwrap();
    let addresses = [running.addresses(), redirect.addresses(), running.admin_addresses()].concat();
    let texts: Vec<String> = addresses.iter().map(Address::to_string).collect();
    println!("process {} {}", std::process::id(), texts.join(" "));
    let report = running.wait(signals).unwrap();
    println!("end {} {}", std::process::id(), report.cut);
}

struct Program {
    child: Child,
    lines: BufReader<ChildStdout>,
    successor: Option<u32>,
}

impl Program {
    fn start(engine: &str) -> Program {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child
            .args(["--exact", "a_program_with_several_servers_loses_no_request", "--nocapture"])
            .env(CHILD, engine);
        let mut child = child.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Program { child, lines, successor: None }
    }

    /// Returns the words of the next line that starts so.
    fn says(&mut self, start: &str) -> Vec<String> {
        let mut line = String::new();
        while !line.starts_with(start) {
            line.clear();
            assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "the program ended");
            // The test harness of the program does not end its line.
            line = line.split_once("... ").map_or(line.clone(), |(_, rest)| rest.to_owned());
        }
        line.split_whitespace().skip(1).map(str::to_owned).collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(pid) = self.successor.and_then(|pid| Pid::from_raw(pid as i32)) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

#[test]
fn a_program_with_several_servers_loses_no_request() {
    if let Ok(engine) = std::env::var(CHILD) {
        return program(&engine);
    }
    for engine in ENGINES.iter().map(Engine::to_string) {
        let mut program = Program::start(&engine);
        let first = program.says("process ");
        let addresses: Vec<Address> =
            first[1..].iter().map(|text| Address::parse(text).unwrap().remove(0)).collect();
        let [site, redirect, side] = &addresses[..] else { panic!("{first:?}") };
        let mut kept = Client::connect_to(site);
        kept.get("/").is(200, format!("site of {}", first[0]));
        let mut busy = Client::connect_to(redirect);
        for client in [&mut kept, &mut busy] {
            client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n");
        }
        kill_process(Pid::from_child(&program.child), Signal::USR2).unwrap();
        let second = program.says("process ");
        program.successor = second[0].parse().ok();
        assert_eq!(second[1..], first[1..], "{engine}: the addresses are the same");
        assert_ne!(second[0], first[0], "{engine}");
        // Requests are in flight, and probes ask the new process.
        let new = format!("side {} false", second[0]);
        eventually("the process before has left the side listener", || {
            (0..20).all(|_| Client::connect_to(side).get("/").text() == new)
        });
        kept.send("body");
        kept.answer().is(200, format!("site of {}", first[0]));
        drop(kept);
        // The site ends, and a request of the redirect listener is still in flight.
        std::thread::sleep(Duration::from_millis(200));
        busy.send("body");
        busy.answer().is(200, format!("redirect of {}", first[0]));
        assert_eq!(program.says("end "), [first[0].as_str(), "0"], "{engine}: without the drain delay");
        for (address, want) in [(site, "site of"), (redirect, "redirect of")] {
            Client::connect_to(address).get("/").is(200, format!("{want} {}", second[0]));
        }
        Client::connect_to(side).get("/").is(200, new);
        eventually("the process before ends", || program.child.try_wait().unwrap().is_some());
    }
}
