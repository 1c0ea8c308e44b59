//! Are the files of /proc read right?

use std::process;

use super::*;

fn check(text: &str, want: Option<Stat>) {
    assert_eq!(parse_stat(text), want);
}

#[test]
fn stat_fields() {
    let want = Some(Stat { parent: 7, ticks: 1 + 20 + 300 + 4000 });
    check("42 (weft) S 7 42 42 0 -1 4194304 9 8 7 6 1 20 300 4000 20 0 1 0 99", want);
    check("42 (a b) c) R 7 42 42 0 -1 4194304 9 8 7 6 1 20 300 4000 20 0 1 0 99\n", want);
    check("42 () Z 7 42 42 0 -1 4194304 9 8 7 6 1 20 300 4000", want);
    check("42 (weft) S 7 42 42 0 -1 4194304 9 8 7 6 1 20 300", None);
    check("42 (weft) S 7 42 42 0 -1 4194304 9 8 7 6 1 x 300 4000", None);
    check("42 weft S 7", None);
    check("", None);
}

#[test]
fn core_lines() {
    let text = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu1 1 20 300 5 6 4000 50000 600000 7 8\ncpu10 1 1 1 1 1 1 1 1 1 1\nintr 5\n";
    assert_eq!(parse_core(text, 1), Some(654_321));
    assert_eq!(parse_core(text, 10), Some(6));
    assert_eq!(parse_core(text, 0), None);
    assert_eq!(parse_core("cpu0 1 2 3\n", 0), None);
}

#[test]
fn named_fields() {
    let text = "voluntary_ctxt_switches:\t15\nnonvoluntary_ctxt_switches:\t3\nRss:    2048 kB\n";
    assert_eq!(field(text, "voluntary_ctxt_switches:"), Some(15));
    assert_eq!(field(text, "nonvoluntary_ctxt_switches:"), Some(3));
    assert_eq!(field(text, "Rss:"), Some(2048));
    assert_eq!(field(text, "Pss:"), None);
}

#[test]
fn this_process_is_there() {
    assert!(tree(process::id()).contains(&process::id()));
    assert!(resident_bytes(process::id()) > 0);
    assert!(Usage::of(process::id()).switches > 0);
}

#[test]
fn ticks_are_turned_into_microseconds() {
    let (before, after) = (Usage { ticks: 10, switches: 0 }, Usage { ticks: 210, switches: 0 });
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    assert_eq!(after.cpu_us_since(&before), 200.0 * 1e6 / per_second);
    assert_eq!(before.cpu_us_since(&after), 0.0);
}
