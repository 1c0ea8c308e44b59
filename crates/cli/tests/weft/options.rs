//! Tests of the startup lines, and of which source of a value wins.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use crate::process::{LAST_LINE, Weft, command, output};

fn has(weft: &Weft, line: &str) -> bool {
    weft.lines.iter().any(|said| said == line)
}

#[test]
fn the_start_names_what_matters() {
    let weft = Weft::start("demo --port 0 --engine reactor:1");
    let address = weft.address();
    let want = [
        format!("weft {} demo", env!("CARGO_PKG_VERSION")),
        format!("listening at http://{address}/"),
        "engine reactor:1, 1 loop".into(),
        weftwork::Engine::Reactor { loops: None }.caution().expect("its loops can be stopped").into(),
        "body_bytes_max 2MiB".into(),
        "head_timeout 10s".into(),
        "idle_timeout 75s".into(),
    ];
    assert_eq!(weft.lines[..5], want[..5]);
    assert!(want.iter().all(|line| has(&weft, line)), "{:?}", weft.lines);
    assert!(weft.lines.iter().any(|line| line.starts_with("connections_max ") && !line.ends_with(" 0")));
    assert!(weft.lines.iter().all(|line| !line.ends_with("(set)")), "{:?}", weft.lines);
    assert!(has(&weft, "threads_max 512") && has(&weft, LAST_LINE));
}

#[test]
fn flags_win_over_variables_and_these_over_defaults() {
    let variables = [
        ("PORT", "wrong"),
        ("WEFT_PORT", "0"),
        ("WEFT_IDLE_TIMEOUT", "9s"),
        ("WEFT_BODY_BYTES_MAX", "1MiB"),
        ("WEFT_QUEUE_MAX", "7"),
        ("WEFT_ENGINE", "reactor:2"),
    ];
    let weft = Weft::start_with("--idle-timeout 8s --engine adaptive:1", &variables);
    let lines = ["idle_timeout 8s (set)", "body_bytes_max 1MiB (environment)", "queue_max 7 (environment)"];
    assert!(lines.iter().all(|line| has(&weft, line)), "{:?}", weft.lines);
    assert!(has(&weft, "engine adaptive:1, 1 loop"), "{:?}", weft.lines);

    let weft = Weft::start_with("--port 0", &[("WEFT_PORT", "wrong"), ("WEFT_ENGINE", "reactor:2")]);
    assert!(has(&weft, "engine reactor:2, 2 loops"), "{:?}", weft.lines);
}

#[test]
fn an_empty_variable_is_not_set_and_an_unknown_one_is_named() {
    let empty = [
        ("WEFT_PORT", ""),
        ("PORT", "0"),
        ("WEFT_HOST", ""),
        ("WEFT_LOG", ""),
        ("WEFT_ENGINE", ""),
        ("WEFT_IDLE_TIMEOUT", ""),
        ("WEFT_HEAD_TIMOUT", "5s"),
    ];
    let mut weft = Weft::start_with("", &empty);
    assert!(has(&weft, "idle_timeout 75s"), "{:?}", weft.lines);
    weft.wait_for("unknown variable WEFT_HEAD_TIMOUT ignored, did you mean WEFT_HEAD_TIMEOUT?");
    assert_eq!(weft.connect().ask("GET /health").text(), "OK");
}

/// The library does not know the variables of the command. A user of the library gets a report about them.
#[test]
fn the_variables_of_the_command_are_known() {
    let own = [
        ("WEFT_PORT", "0"),
        ("WEFT_HOST", "127.0.0.1"),
        ("WEFT_LOG", "error"),
        ("WEFT_NONSENSE_OF_MINE", "1"),
    ];
    let (said, saying) = std::io::pipe().unwrap();
    let mut weft = command("", &own).stdout(Stdio::piped()).stderr(saying).spawn().unwrap();
    let mut lines = BufReader::new(weft.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == LAST_LINE));
    weft.kill().unwrap();
    weft.wait().unwrap();
    let said: Vec<String> = BufReader::new(said).lines().map_while(Result::ok).collect();
    assert_eq!(said, ["weftwork: unknown variable WEFT_NONSENSE_OF_MINE ignored"]);
}

#[test]
fn several_addresses() {
    let weft = Weft::start("--host 127.0.0.1 --host 0.0.0.0 --port 0");
    let urls: Vec<&String> = weft.lines.iter().filter(|line| line.starts_with("listening at ")).collect();
    assert_eq!(urls.len(), 2);
    let all = urls.iter().find(|url| url.contains("http://0.0.0.0:")).unwrap();
    assert!(all.contains("/ (here: http://localhost:") && all.ends_with("/)"), "{all}");
    assert_eq!(weft.connect().ask("GET /health").text(), "OK");
}

#[test]
fn a_unix_socket() {
    let path = std::env::temp_dir().join(format!("weft-{}.sock", std::process::id()));
    let weft = Weft::start(&format!("--bind unix:{}", path.display()));
    assert!(has(&weft, &format!("listening at unix:{}", path.display())), "{:?}", weft.lines);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.ends_with("\r\n\r\nOK"), "{text}");
    weft.signal("-INT");
    assert_eq!(weft.end().0, Some(0));
    assert!(!path.exists(), "the socket is left behind");
}

#[test]
fn help_and_version() {
    let check = |line: &str, parts: &[&str]| {
        let output = output(line, &[("PORT", "wrong")]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{line}");
        assert!(parts.iter().all(|part| text.contains(part)), "{line}: {text}");
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{line}: {text}");
    };
    check("--version", &[concat!("weft ", env!("CARGO_PKG_VERSION"))]);
    check("help", &["Commands:\n  demo ", "  serve ", "  engines ", "weft COMMAND --help"]);
    check("engines", &["adaptive[:loops]", "reactor", "workers", "pool", "fibers", "when blocked"]);
    let options = ["--host", "--bind", "--engine", "--head-bytes-max", "longest head (431) [32KiB]", "[75s]"];
    check("demo --help", &options);
    check("help serve", &options);
    let prints = |line: &str, part: &str| {
        let output = output(line, &[]);
        assert_eq!(output.status.code(), Some(0), "{line}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(part), "{line}: {text}");
    };
    prints("man", ".TH weft 1");
    prints("completions bash", "_weft() {");
}
