//! Tests that a server stops while its log is stuck, so that every thread that logs waits forever. Each test
//! runs in a process of its own, because the log and the signals belong to the process.

// Each test binary uses a part of it.
#[allow(dead_code)]
mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use support::{Client, eventually};
use weftwork::{Request, Server};

const CHILD: &str = "WEFTWORK_TEST_STUCK_LOG";
const LISTENING: &str = "listening at ";
/// Longer than any test: a test that waits for it hangs.
const LONG: Duration = Duration::from_secs(3600);

/// Passes the first line, which names the server's address. If it is to be stuck, it blocks every later line.
/// All lines also go to standard output.
struct Log {
    is_stuck: bool,
    is_full: AtomicBool,
}

impl log::Log for Log {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        println!("{}", record.args());
        while self.is_full.swap(self.is_stuck, Ordering::SeqCst) {
            std::thread::park();
        }
    }

    fn flush(&self) {}
}

/// A server in a process of its own, and its log.
struct Served {
    child: Child,
    said: BufReader<Box<dyn Read>>,
    address: String,
}

impl Served {
    /// `role` is "stuck", "stuck, handlers are quick" (handlers log nothing there), "fine", "fine, panics are logged", or
    /// "no logger".
    fn start(role: &str) -> Served {
        Served::start_in("adaptive", role)
    }

    fn start_in(engine: &str, role: &str) -> Served {
        Served::start_with(engine, role, |_| {})
    }

    fn start_with(engine: &str, role: &str, change: impl FnOnce(&mut Command)) -> Served {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "serves", "--nocapture"]).env(CHILD, role).env("WEFT_ENGINE", engine);
        change(&mut child);
        let has_logger = role != "no logger";
        let log = if has_logger {
            child.stdout(Stdio::piped())
        } else {
            child.stdout(Stdio::null()).stderr(Stdio::piped())
        };
        let mut child = log.spawn().unwrap();
        let said: Box<dyn Read> = match has_logger {
            true => Box::new(child.stdout.take().unwrap()),
            false => {
                let stderr = child.stderr.take().unwrap();
                rustix::pipe::fcntl_setpipe_size(&stderr, 4096).unwrap();
                Box::new(stderr)
            }
        };
        let said = BufReader::new(said);
        let mut served = Served { child, said, address: String::new() };
        let line = served.says(LISTENING);
        let address = line.split(LISTENING).nth(1).and_then(|rest| rest.split(',').next());
        address.unwrap().clone_into(&mut served.address);
        served
    }

    #[track_caller]
    fn says(&mut self, part: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "it ended and did not say {part:?}");
            if line.contains(part) {
                return line;
            }
        }
    }

    fn ask(&self, path: &str) -> TcpStream {
        let mut client = TcpStream::connect(&self.address).unwrap();
        write!(client, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        client
    }

    fn signal(&self) {
        // The process may have ended just now.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
    }

    /// Returns also the rest of its log.
    #[track_caller]
    fn ends(mut self, mut meanwhile: impl FnMut(&Served)) -> (ExitStatus, String) {
        let mut status = None;
        eventually("the server ends", || {
            meanwhile(&self);
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        (status.unwrap(), rest)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // If the test fails. Otherwise the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The processes of the other tests run it. It does nothing by itself.
#[test]
fn serves() {
    let Ok(role) = std::env::var(CHILD) else { return };
    let is_stuck = role.starts_with("stuck");
    if role == "fine, panics are logged" {
        weftwork::log_panics();
    }
    if role != "no logger" {
        let log = Log { is_stuck, is_full: AtomicBool::new(false) };
        log::set_logger(Box::leak(Box::new(log))).unwrap();
        log::set_max_level(log::LevelFilter::Info);
    }
    let server = Server::bind("127.0.0.1:0").unwrap();
    let warn_after = if role == "stuck, handlers are quick" { LONG } else { Duration::from_millis(1) };
    let server = server.settings(|settings| settings.drain_timeout(LONG).handler_warn_after(warn_after));
    let status = server.status();
    let handler = move |req: &mut Request| -> weftwork::Result<String> {
        match req.path() {
            "/stay" => {
                println!("in the handler");
                std::thread::sleep(LONG);
            }
            "/fail" => Err(std::io::Error::other("as asked"))?,
            "/panic" => panic!("as asked"),
            "/dropped" => return Ok(status.stats().log_lines_dropped.to_string()),
            _ => {}
        }
        Ok("hello".into())
    };
    server.run(handler).unwrap();
}

#[test]
fn a_signal_ends_an_idle_server() {
    let served = Served::start("stuck");
    served.signal();
    let (status, rest) = served.ends(|_| {});
    assert!(status.success() && !rest.contains("stopped in"), "{status} {rest}");
}

/// The thread that watches handlers is stuck as well, in the line that reports the time of this handler.
#[test]
fn further_signals_end_a_draining_server() {
    let mut served = Served::start("stuck");
    let _waits = served.ask("/stay");
    served.says("in the handler");
    served.says("GET /stay");
    // Signals of the first half second count as one. Once everything is cut, one more signal ends the process.
    let (status, _) = served.ends(Served::signal);
    assert!(status.success() || status.signal() == Some(Signal::TERM.as_raw()), "{status}");
}

/// Lines of every level and of every kind of thread wait for the log. Nothing else does.
#[test]
fn requests_go_on_and_one_signal_ends_it() {
    for engine in support::ENGINES.iter().map(ToString::to_string) {
        let served = Served::start_in(&engine, "stuck, handlers are quick");
        for _ in 0..3 {
            is_answered(&mut served.ask("/fail"), "500");
            is_answered(&mut served.ask("/panic"), "500");
            let mut bad = TcpStream::connect(&served.address).unwrap();
            bad.write_all(b"bad\r\n\r\n").unwrap();
            is_answered(&mut bad, "400");
            is_answered(&mut served.ask("/"), "200");
        }
        served.signal();
        let (status, rest) = served.ends(|_| {});
        assert!(status.success(), "{engine}: {status}");
        assert!(!rest.contains("a handler panicked"), "{engine}: the log was not stuck: {rest}");
    }
}

/// A panic writes to stderr, on the thread of its handler, unless it is logged.
#[test]
fn panics_go_on_with_a_stderr_that_nobody_reads() {
    for engine in support::ENGINES.iter().map(ToString::to_string) {
        // Nobody reads the log meanwhile, so it has to fit into its pipe.
        for (backtrace, count) in [("0", 200), ("1", 3)] {
            let (_unread, mut stderr) = std::io::pipe().unwrap();
            rustix::pipe::fcntl_setpipe_size(&stderr, 4096).unwrap();
            let room = rustix::pipe::fcntl_getpipe_size(&stderr).unwrap();
            stderr.write_all(&vec![b'.'; room]).unwrap();
            let role = "fine, panics are logged";
            let served = Served::start_with(&engine, role, |child| {
                child.stderr(stderr).env("RUST_BACKTRACE", backtrace);
            });
            for _ in 0..count {
                is_answered(&mut served.ask("/panic"), "500");
            }
            is_answered(&mut served.ask("/"), "200");
            served.signal();
            let (status, log) = served.ends(|_| {});
            assert!(status.success(), "{engine}: {status}");
            let lines = |part: &str| log.lines().filter(|line| line.contains(part)).count();
            assert_eq!(lines("panicked at crates/weftwork/tests/stuck_log.rs:"), count, "{engine}: {log}");
            assert_eq!(lines("a handler panicked at GET /panic: as asked"), count, "{engine}: {log}");
            assert_eq!(lines("  0: ") > 0, backtrace == "1", "{engine}: {log}");
        }
    }
}

#[track_caller]
fn is_answered(client: &mut TcpStream, status: &str) {
    client.set_read_timeout(Some(support::TIMEOUT)).unwrap();
    let mut line = [0; 12];
    client.read_exact(&mut line).unwrap();
    assert_eq!(line, *format!("HTTP/1.1 {status}").as_bytes());
}

/// More lines wait than the queue holds.
#[test]
fn lines_that_do_not_fit_are_counted() {
    for engine in support::ENGINES.iter().map(ToString::to_string) {
        let served = Served::start_in(&engine, "stuck, handlers are quick");
        let mut client = TcpStream::connect(&served.address).unwrap();
        client.set_read_timeout(Some(support::TIMEOUT)).unwrap();
        let mut writer = client.try_clone().unwrap();
        let asks = std::thread::spawn(move || {
            let failing = b"GET /fail HTTP/1.1\r\nHost: a\r\n\r\n".repeat(5000);
            writer.write_all(&failing).unwrap();
            writer.write_all(b"GET /dropped HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        });
        let mut said = String::new();
        client.read_to_string(&mut said).unwrap();
        asks.join().unwrap();
        let dropped = said.rsplit("\r\n\r\n").next().unwrap();
        assert!(dropped.parse::<u64>().is_ok_and(|count| count > 0), "{engine}: {dropped:?}");
        served.signal();
        assert!(served.ends(|_| {}).0.success(), "{engine}");
    }
}

#[test]
fn a_working_log_gets_both_lines_in_order() {
    let served = Served::start("fine");
    served.signal();
    let (status, rest) = served.ends(|_| {});
    let (stopping, stopped) = (rest.find("stopping: "), rest.find("stopped in "));
    assert!(status.success() && stopping.is_some() && stopping < stopped, "{status} {rest}");
}

/// The address is on stderr, or the start of the server would fail here.
#[test]
fn without_a_logger_stderr_has_the_address_and_the_errors() {
    let mut served = Served::start("no logger");
    is_answered(&mut served.ask("/fail"), "500");
    let line = served.says("a handler failed");
    assert!(line.starts_with("weftwork: error: a handler failed at GET /fail: as asked ("), "{line}");
    let mut bad = TcpStream::connect(&served.address).unwrap();
    bad.write_all(b"bad\r\n\r\n").unwrap();
    is_answered(&mut bad, "400");
    served.signal();
    let (status, rest) = served.ends(|_| {});
    assert!(status.success() && rest.is_empty(), "{status} {rest}");
}

#[test]
fn without_a_logger_a_stderr_that_is_not_read_holds_up_no_request() {
    for engine in support::ENGINES.iter().map(ToString::to_string) {
        let served = Served::start_in(&engine, "no logger");
        // Many times what fits into the pipe.
        for _ in 0..200 {
            is_answered(&mut served.ask("/fail"), "500");
        }
        is_answered(&mut served.ask("/"), "200");
        served.signal();
        let (status, rest) = served.ends(|_| {});
        let lines = rest.lines().filter(|line| line.contains("a handler failed")).count();
        assert!(status.success() && (1..200).contains(&lines), "{engine}: {status}, {lines} lines");
    }
}

#[test]
fn one_server_can_turn_stderr_off_for_all() {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "fails_in_silence_and_then_aloud", "--nocapture"]).env(CHILD, "silent");
    let output = child.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.lines().count() == 1 && said.contains("a handler failed at GET /aloud: as asked"), "{said}");
}

/// The process of the test above runs it. It does nothing by itself.
#[test]
fn fails_in_silence_and_then_aloud() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let start = |stderr_log| {
        let server = Server::bind("127.0.0.1:0").unwrap().settings(|s| s.stderr_log(stderr_log));
        let fails = |_: &mut Request| -> weftwork::Result<()> { Err(std::io::Error::other("as asked"))? };
        server.start(fails).unwrap()
    };
    let (silent, aloud) = (start(false), start(true));
    assert_eq!(Client::connect(&aloud).get("/silent").status, 500);
    drop(silent);
    assert_eq!(Client::connect(&aloud).get("/aloud").status, 500);
}
