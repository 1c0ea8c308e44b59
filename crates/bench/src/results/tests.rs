//! Does the document hold what the samples say, and come back as it went?

use super::*;
use crate::args::GridOptions;
use crate::measure::{Metric, Sample};
use crate::report::{Row, Run};
use crate::workloads::{self, QUICK};

fn row(subject: &str, samples: &[Option<(f64, f64)>]) -> Row {
    let sample =
        |(rate, cpu)| Sample(vec![(Metric::Rate, rate), (Metric::CpuUs, cpu), (Metric::Errors, 1.0)]);
    Row {
        workload: workloads::named(&QUICK, "close")[0],
        subject: subject.parse().unwrap(),
        samples: samples.iter().map(|one| one.map(sample)).collect(),
        why: None,
    }
}

#[test]
fn medians_spreads_and_ratios() {
    let rows = vec![
        row("floor", &[Some((1000.0, 4.0)), None]),
        row("weft", &[Some((900.0, 8.0)), Some((800.0, 9.0))]),
    ];
    let run = Run::of(rows);
    let results = collect(&run, &GridOptions::default(), Vec::new(), Vec::new());
    let back: Results = serde_json::from_str(&results.json().unwrap()).unwrap();
    assert_eq!(back, results);
    let column = back.column("close").unwrap();
    let weft = column.cell("weft").unwrap();
    assert_eq!(weft.figures["requests_per_s"], Figure { median: 850.0, low: 800.0, high: 900.0 });
    assert_eq!((weft.ratios["cpu_over_floor"], weft.ratios["requests_per_s_over_floor"]), (2.0, 0.9));
    assert_eq!((weft.errors, weft.ratios.get("cpu_over_nginx")), (2.0, None));
    assert!(!weft.targets[0].met);
    assert_eq!(column.cell("floor").unwrap().failed_rounds, 1);
}

/// As is kept in docs/benchmarks.
#[test]
fn the_document_is_small() {
    let run =
        Run::of(vec![row("weft", &[Some((151_234.567, 5.123_456_7)), Some((151_234.567, 5.123_456_7))])]);
    let mut results = collect(&run, &GridOptions::default(), Vec::new(), Vec::new());
    let column = results.workloads[0].clone();
    assert_eq!(column.cells[0].figures["requests_per_s"].high, 151_230.0);
    results.workloads.push(Column { name: "another".to_owned(), ..column });
    let json = results.json().unwrap();
    assert_eq!(serde_json::from_str::<Results>(&json).unwrap(), results);
    let lines: Vec<&str> = json.lines().collect();
    assert!(lines[0].ends_with("\"workloads\":[") && lines[3] == "]}", "{json}");
    assert!(lines[1].contains("{\"median\":5.1235,\"low\":5.1235,\"high\":5.1235}"), "{json}");
    assert!(lines.len() == 4 && lines[2].starts_with("{\"name\":\"another\","), "{json}");
    let empty = Results::default();
    assert_eq!(serde_json::from_str::<Results>(&empty.json().unwrap()).unwrap(), empty);
}

#[test]
fn a_build_that_was_brought_is_of_no_known_commit() {
    let options = GridOptions { weft: Some("weft-before".into()), ..GridOptions::default() };
    let results = collect(&Run::of(Vec::new()), &options, Vec::new(), Vec::new());
    assert_eq!(results.commit, "");
}

#[test]
fn a_document_of_before_still_reads() {
    let mut old =
        serde_json::to_value(Results { server_cores: 1, load_cores: 1, ..Results::default() }).unwrap();
    for name in ["server_cores", "load_cores", "left_out", "runoff_s"] {
        assert!(old.as_object_mut().unwrap().remove(name).is_some());
    }
    let back: Results = serde_json::from_value(old).unwrap();
    assert_eq!((back.server_cores, back.load_cores, back.left_out), (1, 1, Vec::new()));
}

#[test]
fn a_kernel_does_not_name_its_host() {
    for (release, want) in [("6.18.44-host-v595\n", "6.18"), ("6.1.0-39-amd64", "6.1"), ("6", "6"), ("", "")]
    {
        assert_eq!(major_minor(release), want);
    }
}
