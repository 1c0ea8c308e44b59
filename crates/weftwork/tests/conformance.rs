//! Tests that every test which `docs/conformance.md` names exists and runs on every engine, and that every test
//! of its suites is listed there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The suites of which every test is a row of the table.
const SUITES: [&str; 4] = ["rfc9110", "rfc9112_bodies", "rfc9112_connections", "rfc9112_requests"];

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the tests of one file, in the form `suite::test`.
fn tests_of(suite: &str) -> BTreeSet<String> {
    let text = read(&format!("tests/cases/{suite}.rs"));
    let behind = text.split("#[test]\nfn ").skip(1);
    behind.map(|rest| format!("{suite}::{}", rest.split('(').next().unwrap_or_default())).collect()
}

/// Returns the code spans of the page that contain `mark`, with their lines.
fn quoted(mark: &str) -> Vec<(usize, String)> {
    let page = read("../../docs/conformance.md");
    let mut all = Vec::new();
    for (at, line) in page.lines().enumerate() {
        let quoted = line.split('`').skip(1).step_by(2).filter(|text| text.contains(mark));
        all.extend(quoted.map(|name| (at + 1, name.to_owned())));
    }
    all
}

/// Returns every `suite::test` of the page.
fn named() -> Vec<(usize, String)> {
    quoted("::")
}

#[test]
fn every_named_test_exists() {
    for (line, name) in named() {
        let suite = name.split("::").next().unwrap_or_default();
        assert!(tests_of(suite).contains(&name), "docs/conformance.md:{line}: there is no test {name}");
        let is_run = read("tests/matrix.rs").contains(&format!("mod {suite};"));
        assert!(is_run, "docs/conformance.md:{line}: {suite} is not in tests/matrix.rs");
    }
}

/// Unit tests are named by file: `wire/src/fields/tests.rs rfc9110_5_6_7_dates`.
#[test]
fn every_named_unit_test_exists() {
    let all = quoted(".rs ");
    assert!(!all.is_empty());
    for (line, name) in all {
        let (path, test) = name.split_once(' ').unwrap();
        let text = read(&format!("../{path}"));
        let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_there = text.contains(&format!("#[test] fn {test}("));
        assert!(is_there, "docs/conformance.md:{line}: there is no test {test} in {path}");
    }
}

#[test]
fn every_test_of_a_suite_is_named() {
    let named: BTreeSet<String> = named().into_iter().map(|(_, name)| name).collect();
    for test in SUITES.iter().flat_map(|suite| tests_of(suite)) {
        assert!(named.contains(&test), "docs/conformance.md does not name {test}");
    }
}

/// The page claims a result for every engine, so no suite may skip one.
#[test]
fn no_suite_is_skipped_on_an_engine() {
    for suite in SUITES {
        assert!(!read(&format!("tests/cases/{suite}.rs")).contains("promises("), "{suite} skips engines");
    }
    let engines = ["adaptive", "reactor", "workers", "pool", "fibers"];
    let page = read("../../docs/conformance.md");
    for engine in engines {
        assert!(page.contains(&format!("`{engine}`")), "docs/conformance.md does not name {engine}");
        assert!(
            read("tests/matrix.rs").contains(&format!("    {engine}: Engine::")),
            "{engine} is not in the matrix"
        );
    }
}
