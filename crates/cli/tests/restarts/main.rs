//! Tests that restarts under load lose no request: in place by SIGUSR2, and one instance after the other behind HAProxy.
//!
//! `WEFT_TEST_REQUESTS=10000` sets the number of requests of each run. `WEFT_TEST_ENGINE=pool` runs one engine, also behind
//! HAProxy, where the instances otherwise have different engines.

// Each test binary uses a part of it.
#[allow(dead_code)]
#[path = "../weft/client.rs"]
mod client;
mod fronts;
mod load;
#[allow(dead_code)]
#[path = "../weft/process.rs"]
mod process;

use std::time::{Duration, Instant};

use fronts::{Front, HaProxy, Nginx};
use load::Load;
use process::{Weft, signal};

const ENGINES: [&str; 5] = ["adaptive", "reactor", "workers", "pool", "fibers"];

/// Returns the engine that was asked for.
fn engine() -> Option<&'static str> {
    let name = std::env::var("WEFT_TEST_ENGINE").ok()?;
    Some(ENGINES.into_iter().find(|engine| *engine == name).expect("WEFT_TEST_ENGINE names an engine"))
}

/// Returns the engines of the tests in place.
fn engines() -> Vec<&'static str> {
    engine().map_or(ENGINES.to_vec(), |engine| vec![engine])
}

/// Replacements of a run.
const REPLACEMENTS: usize = 3;

/// A process, and those that have replaced it. The first one's stderr is the stderr of all of them.
struct Replaced {
    first: Weft,
    newest: u32,
}

impl Replaced {
    fn start(engine: &str) -> Replaced {
        let first = Weft::start(&format!("--port 0 --log info --engine {engine}"));
        Replaced { newest: first.id(), first }
    }

    fn replace(&mut self) {
        signal(self.newest, "-USR2");
        let line = self.first.wait_for("replaced by process ");
        let (_, after) = line.split_once("replaced by process ").unwrap();
        self.newest = after.split(':').next().unwrap().parse().unwrap();
    }
}

impl Drop for Replaced {
    fn drop(&mut self) {
        if self.newest != self.first.id() {
            signal(self.newest, "-KILL");
        }
    }
}

fn replaced_under_load(engine: &str, front: Option<fn(&str) -> Option<Front>>) {
    let mut server = Replaced::start(engine);
    let address = server.first.address();
    let front = match front.map(|start| start(&address)) {
        Some(None) => return,
        Some(front) => front,
        None => None,
    };
    let load = Load::start(front.as_ref().map_or(&address, |front| &front.address));
    for round in 1..=REPLACEMENTS {
        load.wait_for(load::requests() * round / (REPLACEMENTS + 1));
        server.replace();
    }
    load.wait_for(load::requests());
    // During this time the last replaced process ends, so its idle connections are closed under load.
    load.go_on(Duration::from_millis(1500));
    load.end(engine);
}

#[test]
fn a_replacement_in_place_loses_no_request_of_kept_clients() {
    for engine in engines() {
        replaced_under_load(engine, None);
    }
}

#[test]
fn a_replacement_in_place_loses_no_request_behind_nginx_without_retries() {
    for engine in engines() {
        replaced_under_load(engine, Some(|address| Nginx::start(&[address])));
    }
}

struct Instance {
    weft: Option<Weft>,
    engine: &'static str,
    address: String,
}

impl Instance {
    fn start(engine: &'static str) -> Instance {
        let weft = Weft::start(&Instance::line(engine, "127.0.0.1:0"));
        let address = weft.address();
        Instance { weft: Some(weft), engine, address }
    }

    fn line(engine: &str, address: &str) -> String {
        format!("--bind {address} --engine {engine} --drain-delay 1s --http2-cleartext on")
    }

    fn restart(&mut self) {
        let mut weft = self.weft.take().unwrap();
        weft.signal("-TERM");
        assert_eq!(weft.exit_code(), Some(0), "{}", self.engine);
        self.weft = Some(Weft::start(&Instance::line(self.engine, &self.address)));
    }
}

#[test]
fn a_rolling_restart_behind_haproxy_loses_no_request() {
    rolling_restart("");
}

#[test]
fn a_rolling_restart_behind_haproxy_with_http2_loses_no_request() {
    rolling_restart("proto h2");
}

/// Restarts one instance after the other. HAProxy has `more` for each of them.
fn rolling_restart(more: &str) {
    let mixed = [["adaptive", "reactor", "workers"], ["pool", "fibers", "adaptive"]];
    for engines in engine().map_or(mixed.to_vec(), |engine| vec![[engine; 3]]) {
        let mut instances = engines.map(Instance::start);
        let addresses: Vec<&str> = instances.iter().map(|instance| instance.address.as_str()).collect();
        let Some(front) = HaProxy::start(&addresses, more) else { return };
        front.wait_until_up(3);
        let load = Load::start(&front.address);
        let count = instances.len();
        for (round, instance) in instances.iter_mut().enumerate() {
            load.wait_for(load::requests() * (round + 1) / (count + 1));
            instance.restart();
            front.wait_until_up(3);
        }
        load.wait_for(load::requests());
        load.end(&format!("{} {more}", engines.join(" ")));
    }
}

/// Returns once `holds` does.
#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
