//! Tests of what an operator watches: probes, metrics, the log and the access log.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::process::{Weft, command, output};
use crate::serve::Folder;
use crate::signals::terminal;

/// Waits until a file has this many lines.
pub(crate) fn lines(path: &Path, count: usize) -> Vec<String> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let lines: Vec<String> = fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect();
        if lines.len() >= count || Instant::now() > deadline {
            assert_eq!(lines.len(), count, "{lines:?}");
            return lines;
        }
        std::thread::yield_now();
    }
}

#[test]
fn both_commands_have_probes_and_metrics() {
    let folder = Folder::new("probes");
    for line in
        ["demo", &format!("serve {}", folder.path()), &format!("serve {} --spa hello.txt", folder.path())]
    {
        let weft = Weft::start(&format!("{line} --port 0"));
        let mut client = weft.connect();
        assert_eq!(client.ask("GET /health").text(), "OK", "{line}");
        assert_eq!((client.ask("GET /ready").text(), client.ask("HEAD /ready").status), ("ready\n", 200));
        client.send(b"bad\r\n\r\n");
        assert_eq!(client.answer(false).status, 400);
        let page = weft.connect().ask("GET /metrics");
        assert_eq!(page.field("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
        let has =
            |part: &str| assert!(page.text().contains(part), "{line}: {part} is not in {}", page.text());
        has("http_route=\"/ready\",http_response_status_code=\"200\"");
        has("http_response_status_code=\"400\",error_type=\"malformed_request\"");
        has("weftwork_threads_max 512");
    }
    let weft = Weft::start("--port 0 --metrics off");
    let page = weft.connect().ask("GET /metrics");
    assert!(
        page.text().contains("weftwork_accepted_total 1") && !page.text().contains("http_route"),
        "{}",
        page.text()
    );
}

#[test]
fn the_side_listener_has_the_metrics() {
    let weft = Weft::start("--port 0 --admin 127.0.0.1:0");
    let line = weft.lines.iter().find_map(|line| line.strip_prefix("probes and metrics at http://")).unwrap();
    let mut admin = Client::connect(line.trim_end_matches('/'));
    assert_eq!(weft.connect().ask("GET /metrics").status, 404);
    assert_eq!((admin.ask("GET /health").text(), admin.ask("GET /ready").text()), ("OK", "ready\n"));
    // The record may follow the response.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        let page = admin.ask("GET /metrics");
        if page.text().contains("http_response_status_code=\"404\"") {
            break;
        }
        assert!(std::time::Instant::now() < until, "{}", page.text());
    }
    assert_eq!(admin.ask("GET /").status, 404);
}

#[test]
fn a_side_listener_with_tls_is_announced_as_such() {
    let weft = Weft::start("--port 0 --tls-self-signed --admin tls+127.0.0.1:0");
    assert!(
        weft.lines.iter().any(|line| line.starts_with("probes and metrics at https://")),
        "{:?}",
        weft.lines
    );
}

#[test]
fn a_file_comes_before_a_probe() {
    let folder = Folder::new("own-ready");
    fs::write(folder.0.join("ready"), "mine").unwrap();
    let weft = Weft::start(&format!("serve {} --port 0", folder.path()));
    assert_eq!(weft.connect().ask("GET /ready").text(), "mine");
    assert_eq!(weft.connect().ask("GET /health").text(), "OK");
}

/// A probe that waited for a thread would make a supervisor end the process.
#[test]
fn probes_are_answered_while_every_thread_is_blocked() {
    for engine in ["adaptive:1", "pool:1"] {
        let mut weft = Weft::start(&format!("--port 0 --threads-max 2 --engine {engine}"));
        let mut blocked: Vec<_> = (0..8).map(|_| weft.connect()).collect();
        for client in &mut blocked {
            client.send(b"GET /slow?ms=60000 HTTP/1.1\r\nHost: here\r\n\r\n");
        }
        weft.wait_for("all threads are busy");
        for path in ["/health", "/ready", "/metrics"] {
            assert_eq!(weft.connect().ask(&format!("GET {path}")).status, 200, "{engine} {path}");
        }
    }
}

#[test]
fn a_server_that_stops_is_not_ready_and_alive() {
    let mut weft = Weft::start("--port 0 --log info --drain-delay 1h --drain-timeout 0s");
    assert_eq!(weft.connect().ask("GET /ready").status, 200);
    weft.signal("-TERM");
    weft.wait_for("stopping");
    assert_eq!(weft.connect().ask("GET /ready").status, 503);
    assert_eq!(weft.connect().ask("GET /health").status, 200);
}

#[test]
fn the_access_log_has_a_line_for_each_request() {
    let folder = Folder::new("access-log");
    let path = folder.0.join("access.log");
    for (style, whole, refused) in [
        ("text", "] \"GET /hello.txt HTTP/1.1\" 200 5 \"-\" \"-\" 0.", "] \"-\" 400 "),
        ("json", "\"target\":\"/hello.txt\"", "\"error\":\"malformed_request\""),
    ] {
        let _ = fs::remove_file(&path);
        let flags = format!("--access-log {} --log-format {style}", path.display());
        let weft = Weft::start(&format!("serve {} --port 0 {flags}", folder.path()));
        let mut client = weft.connect();
        assert_eq!(client.ask("GET /hello.txt").text(), "hello");
        client.send(b"bad\r\n\r\n");
        assert_eq!(client.answer(false).status, 400);
        let lines = lines(&path, 2);
        assert!(lines[0].contains(whole) && lines[1].contains(refused), "{lines:?}");
    }
    let refused = output(&format!("serve {} --port 0 --access-log /none/a.log", folder.path()), &[]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        refused.status.code() == Some(2) && said.contains("cannot open the log file /none/a.log"),
        "{said}"
    );
}

#[test]
fn the_level_debug_shows_requests_and_the_log_has_its_time() {
    let folder = Folder::new("debug");
    let mut weft = Weft::start(&format!("serve {} --port 0 --log debug", folder.path()));
    assert_eq!(weft.connect().ask("GET /hello.txt?a=b").text(), "hello");
    weft.signal("-TERM");
    let line = weft.wait_for("stopping");
    let (time, rest) = line.split_once(' ').unwrap();
    assert_eq!((time.len(), &rest[..12]), ("2026-11-28T07:01:02.123Z".len(), "weft: info: "), "{line}");
    let (_, out, _) = weft.end();
    assert!(out.contains(" 127.0.0.1       GET /hello.txt?a=b\n"), "{out}");
    assert!(out.contains("Z 200 ") && out.contains("      5 B "), "{out}");
}

/// Without any flag. The status has a colour, unless NO_COLOR is set.
#[test]
fn a_person_at_a_terminal_sees_each_request() {
    for (no_color, ok, missing) in
        [("", "Z \x1b[32m200\x1b[0m ", "Z \x1b[33m404\x1b[0m "), ("1", "Z 200 ", "Z 404 ")]
    {
        let (master, slave) = terminal();
        let child = command("--port 0", &[("NO_COLOR", no_color)]).stdout(slave).spawn().unwrap();
        let mut weft = Weft::started(child, master);
        let mut client = weft.connect();
        assert_eq!([client.ask("GET /health").status, client.ask("GET /nothing").status], [200, 404]);
        weft.signal("-TERM");
        let line = weft.says("/health");
        assert!(line.contains(ok) && line.ends_with("      2 B 127.0.0.1       GET /health\r\n"), "{line:?}");
        let line = weft.says("/nothing");
        assert!(line.contains(missing), "{line:?}");
    }
}

#[test]
fn the_access_log_may_be_the_standard_output() {
    let mut weft = Weft::start("--port 0 --access-log -");
    assert_eq!(weft.connect().ask("GET /health").status, 200);
    weft.signal("-TERM");
    let line = weft.says("/health");
    assert!(line.contains("] \"GET /health HTTP/1.1\" 200 2 \"-\" \"-\" 0."), "{line}");
}

#[test]
fn the_log_can_be_json() {
    let mut weft = Weft::start_with("--port 0", &[("WEFT_LOG", "info"), ("WEFT_LOG_FORMAT", "json")]);
    weft.signal("-TERM");
    let line = weft.wait_for("stopping");
    let json: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(json["level"], "info");
    assert!(json["message"].as_str().unwrap().starts_with("stopping: "), "{line}");
}
