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
    let track = Track { of_floor: Some(of_floor), ..Track::default() };
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

#[test]
fn a_run_is_tracked_compared_and_drawn() {
    let folder = std::env::temp_dir().join(format!("weftwork-bench-tracker-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let at = |name: &str| folder.join(name);
    fs::write(at("run.json"), run().json().unwrap()).unwrap();
    append(&at("history"), &before("old", 1.1)).unwrap();
    append(&at("history"), &before("new", 0.9)).unwrap();
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
