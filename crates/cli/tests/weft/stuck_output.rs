//! Tests that a stderr or stdout that nobody reads holds up nothing but the lines.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::process::{Weft, command, signal};

/// Half of the default of `drain_timeout`, which a server took whose loops were stuck.
const SOON: Duration = Duration::from_secs(12);

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Returns a pipe in which no byte has room.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
    fill(&mut writer);
    (reader, writer)
}

/// Fills a pipe that is empty.
fn fill(pipe: &mut PipeWriter) {
    let room = rustix::pipe::fcntl_getpipe_size(&*pipe).unwrap();
    pipe.write_all(&vec![b'.'; room]).unwrap();
}

fn on_every_engine(check: impl Fn(&str) + Sync) {
    std::thread::scope(|scope| {
        for engine in ["adaptive", "reactor", "workers", "pool", "fibers"] {
            let check = &check;
            std::thread::Builder::new()
                .name(engine.into())
                .spawn_scoped(scope, move || check(engine))
                .unwrap();
        }
    });
}

fn send_malformed(weft: &Weft, count: usize) {
    for _ in 0..count {
        let mut client = weft.connect();
        client.send(b"bad\r\n\r\n");
        assert_eq!(client.answer(false).status, 400);
    }
}

#[test]
fn requests_go_on_and_a_signal_ends_it() {
    on_every_engine(|engine| {
        let (_unread, stderr) = full_pipe();
        let mut command = command(&format!("--port 0 --log info --engine {engine}"), &[]);
        command.stderr(stderr);
        let weft = Weft::start_with_stderr_set(command);
        let mut kept = weft.connect();
        for _ in 0..4 {
            send_malformed(&weft, 5);
            assert_eq!(kept.ask("GET /health").status, 200, "{engine}");
            assert_eq!(weft.connect().ask("GET /slow?ms=5").status, 200, "{engine}");
        }
        weft.signal("-TERM");
        let begun = Instant::now();
        let (code, out, _) = weft.end();
        assert!(code == Some(0) && out.contains(", 0 cut"), "{engine}: {code:?} {out}");
        assert!(begun.elapsed() < SOON, "{engine}: {:?}", begun.elapsed());
    });
}

#[test]
fn lines_are_written_when_somebody_reads_again() {
    on_every_engine(|engine| {
        let (mut unread, stderr) = full_pipe();
        let mut command = command(&format!("--port 0 --log info --engine {engine}"), &[]);
        command.stderr(stderr);
        let weft = Weft::start_with_stderr_set(command);
        send_malformed(&weft, 5);
        assert_eq!(weft.connect().ask("GET /health").status, 200, "{engine}");
        let reads = std::thread::spawn(move || {
            let mut said = String::new();
            unread.read_to_string(&mut said).unwrap();
            said
        });
        weft.signal("-TERM");
        assert_eq!(weft.end().0, Some(0));
        let said = reads.join().unwrap();
        assert_eq!(said.matches(" gets 400: ").count(), 5, "{engine}: {said}");
        assert!(said.contains("weft: info: listening at "), "{engine}: {said}");
    });
}

/// Asks the process to end, and waits.
fn ends_soon(weft: &mut Child, engine: &str) {
    signal(weft.id(), "-TERM");
    let begun = Instant::now();
    while weft.try_wait().unwrap().is_none() && begun.elapsed() < SOON {
        sleep(POLL_INTERVAL);
    }
    let ended = weft.try_wait().unwrap();
    let _ = weft.kill();
    weft.wait().unwrap();
    assert!(ended.is_some_and(|status| status.success()), "{engine}: {ended:?}");
}

#[test]
fn startup_lines_that_nobody_reads_hold_up_no_request_and_no_signal() {
    on_every_engine(|engine| {
        let socket = std::env::temp_dir().join(format!("weft-{}-{engine}.sock", std::process::id()));
        let (_unread, stdout) = full_pipe();
        let mut command = command(&format!("--bind unix:{} --engine {engine}", socket.display()), &[]);
        let mut weft = command.stdout(stdout).stderr(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        while UnixStream::connect(&socket).is_err() && begun.elapsed() < SOON {
            sleep(POLL_INTERVAL);
        }
        let mut client = UnixStream::connect(&socket).unwrap();
        client.write_all(b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{engine}: {answer}");
        ends_soon(&mut weft, engine);
    });
}

/// The thread of the access log waits for a reader, and has locked stdout.
#[test]
fn an_access_log_that_nobody_reads_holds_up_no_request_and_no_signal() {
    on_every_engine(|engine| {
        let (said, mut stdout) = pipe().unwrap();
        let mut command = command(&format!("--port 0 --access-log - --engine {engine}"), &[]);
        command.stdout(stdout.try_clone().unwrap()).stderr(Stdio::null());
        let mut weft = Weft::started(command.spawn().unwrap(), said.into());
        fill(&mut stdout);
        for _ in 0..5 {
            assert_eq!(weft.connect().ask("GET /health").status, 200, "{engine}");
        }
        ends_soon(&mut weft.child, engine);
    });
}
