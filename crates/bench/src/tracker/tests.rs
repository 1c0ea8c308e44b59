//! Are ratios kept the right way round, and is the best of the last commits what decides?

use super::*;
use crate::results::Figure;

fn cell(subject: &str, ratios: &[(&str, f64)]) -> Cell {
    let figures = [("requests_per_s", 1000.0), ("cpu_us_per_request", 5.0), ("p99_ms", 0.5)];
    let figure = |value| Figure { median: value, low: value, high: value };
    Cell {
        subject: subject.to_owned(),
        figures: figures.map(|(key, value)| (key.to_owned(), figure(value))).into(),
        ratios: ratios.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect(),
        ..Cell::default()
    }
}

fn run() -> Results {
    let column = |name: &str, cells| Column { name: name.to_owned(), cells, ..Column::default() };
    let ratios = [("cpu_over_floor", 1.25), ("cpu_over_nginx", 0.8), ("requests_per_s_over_floor", 0.9)];
    let workloads = vec![
        column("health-64", vec![cell("weft:adaptive", &ratios), cell("nginx", &ratios)]),
        column("slow-100", vec![cell("weft:adaptive", &ratios)]),
    ];
    Results { commit: "now".to_owned(), workloads, ..Results::default() }
}

fn before(commit: &str, of_floor: f64) -> Entry {
    let track = Track { requests_per_s: 1000.0, of_floor: Some(of_floor), ..Track::default() };
    let figures = BTreeMap::from([("health-64 weft:adaptive".to_owned(), track)]);
    Entry { commit: commit.to_owned(), figures, ..Entry::default() }
}

#[test]
fn shares_grow_with_merit() {
    let entry = entry(&run());
    assert_eq!(
        entry.figures.keys().collect::<Vec<_>>(),
        ["health-64 weft:adaptive", "slow-100 weft:adaptive"]
    );
    let quick = &entry.figures["health-64 weft:adaptive"];
    assert_eq!((quick.of_floor, quick.of_nginx), (Some(0.8), Some(1.25)));
    let slow = &entry.figures["slow-100 weft:adaptive"];
    assert_eq!((slow.of_floor, slow.of_nginx), (Some(0.9), None));
}

#[test]
fn who_errs_or_fails_is_nothing_to_compare_with() {
    type Spoil = fn(&mut Cell);
    let spoilt: [Spoil; 2] = [|cell| cell.errors = 1.0, |cell| cell.failed_rounds = 1];
    for spoil in spoilt {
        let mut run = run();
        spoil(&mut run.workloads[0].cells[1]);
        let quick = entry(&run).figures.remove("health-64 weft:adaptive").unwrap();
        assert_eq!((quick.of_floor, quick.of_nginx), (Some(0.8), None));
    }
}

#[test]
fn the_best_is_what_is_compared_with() {
    let (old, new) = (before("old", 1.1), before("new", 0.9));
    let lines = compared(&entry(&run()), &[&old, &new]);
    let want = Line {
        name: "floor: health-64 weft:adaptive".to_owned(),
        now: 0.8,
        best: 1.1,
        commit: "old".to_owned(),
    };
    assert_eq!(lines, [want]);
}

/// Nor is a commit with itself.
#[test]
fn what_was_measured_on_another_cpu_is_not_compared_with() {
    let (old, now) = (before("old", 1.1), before("now", 0.9));
    assert!(is_comparable(&old, &now) && !is_comparable(&now, &now));
    assert!(!is_comparable(&Entry { cpu: "another".to_owned(), ..old }, &now));
}

#[test]
fn a_run_that_is_broken_says_so() {
    assert_eq!(broken(&entry(&run())), [""; 0]);
    type Spoil = fn(&mut Cell);
    let spoilt: [(Spoil, &str); 4] = [
        (
            |cell| cell.failed_rounds = 1,
            "  slow-100 weft:adaptive: 1 failed rounds, 0 errors, 1000 requests/s",
        ),
        (|cell| cell.errors = 2.0, "  slow-100 weft:adaptive: 0 failed rounds, 2 errors, 1000 requests/s"),
        // Every round crashed: there are no figures at all.
        (
            |cell| (cell.failed_rounds, cell.figures) = (3, BTreeMap::new()),
            "  slow-100 weft:adaptive: 3 failed rounds, 0 errors, 0 requests/s",
        ),
        (
            |cell| cell.figures.values_mut().for_each(|figure| figure.median = 0.0),
            "  slow-100 weft:adaptive: 0 failed rounds, 0 errors, 0 requests/s",
        ),
    ];
    for (spoil, says) in spoilt {
        let mut run = run();
        spoil(&mut run.workloads[1].cells[0]);
        assert_eq!(broken(&entry(&run)), [says]);
    }
}

#[test]
fn what_is_no_longer_measured_is_named() {
    let old = before("old", 0.5);
    assert_eq!(lost(&entry(&run()), &[&old]), [""; 0]);
    let mut gone = run();
    gone.workloads.remove(0);
    let says = ["  health-64 weft:adaptive: not measured, was at old"];
    assert_eq!(lost(&entry(&gone), &[&old]), says);
    // Nor is it forgotten where the run before this one had lost it already.
    let later = Entry { commit: "later".to_owned(), ..entry(&gone) };
    assert_eq!(lost(&entry(&gone), &[&before("older", 0.5), &old, &later]), says);
    let mut no_floor = run();
    no_floor.workloads[0].cells[0].ratios.remove("cpu_over_floor");
    let now = entry(&no_floor);
    let says = "  floor: health-64 weft:adaptive: no ratio, had one at old";
    assert_eq!(lost(&now, &[&old, &Entry { commit: "later".to_owned(), ..now.clone() }]), [says]);
}

#[test]
fn a_failed_round_fails_the_comparison_whatever_was_before() {
    let folder = std::env::temp_dir().join(format!("weftwork-bench-broken-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let options = CompareOptions {
        run: folder.join("run.json"),
        history: folder.join("history"),
        last: 20,
        least: 0.8,
    };
    let mut failed = run();
    failed.workloads[1].cells[0].failed_rounds = 1;
    fs::write(&options.run, failed.json().unwrap()).unwrap();
    assert!(matches!(compare(&options), Err(Failure::Run(why)) if why.contains("1 failed rounds")));
    keep(&options.history, &before("old", 0.1)).unwrap();
    assert!(matches!(compare(&options), Err(Failure::Run(why)) if why.contains("1 failed rounds")));
    fs::write(&options.run, run().json().unwrap()).unwrap();
    assert!(compare(&options).is_ok());
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_run_of_no_commit_is_neither_kept_nor_compared() {
    let folder = std::env::temp_dir().join(format!("weftwork-bench-no-commit-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let (path, history) = (folder.join("run.json"), folder.join("history"));
    fs::write(&path, Results { commit: String::new(), ..run() }.json().unwrap()).unwrap();
    let compare_options =
        CompareOptions { run: path.clone(), history: history.clone(), last: 20, least: 0.8 };
    let track_options =
        TrackOptions { run: path, history: history.clone(), bigger: None, smaller: None, html: None };
    for refused in [compare(&compare_options), track(&track_options)] {
        let says = ["run.json", "--weft", "git could not"];
        assert!(matches!(refused, Err(Failure::Run(why)) if says.iter().all(|part| why.contains(part))));
    }
    assert!(!history.exists());
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_broken_run_is_nobodys_best() {
    let mut broken = before("broken", 2.0);
    broken.figures.values_mut().for_each(|track| track.errors = 1.0);
    assert_eq!(compared(&entry(&run()), &[&broken]), []);
    let mut text = Vec::new();
    write_lines(&mut text, &[], 0).unwrap();
    assert!(text.starts_with(b"no history"));
}

#[test]
fn idle_connections_make_no_requests() {
    let mut run = run();
    let idle = Cell { subject: "weft:adaptive".to_owned(), ..Cell::default() };
    run.workloads.push(Column { name: "idle".to_owned(), cells: vec![idle], ..Column::default() });
    assert!(!entry(&run).figures.contains_key("idle weft:adaptive"));
}

#[test]
fn a_run_is_tracked_compared_and_drawn() {
    let folder = std::env::temp_dir().join(format!("weftwork-bench-tracker-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let at = |name: &str| folder.join(name);
    fs::write(at("run.json"), run().json().unwrap()).unwrap();
    keep(&at("history"), &before("old", 1.1)).unwrap();
    keep(&at("history"), &before("new", 0.9)).unwrap();
    let compare_last =
        |last, least| compare(&CompareOptions { run: at("run.json"), history: at("history"), last, least });
    let options = TrackOptions {
        run: at("run.json"),
        history: at("history"),
        bigger: Some(at("bigger")),
        smaller: Some(at("smaller")),
        html: Some(at("html")),
    };
    assert!(
        matches!(compare_last(20, 0.8), Err(Failure::Run(why)) if why.contains("0.800, was 1.100 at old"))
    );
    assert!(compare_last(20, 0.7).is_ok() && compare_last(1, 0.8).is_ok());
    track(&options).unwrap();
    // It is in the history now, and still is not compared with itself.
    assert!(compare_last(1, 0.8).is_ok() && compare_last(20, 0.8).is_err());
    assert_eq!(read(&at("history")).unwrap().len(), 3);
    track(&options).unwrap();
    assert_eq!(read(&at("history")).unwrap().len(), 3, "a commit has one line");
    let list: serde_json::Value = serde_json::from_str(&fs::read_to_string(at("bigger")).unwrap()).unwrap();
    assert_eq!(list[0]["name"], "health-64 weft:adaptive, of floor");
    assert_eq!((&list[0]["unit"], &list[0]["value"]), (&"ratio".into(), &0.8.into()));
    let list: serde_json::Value = serde_json::from_str(&fs::read_to_string(at("smaller")).unwrap()).unwrap();
    assert_eq!((&list[0]["unit"], &list[0]["value"]), (&"us/request".into(), &5.0.into()));
    let html = fs::read_to_string(at("html")).unwrap();
    assert!(html.contains("health-64 weft:adaptive") && html.contains("<polyline"));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn without_a_history_nothing_is_worse() {
    assert_eq!(read(Path::new("no such file")).unwrap(), []);
    assert_eq!(compared(&entry(&run()), &[]), []);
}
