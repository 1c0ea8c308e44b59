//! Tests of the signals that a server survives: reload, and logs that are opened again.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;

use rustix::pty::OpenptFlags;

use crate::logs::lines;
use crate::process::{Weft, command};
use crate::serve::Folder;
use crate::stop::UPLOAD;
use crate::supervised::Supervisor;

pub(crate) const ENGINES: [&str; 5] = ["adaptive", "reactor", "workers", "pool", "fibers"];

#[test]
fn a_request_in_flight_survives_signals_of_operators() {
    for engine in ENGINES {
        let mut weft = Weft::start(&format!("--port 0 --log info --engine {engine}"));
        for (signal, line) in [("-HUP", "SIGHUP: log files are open again"), ("-USR1", "SIGUSR1: log files")]
        {
            let mut client = weft.connect();
            client.send(b"GET /slow?ms=200 HTTP/1.1\r\nHost: here\r\n\r\n");
            weft.signal(signal);
            weft.wait_for(line);
            assert_eq!(client.answer(false).status, 200, "{engine} {signal}");
            assert_eq!(client.ask("GET /health").status, 200, "{engine} {signal}");
        }
        weft.signal("-TERM");
        assert_eq!(weft.end().0, Some(0), "{engine}");
    }
}

/// As logrotate does it: a rename, and then a signal.
#[test]
fn an_access_log_that_was_renamed_is_opened_again() {
    let folder = Folder::new("rotated");
    let (path, renamed) = (folder.0.join("access.log"), folder.0.join("access.log.1"));
    let line = format!("serve {} --port 0 --log info --access-log {}", folder.path(), path.display());
    let mut weft = Weft::start(&line);
    for signal in ["HUP", "USR1"] {
        assert_eq!(weft.connect().ask("GET /hello.txt").status, 200);
        lines(&path, 1);
        fs::rename(&path, &renamed).unwrap();
        weft.signal(&format!("-{signal}"));
        weft.wait_for(&format!("SIG{signal}: log files are open again"));
    }
    assert_eq!(weft.connect().ask("GET /hello.txt").status, 200);
    lines(&path, 1);
    lines(&renamed, 1);
}

/// A stop has begun, and nothing but SIGTERM and SIGINT cuts it short.
#[test]
fn a_request_survives_them_while_the_server_drains() {
    let mut weft = Weft::start("--port 0 --body-ahead-bytes-max 0 --log info");
    let mut client = weft.connect();
    client.send(UPLOAD);
    assert_eq!((client.head().0, client.chunk().unwrap()), (200, b"one".to_vec()));
    weft.signal("-TERM");
    weft.wait_for("stopping");
    // Signals of the first half second count as one.
    std::thread::sleep(Duration::from_millis(700));
    for signal in ["-USR2", "-HUP", "-USR1"] {
        weft.signal(signal);
    }
    weft.wait_for("SIGUSR1: log files are open again");
    client.send(b"0\r\n\r\n");
    assert_eq!(client.chunk(), None);
    let (_, out, _) = weft.end();
    assert!(out.contains("1 connections drained, 0 cut"), "{out}");
}

#[test]
fn systemd_hears_of_a_reload() {
    let supervisor = Supervisor::new("reload");
    let weft = Weft::start_with("--port 0", &[supervisor.variable()]);
    assert_eq!(supervisor.hears(), "READY=1");
    for _ in 0..2 {
        weft.signal("-HUP");
        let reloading = supervisor.hears();
        assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
        assert_eq!(supervisor.hears(), "READY=1");
    }
}

#[test]
fn they_can_be_left_to_the_program() {
    for signal in ["-HUP", "-USR1", "-USR2"] {
        let weft = Weft::start("--port 0 --maintenance-signals off");
        weft.signal(signal);
        // A process that handles the first signal ends in good order.
        weft.signal("-TERM");
        assert_eq!(weft.end().0, None, "the default action of {signal} ends the process");
    }
}

/// Returns both ends of a terminal. The second one is for the process.
pub(crate) fn terminal() -> (OwnedFd, File) {
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    rustix::pty::grantpt(&master).unwrap();
    rustix::pty::unlockpt(&master).unwrap();
    let name = rustix::pty::ptsname(&master, Vec::new()).unwrap();
    let slave = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    (master, slave)
}

/// A shell sends SIGHUP to its jobs when its window is closed.
#[test]
fn a_hangup_ends_the_process_once_its_terminal_has_gone() {
    let (master, slave) = terminal();
    let mut weft = command("--port 0 --drain-idle-timeout 60s", &[]);
    weft.stdout(Stdio::piped()).stderr(Stdio::from(slave));
    let weft = Weft::start_with_stderr_set(weft);
    weft.signal("-HUP");
    std::thread::sleep(Duration::from_millis(20));
    let mut client = weft.connect();
    assert_eq!(client.ask("GET /health").status, 200, "the terminal is there");
    let mut in_flight = weft.connect();
    in_flight.send(b"GET /slow?ms=300 HTTP/1.1\r\nHost: here\r\n\r\n");
    drop(master);
    weft.signal("-HUP");
    let mut closes = || {
        let answer = client.ask("GET /health");
        assert_eq!(answer.status, 200);
        answer.field("connection") == Some("close")
    };
    assert!((0..100_000).any(|_| closes()), "it ends in good order");
    assert_eq!(in_flight.answer(false).status, 200, "it ends in good order");
    let (code, out, _) = weft.end();
    assert!(code == Some(0) && out.contains("stopped in "), "{code:?} {out}");
}
