//! The order of a run, its outputs, and when it has failed.

use super::*;
use crate::workloads::named;

fn row(workload: &str, subject: &str, why: Option<&str>) -> Row {
    Row {
        workload: named(&GRID, workload)[0],
        subject: subject.parse().unwrap(),
        samples: vec![None],
        why: why.map(str::to_owned),
    }
}

#[test]
fn a_run_without_a_figure_of_ours_has_failed() {
    let measured = |name: &str| {
        let mut row = row("mixed", name, None);
        row.samples.push(Some(Sample(vec![(Metric::RATE, 1.0)])));
        row
    };
    let failed = |name: &str| row("mixed", name, Some(&format!("{name} ended by itself")));
    let says =
        |rows: Vec<Row>| match check_measured(&Results { workloads: collect(&rows), ..Results::default() }) {
            Ok(()) => String::new(),
            Err(Failure::Run(why)) => why,
            Err(other) => panic!("{other:?}"),
        };
    let text = "nothing of weft was measured: weft ended by itself";
    assert_eq!(says(vec![measured("nginx"), failed("weft")]), text);
    assert_eq!(says(vec![failed("weft"), measured("weft:pool")]), "");
    assert_eq!(says(vec![failed("floor"), measured("nginx")]), "");
    assert!(says(vec![failed("nginx")]).contains("nothing was measured: nginx ended by itself"));
    assert!(says(Vec::new()).contains("what --only asks for"));
}

#[test]
fn the_server_that_begins_alternates() {
    let names = ["floor", "weft:adaptive", "nginx", "hyper"];
    let row = |of, name| Row { samples: Vec::new(), ..row(of, name, None) };
    let mut rows: Vec<Row> =
        ["health-64", "mixed"].iter().flat_map(|of| names.map(|name| row(of, name))).collect();
    assert_eq!(order(&rows, 0), [0, 1, 2, 3, 4, 5, 6, 7]);
    // A workload that takes long has one round.
    assert_eq!(order(&rows, 1), [1, 2, 3, 0]);
    // One is left out. Another has failed, and may do better.
    rows[1].why = Some("left out".to_owned());
    (rows[3].why, rows[3].samples) = (Some("it broke off".to_owned()), vec![None]);
    assert_eq!(order(&rows, 2), [3, 0, 2]);
}

#[test]
fn a_server_that_does_not_close_is_left_out() {
    let why = |subject: &str, workload| left_out(&subject.parse().unwrap(), named(&GRID, workload)[0]);
    assert_eq!(why("may_minihttp", "close-64").as_deref(), Some(IGNORES_CLOSE));
    assert_eq!(why("may_minihttp", "health-64"), None);
    assert_eq!([why("nginx", "close-64"), why("floor", "close-64")], [None, None]);
    assert_eq!(why("floor", "churn-64").as_deref(), Some(IGNORES_CLOSE));
    let info = |name: &str| SubjectInfo {
        name: name.to_owned(),
        broken: vec![IGNORES_CLOSE.to_owned()],
        ..SubjectInfo::default()
    };
    let results = Results { subjects: vec![info("may_minihttp")], ..Results::default() };
    assert_eq!(["may_minihttp", "nginx"].map(|name| results.is_honest(name)), [false, true]);
}

#[test]
fn outputs_that_cannot_be_written_fail_before_the_run() {
    let folder = std::env::temp_dir().join(format!("weftwork-bench-outputs-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let check = |json: &str, markdown: &str| {
        check_outputs(Some(folder.join(json)).as_deref(), Some(folder.join(markdown)).as_deref())
    };
    let says = |checked| match checked {
        Err(Failure::Usage(message)) => message,
        other => panic!("{other:?}"),
    };
    fs::write(folder.join("old.json"), "kept").unwrap();
    assert!(check("old.json", "new.md").is_ok());
    assert_eq!(fs::read_to_string(folder.join("old.json")).unwrap(), "kept");
    assert!(!folder.join("new.md").exists(), "a run that fails leaves nothing");
    let message = says(check("nowhere/run.json", "new.md"));
    let path = folder.join("nowhere/run.json");
    assert!(message.starts_with(&format!("--json {}: ", path.display())), "{message}");
    assert!(says(check("old.json", "")).starts_with("--markdown "), "a folder");
    assert!(says(check("old.json", "page")).contains("page.md"));
    fs::remove_dir_all(&folder).unwrap();
}
