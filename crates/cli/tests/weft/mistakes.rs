//! Tests that every mistake is one line on stderr, with exit code 2.

use std::net::TcpListener;

use crate::process::{command, output};

#[track_caller]
fn check(line: &str, variables: &[(&str, &str)], want: &str) {
    let output = output(line, variables);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{line}: {said}");
    assert!(said.starts_with("weft: ") && said.lines().count() == 1, "{line}: {said:?}");
    assert!(said.contains(want), "{line}: {said:?}");
    assert!(output.stdout.is_empty(), "{line}");
}

#[test]
fn arguments() {
    check("--prot 0", &[], "unknown option --prot, did you mean --port?");
    check("serve . --idle-timeuot 1s", &[], "did you mean --idle-timeout?");
    check("dmeo", &[], "did you mean demo?");
    check("--port eighty", &[], "invalid --port \"eighty\"");
    check("--port", &[], "--port");
    check("--head-timeout 5", &[], "invalid --head-timeout \"5\": expected a duration");
    check("--port 0 --threads-max 1", &[], "weft: --threads-max: invalid threads_max 1: must be at least 2");
    check(
        "--port 0 --idle-timeout 0s",
        &[],
        "weft: --idle-timeout: invalid idle_timeout \"0s\": must be at least 1ms",
    );
    check(
        "--port 0 --connections-max 9 --accepted-max 99",
        &[],
        "weft: --accepted-max: invalid accepted_max 99: must",
    );
    check("--log loud", &[], "invalid --log \"loud\"");
    check("--https-port 70000", &[], "invalid --https-port \"70000\": expected at most 65535");
    check(
        "--port 0 --redirect-from 127.0.0.1:0",
        &[],
        "--redirect-from needs --tls-cert or --tls-self-signed",
    );
    check(
        "--port 0 --admin tls+127.0.0.1:0",
        &[],
        "the server has no certificate, give it one (Server::tls) or remove tls+",
    );
    check("--engine warp", &[], "--engine: unknown engine \"warp\" (the engines: adaptive");
    check("--bind nonsense", &[], "cannot listen at \"nonsense\"");
    check("serve", &[], "weft serve DIR");
}

/// If stderr is closed, the exit code still reports the mistake.
#[test]
fn a_mistake_with_a_closed_standard_error() {
    let (_, unread) = std::io::pipe().unwrap();
    assert_eq!(command("--port eighty", &[]).stderr(unread).status().unwrap().code(), Some(2));
}

#[test]
fn variables() {
    check("", &[("WEFT_PORT", "eighty")], "invalid WEFT_PORT \"eighty\"");
    check("", &[("PORT", "eighty")], "invalid PORT \"eighty\"");
    check("--port 0", &[("HOST", "no.such.host.invalid")], "(from HOST)");
    check("--port 0", &[("WEFT_HEAD_BYTES_MAX", "much")], "expected a size");
    check(
        "--port 0 --queue-max 7",
        &[("WEFT_IDLE_TIMEOUT", "0s")],
        "weft: WEFT_IDLE_TIMEOUT: invalid idle_timeout",
    );
    check(
        "--port 0 --threads-max 4",
        &[("WEFT_STANDBY_KEPT", "5")],
        "weft: WEFT_STANDBY_KEPT: invalid standby_kept 5: must be at most threads_max (4)",
    );
    check("--port 0", &[("WEFT_LOG", "loud")], "invalid WEFT_LOG \"loud\"");
    check(
        "--port 0",
        &[("WEFT_ENGINE", "warp")],
        "WEFT_ENGINE: unknown engine \"warp\" (the engines: adaptive",
    );
}

#[test]
fn a_port_that_is_taken() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    check(
        &format!("--port {port}"),
        &[],
        &format!("cannot listen at 127.0.0.1:{port}: another program listens there"),
    );
    check("", &[("PORT", &port.to_string())], "(from PORT)");
    let both = [("HOST", "127.0.0.1"), ("WEFT_PORT", &port.to_string())];
    check("", &both, "(from HOST and WEFT_PORT)");
}

#[test]
fn a_directory_that_is_none() {
    check("serve no/such/directory --port 0", &[], "cannot serve files from no/such/directory: No such file");
    check("serve /dev/null --port 0", &[], "cannot serve files from /dev/null: Not a directory");
}
