//! The check fails if it must, and only then. All cases run.

use super::*;

fn counts(cases: &[(&str, f64)]) -> BTreeMap<String, f64> {
    cases.iter().map(|&(name, count)| (name.to_owned(), count)).collect()
}

fn toolchain(rustc: &str) -> Toolchain {
    Toolchain { rustc: rustc.to_owned(), ..Toolchain::default() }
}

fn check(was: &[(&str, f64)], now: &[(&str, f64)], rustc: &str, want: &[&str]) {
    let kept = Kept { toolchain: toolchain("rustc 1"), cases: counts(was) };
    let faults = faults(&Kept { toolchain: toolchain(rustc), cases: counts(now) }, &kept);
    assert_eq!(faults.len(), want.len(), "{faults:?}");
    for (fault, part) in faults.iter().zip(want) {
        assert!(fault.contains(part), "{fault}");
    }
}

#[test]
fn what_grows_by_more_than_three_percent_fails() {
    check(&[("a", 1000.0)], &[("a", 1030.0)], "rustc 1", &[]);
    check(&[("a", 1000.0)], &[("a", 1031.0)], "rustc 1", &["a: 1031.0 instructions, were 1000.0"]);
    check(&[("a", 1000.0)], &[("a", 500.0)], "rustc 1", &[]);
    check(&[("a", 20.0)], &[("a", 23.0)], "rustc 1", &[]);
    check(&[("a", 20.0)], &[("a", 24.0)], "rustc 1", &["a: 24.0"]);
}

/// The same code of httparse takes 590 to 614 instructions, by where the program has it.
#[test]
fn what_is_another_librarys_may_grow() {
    check(&[("httparse_small", 1000.0)], &[("httparse_small", 1100.0)], "rustc 1", &[]);
    check(&[("head_small", 1000.0)], &[("head_small", 1100.0)], "rustc 1", &["head_small: 1100.0"]);
}

#[test]
fn another_compiler_only_reports() {
    check(&[("a", 1000.0)], &[("a", 2000.0)], "rustc 2", &[]);
    let kept = Kept { toolchain: toolchain("rustc 1"), cases: counts(&[("head_small", 1000.0)]) };
    let text =
        tables(&Kept { toolchain: toolchain("rustc 2"), cases: counts(&[("head_small", 1500.0)]) }, &kept);
    assert!(text.contains("+50.0 %") && text.contains("decide nothing"), "{text}");
    assert!(
        unchecked(&kept.toolchain, &toolchain("rustc 2")).is_some()
            && unchecked(&kept.toolchain, &toolchain("rustc 1")).is_none()
    );
}

#[test]
fn a_case_without_a_figure_fails() {
    check(&[], &[("a", 1.0)], "rustc 1", &["a: no figure is kept"]);
}

#[test]
fn targets_hold_whatever_was_kept() {
    let missed = [("head_browser", 1500.0), ("httparse_browser", 1000.0)];
    check(&missed, &missed, "rustc 1", &["over httparse alone"]);
    check(&missed, &missed, "rustc 2", &["over httparse alone"]);
    let met = [("head_browser", 1499.0), ("httparse_browser", 1000.0)];
    check(&met, &met, "rustc 1", &[]);
}

#[test]
fn every_case_runs_and_stands_beside_one_that_exists() {
    for case in CASES {
        (case.repeat)(2);
        assert!(case.less.is_none_or(|less| find(less).is_some()), "{}", case.name);
    }
}

#[test]
fn every_case_has_a_kept_figure() {
    let kept = Kept::read().unwrap();
    for case in CASES {
        assert!(kept.cases.contains_key(case.name), "{}", case.name);
    }
}

#[test]
fn the_count_is_found() {
    let said = "==7== Callgrind, a call-graph generator\n==7== \n==7== Collected : 4711\n";
    assert_eq!(collected(said), Some(4711));
    assert_eq!(collected("==7== Events    : Ir\n"), None);
    assert_eq!(collected("==7== Collected : many\n"), None);
}
