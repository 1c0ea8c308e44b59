//! Ratios are kept the right way round, and the best of the last commits decides.

use super::*;
use crate::results::Figure as Rounds;

fn cell(subject: &str, ratios: &[(&str, f64)]) -> Cell {
    let figures = [("requests_per_s", 1000.0), ("cpu_us_per_request", 5.0), ("p99_ms", 0.5)];
    let figure = |value| Rounds { median: value, low: value, high: value };
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
    let entry = entry(run()).unwrap();
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
fn a_server_with_errors_is_not_compared() {
    type Spoil = fn(&mut Cell);
    let spoilt: [Spoil; 2] = [|cell| cell.errors = 1.0, |cell| cell.failed_rounds = 1];
    for spoil in spoilt {
        let mut run = run();
        spoil(&mut run.workloads[0].cells[1]);
        let quick = entry(run).unwrap().figures.remove("health-64 weft:adaptive").unwrap();
        assert_eq!((quick.of_floor, quick.of_nginx), (Some(0.8), None));
    }
}

#[test]
fn the_best_is_what_is_compared_with() {
    let now = entry(run()).unwrap();
    let (old, new) = (before("old", 1.1), before("new", 0.9));
    assert_eq!(warnings(&now, &[&old, &new]), ["health-64 weft:adaptive of floor: 0.800, was 1.100 at old"]);
    assert_eq!(warnings(&now, &[&new]), [""; 0], "88 %");
    assert_eq!(warnings(&now, &[]), [""; 0]);
    // Figures with errors are not the best.
    let mut broken = before("broken", 2.0);
    broken.figures.values_mut().for_each(|track| track.errors = 1.0);
    assert_eq!(warnings(&now, &[&broken]), [""; 0]);
}

#[test]
fn what_is_no_longer_measured_is_named() {
    let old = before("old", 0.5);
    let says = ["health-64 weft:adaptive of floor: not measured, was 0.500 at old"];
    let mut gone = run();
    gone.workloads.remove(0);
    assert_eq!(warnings(&entry(gone).unwrap(), &[&old]), says);
    let mut no_floor = run();
    no_floor.workloads[0].cells[0].ratios.remove("cpu_over_floor");
    assert_eq!(warnings(&entry(no_floor).unwrap(), &[&old]), says);
}

#[test]
fn a_broken_run_is_named() {
    type Spoil = fn(&mut Cell);
    let spoilt: [(Spoil, &str); 4] = [
        (|cell| cell.failed_rounds = 1, "slow: 1 failed rounds, 0 errors, 1000 requests/s"),
        (|cell| cell.errors = 2.0, "slow: 0 failed rounds, 2 errors, 1000 requests/s"),
        // Every round failed: there are no figures at all.
        (
            |cell| (cell.failed_rounds, cell.figures) = (3, BTreeMap::new()),
            "slow: 3 failed rounds, 0 errors, 0 requests/s",
        ),
        (
            |cell| cell.figures.values_mut().for_each(|figure| figure.median = 0.0),
            "slow: 0 failed rounds, 0 errors, 0 requests/s",
        ),
    ];
    for (spoil, says) in spoilt {
        let mut run = run();
        spoil(&mut run.workloads[1].cells[0]);
        let entry = entry(run).unwrap();
        assert_eq!(entry.figures["slow-100 weft:adaptive"].broken("slow").as_deref(), Some(says));
        assert_eq!(entry.figures["health-64 weft:adaptive"].broken("health"), None);
    }
}

#[test]
fn idle_connections_make_no_requests() {
    let mut run = run();
    let idle = Cell { subject: "weft:adaptive".to_owned(), ..Cell::default() };
    run.workloads.push(Column { name: "idle".to_owned(), cells: vec![idle], ..Column::default() });
    assert!(!entry(run).unwrap().figures.contains_key("idle weft:adaptive"));
}

#[test]
fn a_run_is_kept_and_drawn() {
    let folder = std::env::temp_dir().join(format!("weftwork-bench-tracker-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let args = TrackArgs {
        run: folder.join("run.json"),
        history: folder.join("history"),
        charts: Some(folder.join("charts")),
        last: 20,
    };
    let [old, other] = [before("old", 1.1), Entry { cpu: "another".to_owned(), ..before("now", 1.0) }];
    let lines = [&old, &other].map(|entry| serde_json::to_string(entry).unwrap());
    fs::write(&args.history, lines.join("\n")).unwrap();
    fs::write(&args.run, run().json().unwrap()).unwrap();
    track(&args).unwrap();
    track(&args).unwrap();
    let commits: Vec<String> = read(&args.history).unwrap().into_iter().map(|entry| entry.commit).collect();
    assert_eq!(commits, ["old", "now", "now"], "a commit has one line a CPU");
    for chart in ["requests.svg", "p99.svg", "ratios.svg"] {
        let svg = fs::read_to_string(folder.join("charts").join(chart)).unwrap();
        assert!(svg.contains("health-64 weft:adaptive") && svg.contains("<polyline"), "{svg}");
    }
    let mut failed = run();
    failed.workloads[1].cells[0].failed_rounds = 1;
    fs::write(&args.run, failed.json().unwrap()).unwrap();
    assert!(matches!(track(&args), Err(Failure::Run(why)) if why.contains("1 failed rounds")));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_run_of_no_commit_is_refused() {
    let refused = entry(Results { commit: String::new(), ..run() });
    assert!(matches!(refused, Err(Failure::Run(why)) if why.contains("--weft") && why.contains("git")));
    assert_eq!(read(Path::new("no such file")).unwrap(), []);
}
