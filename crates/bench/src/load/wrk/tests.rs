//! What wrk prints is read right, and it is told what to do.

use super::*;

const CLEAN: &str = "\
Running 2s test @ http://127.0.0.1:20000/health
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   431.00us  100.00us   5.32ms   95.01%
    Req/Sec   150.21k     3.01k  156.00k    80.00%
  Latency Distribution
     50%  420.00us
     75%  450.00us
     90%  480.00us
     99%    1.20ms
  300420 requests in 2.00s, 40.00MB read
Requests/sec: 150210.12
Transfer/sec:     20.00MB
";

fn check(text: &str, want: Option<WrkReport>) {
    assert_eq!(parse(text), want);
}

#[test]
fn reports() {
    let clean = WrkReport { requests: 300420.0, rate: 150210.12, p50_ms: 0.42, p99_ms: 1.2, errors: 0.0 };
    check(CLEAN, Some(clean));
    let socket = "  Socket errors: connect 1, read 2, write 3, timeout 4\n";
    check(&format!("{CLEAN}{socket}"), Some(WrkReport { errors: 10.0, ..clean }));
    check(&format!("{CLEAN}  Non-2xx or 3xx responses: 7\n"), Some(WrkReport { errors: 7.0, ..clean }));
    check("unable to connect to 127.0.0.1:1 Connection refused\n", None);
}

#[test]
fn units() {
    assert_eq!(milliseconds("1.50s"), Some(1500.0));
    assert_eq!(milliseconds("2.00m"), Some(120_000.0));
    assert_eq!(milliseconds("12"), None);
}

#[test]
fn a_thread_for_each_core_but_never_without_a_connection_or_with_fewer_than_another() {
    let words = |connections, threads| {
        let group = Group::get("/health", connections);
        let command = command(&group, 9, Duration::from_millis(600), threads, Path::new("")).unwrap();
        command.get_args().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    assert_eq!(words(64, 4), ["-t4", "--latency", "-c64", "-d1s", "http://127.0.0.1:9/health"]);
    assert_eq!(words(2, 4)[0], "-t2");
    assert_eq!(
        [words(10, 8), words(100, 8), words(7, 4)].map(|words| words[0].clone()),
        ["-t5", "-t5", "-t1"]
    );
}

#[test]
fn who_has_no_wrk_is_told_to_install_it() {
    assert!(
        matches!(check_installed("no-such-wrk"), Err(Failure::Run(why)) if why.starts_with("no-such-wrk") && why.contains("install"))
    );
    // Any program will do, whatever it makes of the option.
    assert!(check_installed("true").is_ok());
}

#[test]
fn what_wrk_cannot_ask_it_is_not_asked_to() {
    let group = Group::get("/echo", 1);
    assert!(can(&group) && can(&Group { close: true, depth: 16, ..group.clone() }));
    assert!(
        !can(&Group { body_bytes: 1, ..group.clone() }) && !can(&Group { browser: true, ..group.clone() })
    );
    assert!(!can(&Group { lots_max: 1, ..group.clone() }) && !can(&Group { range: Some((0, 1)), ..group }));
}
