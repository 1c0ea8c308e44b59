//! Tests that a stderr that nobody reads holds up nothing but the log.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::time::{Duration, Instant};

use crate::process::{Weft, command};

/// Half of the default of `drain_timeout`, which a server took whose loops were stuck.
const SOON: Duration = Duration::from_secs(12);

/// Returns a pipe in which no byte has room.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
    let room = rustix::pipe::fcntl_getpipe_size(&writer).unwrap();
    writer.write_all(&vec![b'.'; room]).unwrap();
    (reader, writer)
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
