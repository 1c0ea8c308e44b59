//! Tables and pages show who is first, who is out, and where we are behind. Charts are well-formed.

use std::collections::BTreeMap;

use super::*;
use crate::peers::IGNORES_CLOSE;
use crate::results::{Cell, Column, Figure, LeftOut, Reached, Runoff, Score, SubjectInfo};
use charts::charts;
use markdown::markdown;
use standing::standings;
use table::{number, short, tables};

fn cell(subject: &str, rate: f64, cpu: f64, errors: f64) -> Cell {
    let figure = |value| Figure { median: value, low: value * 0.99, high: value * 1.01 };
    let figures = [("requests_per_s", rate), ("cpu_us_per_request", cpu), ("p50_ms", 0.1), ("p99_ms", 0.9)];
    Cell {
        subject: subject.to_owned(),
        figures: figures.into_iter().map(|(key, value)| (key.to_owned(), figure(value))).collect(),
        ratios: BTreeMap::new(),
        errors,
        ..Cell::default()
    }
}

fn column(name: &str, cells: Vec<Cell>) -> Column {
    let (name, title, floor) = (name.to_owned(), format!("title of <{name}>"), "epoll".to_owned());
    Column { name, title, floor, cells, runoff: None }
}

fn results(workloads: Vec<Column>) -> Results {
    let subject = |name: &str| SubjectInfo { name: name.to_owned(), ..SubjectInfo::default() };
    let mut subjects: Vec<SubjectInfo> = ["floor", "weft:adaptive", "nginx", "cheat"].map(subject).into();
    subjects[3].broken.push(IGNORES_CLOSE.to_owned());
    Results { subjects, workloads, ..Results::default() }
}

fn check_standing(name: &str, others: Vec<Cell>, ours: Cell, is_won: bool, says: &str) {
    let cells = [others, vec![ours]].concat();
    let standings = standings(&results(vec![column(name, cells)]));
    assert_eq!(standings[0].is_won, is_won, "{standings:?}");
    assert!(standings[0].says.contains(says), "{standings:?}");
}

#[test]
fn cpu_decides_where_nothing_blocks_and_rate_where_something_does() {
    let nginx = || vec![cell("nginx", 100_000.0, 5.0, 0.0)];
    check_standing("health-100", nginx(), cell("weft:adaptive", 1.0, 5.1, 0.0), true, "health-100");
    check_standing(
        "health-100",
        nginx(),
        cell("weft:adaptive", 1e6, 5.5, 0.0),
        false,
        "nginx 5.00: 10.0 % behind",
    );
    check_standing("mixed", nginx(), cell("weft:adaptive", 50_000.0, 1.0, 0.0), false, "100.0 % behind");
    check_standing("slow-100", nginx(), cell("weft:adaptive", 99_000.0, 50.0, 0.0), true, "");
    check_standing("slow-100", nginx(), cell("weft:adaptive", 50_000.0, 1.0, 0.0), false, "100.0 % behind");
}

/// Its CPU is that of the requests that it has answered, and there are fewer.
#[test]
fn a_server_that_does_not_keep_up_with_a_rate_is_not_first() {
    let owing = |owed| {
        let mut nginx = cell("nginx", 40_000.0, 4.0, 0.0);
        let unanswered = Figure { median: owed, low: owed, high: owed };
        nginx.figures.insert("unanswered".to_owned(), unanswered);
        vec![nginx, cell("h2o", 40_000.0, 6.0, 0.0)]
    };
    let ours = || cell("weft:adaptive", 40_000.0, 5.0, 0.0);
    check_standing("rate-40000", owing(64.0), ours(), false, "nginx 4.00: 25.0 % behind");
    check_standing("rate-40000", owing(401.0), ours(), true, "weft:adaptive 5.00");
}

#[test]
fn the_first_lines_name_the_servers_measured_again() {
    let how = |runoff_s| standing::how(&Results { runoff_s, ..results(Vec::new()) });
    assert!(how(4.0).contains("in turn, and 4 s (eight turns at least) in the run-off"), "{}", how(4.0));
    assert!(how(0.0).contains("in turn; medians"), "{}", how(0.0));
}

#[test]
fn the_first_lines_say_what_was_measured() {
    let says = |commit: &str, command: &str, what| {
        let (commit, command) = (commit.to_owned(), command.to_owned());
        let how = standing::how(&Results { when: "now".to_owned(), commit, command, ..results(Vec::new()) });
        assert!(how.starts_with(&format!("now, {what}. ")), "{how}");
    };
    says("23b1829", "full", "commit 23b1829");
    says("", "full --weft /tmp/weft --rounds 1", "a build given by --weft");
    says("", "full --weft=/tmp/weft", "a build given by --weft");
    says("", "full --only health", "an unknown commit");
}

/// By the rounds nginx is first; with errors it counts as not there.
fn run_off(name: &str, ours: f64, nginx: f64, errors: f64) -> Results {
    let mut column = column(
        name,
        vec![
            cell("weft:adaptive", 1e5, 5.0, 0.0),
            cell("nginx", 2e5, 4.0, 0.0),
            cell("h2o", 9e4, 5.1, 0.0),
            cell("floor", 3e5, 1.0, 0.0),
        ],
    );
    let figure = |value: f64| Figure { median: value, low: value * 0.9, high: value * 1.2 };
    let score = |subject: &str, value, errors| Score {
        subject: subject.to_owned(),
        figure: figure(value),
        over_ours: figure(value / ours),
        errors,
    };
    let scores = vec![score("weft:adaptive", ours, 0.0), score("nginx", nginx, errors)];
    column.runoff = Some(Runoff { turns: 133, scores, failed: None });
    let mut results = results(vec![column]);
    results.subjects.push(SubjectInfo { name: "h2o".to_owned(), ..SubjectInfo::default() });
    results
}

#[test]
fn the_run_off_decides_where_there_was_one() {
    for (name, ours, nginx, errors, is_won) in [
        ("health-100", 4.0, 5.0, 0.0, true),
        ("health-100", 5.0, 4.0, 0.0, false),
        ("slow-100", 5.0, 4.0, 0.0, true),
        ("slow-100", 4.0, 5.0, 0.0, false),
        // Then h2o is the next, and by the rounds.
        ("health-100", 5.0, 4.0, 1.0, true),
    ] {
        let standings = standings(&run_off(name, ours, nginx, errors));
        assert_eq!(standings[0].is_won, is_won, "{name} {ours} {nginx}: {standings:?}");
    }
    let text = markdown(&run_off("health-100", 5.0, 4.0, 0.0));
    let lost = "5.00 CPU us a request, nginx 4.00: 25.0 % behind; run-off of 133 turns each, parts of it 0.72 to 0.96 of ours.";
    assert!(text.contains(lost), "{text}");
    let text = markdown(&run_off("health-100", 4.0, 5.0, 0.0));
    let row = "| CPU us a request | **5.00** | nginx 4.00 | 1.00 | 1.25 (1.12 to 1.50) |";
    assert!(text.contains(row), "{text}");
}

/// Neither errors nor an end of ours there make the rounds decide.
#[test]
fn a_run_off_that_we_fail_in_is_lost() {
    let mut results = run_off("health-100", 4.0, 5.0, 2.0);
    let runoff = results.workloads[0].runoff.as_mut().unwrap();
    runoff.scores[0].errors = 3.0;
    let says = |results: &Results| {
        let standing::Standing { is_won, says } = standings(results).remove(0);
        assert!(!is_won);
        says
    };
    assert!(says(&results).starts_with("health-100: 3 errors in its run-off"));
    let text = markdown(&results);
    assert!(text.contains("- weft:adaptive, errors in run-offs: health-100 3.\n"), "{text}");
    assert!(text.contains("- nginx, errors in run-offs: health-100 2.\n"), "{text}");
    let failed = Some("weft ended\nby itself".to_owned());
    results.workloads[0].runoff = Some(Runoff { failed, ..Runoff::default() });
    assert_eq!(says(&results), "health-100: its run-off failed: weft ended");
    assert!(markdown(&results).contains("- health-100: its run-off failed: weft ended.\n"));
}

#[test]
fn floors_cheats_and_servers_with_errors_cannot_be_first() {
    let others =
        vec![cell("floor", 1e6, 1.0, 0.0), cell("cheat", 1e6, 1.0, 0.0), cell("nginx", 1e6, 1.0, 3.0)];
    check_standing("health-100", others.clone(), cell("weft:adaptive", 1.0, 5.0, 0.0), true, "");
    check_standing("health-100", others, cell("weft:adaptive", 1.0, 0.5, 1.0), false, "1 errors");
}

#[test]
fn pages_hold_every_column_and_are_well_formed() {
    let cells = || {
        vec![
            cell("floor", 2e5, 4.0, 0.0),
            cell("weft:adaptive", 1.5e5, 5.0, 0.0),
            cell("nginx", 1e5, 4.5, 0.0),
            cell("cheat", 2e5, 1.0, 0.0),
        ]
    };
    let names = ["health-100", "slow-close-10", "json-64", "rate-5000", "rate-20000"];
    let results = results(names.map(|name| column(name, cells())).into());
    let charts_of = charts(&results);
    let files: Vec<&str> = charts_of.iter().map(|chart| chart.file).collect();
    let latencies = ["latency-p50.svg", "latency-p99.svg", "latency-p999.svg"];
    assert_eq!(files, [["grid-rate.svg", "grid-cpu.svg"].as_slice(), &latencies].concat());
    for chart in &charts_of {
        let svg = chart.draw(&results).unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && !svg.contains("NaN"), "{svg}");
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }
    let text = markdown(&results);
    assert!(text.contains("| CPU us a request | 5.00 | nginx 4.50 | 4.00 |"), "{text}");
    assert!(charts_of[1].draw(&results).unwrap().contains("\n1.00 !\n"), "the cheat");
    assert!(text.contains("## Errors and failures\n\nNone.\n"), "{text}");
    let lost = "- health-100 (title of <health-100>): 5.00 CPU us a request, nginx 4.50: 11.1 % behind; our rounds lie 2 % \
                apart, theirs 2 %.\n";
    assert!(text.contains(lost), "{text}");
}

#[test]
fn noise_is_shown_and_marked() {
    let mut cells = vec![cell("weft:adaptive", 1e5, 5.0, 0.0), cell("nginx", 1e5, 4.0, 0.0)];
    let far = Figure { median: 5.0, low: 4.0, high: 6.0 };
    cells[0].figures.insert("cpu_us_per_request".to_owned(), far);
    let others = Figure { median: 12.0, low: 12.0, high: 12.0 };
    cells[1].figures.insert("others_cpu_percent".to_owned(), others);
    let results = results(vec![column("health-100", cells)]);
    let text = markdown(&results);
    let row = "| CPU us a request | 5.00 ~ | nginx 4.00 ~ |  | - | 40 %, 2 % | -, 12 % |";
    assert!(text.contains(row), "{text}");
}

#[test]
fn errors_and_failures_are_listed() {
    let mut failed = cell("cheat", 1e5, 4.0, 0.0);
    (failed.failed_rounds, failed.why) = (2, Some("it broke off\nand a log".to_owned()));
    let text = markdown(&results(vec![
        column("health-100", vec![cell("nginx", 1e5, 4.0, 7.0), failed]),
        column("json-64", vec![cell("nginx", 1e5, 4.0, 1.0)]),
    ]));
    let want =
        "\n- nginx, errors: health-100 7, json-64 1.\n- cheat, health-100: 2 failed rounds: it broke off.\n";
    assert!(text.contains(want), "{text}");
}

#[test]
fn pages_name_the_command_and_the_omitted_servers() {
    let command =
        "full --rounds 3 --weft /home/somebody/weft --only health --json /tmp/a.json --html=/tmp/a.html";
    let why = "it does not build:\nerror: and a whole log".to_owned();
    let results = Results {
        command: command.to_owned(),
        left_out: vec![LeftOut { name: "astra".to_owned(), why }],
        ..results(vec![column("health-100", vec![cell("nginx", 1e5, 4.0, 0.0)])])
    };
    let shown = "cargo run --release -p weftwork-bench -- full --rounds 3 --weft weft --only health";
    let text = markdown(&results);
    assert!(text.contains(&format!("Measured by `{shown}`.")), "{text}");
    assert!(text.contains("- astra: it does not build:\n") && !text.contains("whole log"), "{text}");
}

#[test]
fn numbers_are_short() {
    for (value, want) in
        [(151_234.0, "151k"), (15_123.0, "15.1k"), (1512.0, "1.51k"), (873.4, "873"), (4.456, "4.46")]
    {
        assert_eq!(short(value), want);
    }
}

#[test]
fn thousands_are_set_apart() {
    for (value, decimals, want) in [
        (0.0, 0, "0"),
        (999.0, 0, "999"),
        (1000.0, 0, "1,000"),
        (1234567.891, 1, "1,234,567.9"),
        (-1234.0, 0, "-1,234"),
        (-123.0, 0, "-123"),
        (0.12345, 3, "0.123"),
    ] {
        assert_eq!(number(value, decimals), want);
    }
}

#[test]
fn the_table_is_aligned_and_names_what_is_lost() {
    let mut cells = vec![cell("floor", 51_234.4, 12.0, 0.0), cell("weft:fibers", 25_617.2, 24.0, 3.0)];
    cells[1].ratios.insert("requests_per_s_over_floor".to_owned(), 0.5);
    (cells[1].why, cells[1].failed_rounds) = (Some("it ended\nand a log".to_owned()), 1);
    cells[1].targets.push(Reached { met: false, says: "failed in 1 of 2 rounds".to_owned() });
    let results = Results { rounds: 2, seconds: 2.0, took_s: 9, ..results(vec![column("slow-100", cells)]) };
    let want = "\
slow-100: title of <slow-100>  (floor: epoll)
 subject      requests/s  p50 ms  p99 ms  CPU us a request  rate/floor  spread  errors
 floor            51,234   0.100   0.900             12.00           -      2%       0
 weft:fibers      25,617   0.100   0.900             24.00       0.500      2%       3
  note  weft:fibers: it ended
  LOST  weft:fibers: failed in 1 of 2 rounds

2 rounds of 2 s a cell, 0 run-offs, 9 s in all; targets: 0 met, 1 lost
";
    assert_eq!(tables(&results), want);
}
