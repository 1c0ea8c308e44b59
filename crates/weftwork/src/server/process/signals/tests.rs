//! Tests that run in a process of their own, because signals affect the whole process.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::*;

const CHILD: &str = "WEFTWORK_TEST_SIGNALS";
const READY: &str = "the signals are set";

#[test]
fn signals_end_the_process_again_without_a_waiter() {
    if let Ok(role) = std::env::var(CHILD) {
        return play(&role);
    }
    let cases = [
        ("dropped", Signal::TERM, true),
        ("dropped twice", Signal::INT, true),
        ("one is left", Signal::TERM, false),
        ("dropped", Signal::USR1, false),
        ("dropped twice", Signal::USR2, false),
        ("dropped", Signal::HUP, false),
    ];
    for (role, signal, ends) in cases {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let name = "server::process::signals::tests::signals_end_the_process_again_without_a_waiter";
        child.args(["--exact", name, "--nocapture"]).env(CHILD, role);
        // stderr is no terminal.
        let child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = child.spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(io::Result::ok);
        assert!(said.any(|line| line.contains(READY)), "{role}");
        kill_process(Pid::from_child(&child), signal).unwrap();
        // A process that has not ended reads the end of its input, and then exits.
        drop(child.stdin.take());
        let status = child.wait().unwrap();
        let expected = if ends { Some(signal.as_raw()) } else { None };
        assert_eq!((status.signal(), status.success()), (expected, !ends), "{role} {signal:?}: {status}");
    }
}

/// The process that replaces this one becomes ready just as another signal arrives, and one read takes both bytes.
#[test]
fn a_waker_is_not_lost_beside_a_signal() {
    let mut signals = Signals::try_install(&[]).unwrap();
    for (flag, event) in [
        (signals.flags.usr1.clone(), SignalEvent::ReopenLogs),
        (signals.flags.usr2.clone(), SignalEvent::Replace),
    ] {
        for round in 0..20 {
            let (flag, mut waker) = (flag.clone(), signals.waker().unwrap());
            let both = std::thread::spawn(move || {
                flag.store(true, Ordering::SeqCst);
                waker.woken.store(true, Ordering::SeqCst);
                waker.written.write_all(&[0, 0]).unwrap();
            });
            let mut seen = vec![signals.wait(None).unwrap()];
            both.join().unwrap();
            while let Some(event) = signals.wait(Some(Duration::from_millis(1))).unwrap() {
                seen.push(Some(event));
            }
            // The waiter may see the second one first.
            let has = |event| seen.contains(&Some(event));
            assert!(has(event) && has(SignalEvent::Woken), "round {round}: {seen:?}");
        }
    }
}

/// Returns whether this process ignores the signal, as far as the system tells.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    (ignored >> (signal.as_raw() - 1)) & 1 == 1
}

/// [`Server::run`](crate::Server::run) handles all signals, unless the setting leaves some to the program.
#[test]
fn a_server_goes_on_after_signals_of_operators() {
    if let Ok(setting) = std::env::var(CHILD) {
        let server = crate::Server::bind("127.0.0.1:0").unwrap().set("maintenance_signals", &setting);
        let server = server.unwrap();
        println!("{READY} {}", server.addresses()[0]);
        return server.run(|_: &mut crate::Request<'_>| "hello").unwrap();
    }
    for (setting, signal) in [
        ("on", Signal::HUP),
        ("on", Signal::USR1),
        ("off", Signal::HUP),
        ("off", Signal::USR1),
        ("off", Signal::USR2),
    ] {
        if setting == "off" && is_ignored(signal) {
            println!("not checked: {signal:?} is ignored here, as by nohup(1), and a child inherits that");
            continue;
        }
        let mut child = Command::new(std::env::current_exe().unwrap());
        let name = "server::process::signals::tests::a_server_goes_on_after_signals_of_operators";
        child.args(["--exact", name, "--nocapture"]).env(CHILD, setting);
        let mut child = child.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(io::Result::ok);
        let line = said.find(|line| line.contains(READY)).unwrap();
        let address = line.rsplit(' ').next().unwrap();
        // The signals are handled before the server listens.
        while std::net::TcpStream::connect(address).is_err() {
            assert!(child.try_wait().unwrap().is_none());
            std::thread::yield_now();
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let status = child.wait().unwrap();
        let expected = if setting == "on" { None } else { Some(signal.as_raw()) };
        assert_eq!((status.signal(), status.success()), (expected, setting == "on"), "{setting} {signal:?}");
    }
}

/// The drop of the signals is stopped halfway, at the lock. The actions must still be there.
#[test]
fn the_default_is_back_before_the_actions_go() {
    let signals = Signals::install().unwrap();
    let mut pipe = signals.pipe.try_clone().unwrap();
    let lock = installed();
    let dropped = std::thread::spawn(move || drop(signals));
    pipe.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let read = pipe.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(read, Err(io::ErrorKind::WouldBlock), "the last action holds the other end");
    drop(lock);
    dropped.join().unwrap();
    pipe.set_read_timeout(None).unwrap();
    assert_eq!(pipe.read(&mut [0]).unwrap(), 0, "now it is gone");
}

fn play(role: &str) {
    let first = Signals::install().unwrap();
    let left = (role == "one is left").then(|| Signals::install().unwrap());
    drop(first);
    if role == "dropped twice" {
        drop(Signals::install().unwrap());
    }
    println!("{READY}");
    io::stdout().flush().unwrap();
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
    if let Some(mut left) = left {
        assert_eq!(left.wait(Some(Duration::from_secs(10))).unwrap(), Some(SignalEvent::Stop));
    }
}
