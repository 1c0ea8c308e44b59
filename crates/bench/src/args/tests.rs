//! Are the arguments read right, and wrong ones refused with a reason?

use super::*;
use crate::procs::pin::Span;
use crate::site::Site;

fn parse_words(line: &str) -> Result<Command> {
    parse(Parser::from_args(line.split_whitespace()))
}

fn quick_options(line: &str) -> GridOptions {
    match parse_words(line) {
        Ok(Command::Quick(options)) => options,
        other => panic!("{line}: {other:?}"),
    }
}

fn names(options: &GridOptions) -> Vec<&str> {
    options.workloads.iter().map(|workload| workload.name.as_str()).collect()
}

fn check_refused(line: &str, reason: &str) {
    match parse_words(line) {
        Err(Failure::Usage(message)) => assert!(message.contains(reason), "{line}: {message}"),
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn quick_defaults() {
    let options = quick_options("quick");
    assert_eq!((options.rounds, options.time, options.idle), (5, Duration::from_secs(1), 9_000));
    assert_eq!(options.cores, Cores::default());
    assert_eq!(options.workloads.len(), QUICK.len());
    assert_eq!(options.subjects.len(), 3);
}

#[test]
fn turns_are_of_one_group_that_asks() {
    let turns = |line| match parse_words(line) {
        Ok(Command::Turns(options)) => options,
        other => panic!("{line}: {other:?}"),
    };
    let options = turns("turns --only pipelined,slow-100 --beside weft-before --turn-ms 50 --rounds 1000");
    assert_eq!(names(&options.grid), ["pipelined", "slow-100"]);
    assert_eq!((options.turn, options.grid.rounds), (Some(Duration::from_millis(50)), 1000));
    assert_eq!(options.beside, Some("weft-before".into()));
    let options = turns("turns");
    assert_eq!((names(&options.grid), options.turn), (vec!["keepalive"], None));
    assert_eq!(names(&turns("turns --only rate-5000").grid), ["rate-5000"]);
    let options = turns("turns --only echo-64k,slow");
    let names: Vec<&str> = options.grid.workloads.iter().map(|one| one.name.as_str()).collect();
    assert!(names.contains(&"echo-64k") && names.contains(&"slow-10"), "{names:?}");
    assert_eq!(names.iter().filter(|name| **name == "slow-100").count(), 1, "{names:?}");
    check_refused("turns --turn-ms 2", "from 5 to 10000");
    check_refused("turns --rounds 0", "--rounds must be from 5");
    check_refused("turns --rounds 4", "--rounds must be from 5 to 10000, not 4");
    check_refused("turns --json", "--json");
    check_refused("turns --only keepalive,mixed", "mixed: only loads of one group of clients");
}

#[test]
fn quick_choices() {
    let options =
        quick_options("quick --only mixed,slow,slow-100 --subjects floor,weft:reactor --cores 2,3 --json");
    assert_eq!(names(&options), ["mixed", "slow-100", "slow-400", "slow-close-100", "slow-close-400"]);
    assert_eq!(options.subjects, [Subject::Floor, Subject::Weft { engine: Some("reactor".to_owned()) }]);
    assert_eq!(options.cores, Cores { server: Span::one(2), load: Span::one(3) });
    assert!(options.json);
    let spans = quick_options("quick --cores 0-3,4-7 --load wrk").cores;
    assert_eq!(spans, Cores { server: Span { first: 0, count: 4 }, load: Span { first: 4, count: 4 } });
    assert_eq!(names(&quick_options("quick --only close")), ["close"]);
    assert_eq!(quick_options("quick --seconds 0.5").time, Duration::from_millis(500));
    assert_eq!(quick_options("quick --load wrk").load, LoadKind::Wrk);
}

#[test]
fn full_takes_the_whole_grid_or_what_is_named() {
    let full = |line| match parse_words(line) {
        Ok(Command::Full(options)) => options,
        other => panic!("{line}: {other:?}"),
    };
    let all = full("full");
    assert_eq!(all.grid.workloads.len(), GRID.len());
    assert!(all.grid.subjects.len() > 15 && all.json.is_none() && all.html.is_none());
    assert_eq!([all, full("full --runoff 0")].map(|options| options.grid.runoff.as_secs()), [4, 0]);
    check_refused("quick --runoff 1", "--runoff");
    check_refused("full --runoff 61", "from 0.2 to 60 seconds");
    let some =
        full("full --only slow,json-64 --subjects hyper,weft:pool --rounds 1 --json a --html b --markdown c");
    assert_eq!(names(&some.grid).len(), 7);
    assert_eq!(some.grid.subjects.len(), 2);
    assert_eq!([some.json, some.html, some.markdown], ["a", "b", "c"].map(|path| Some(path.into())));
}

#[test]
fn router_compares_two_sites() {
    let Ok(Command::Router(options)) = parse_words("router") else { panic!("router") };
    assert_eq!((options.rounds, options.time), (15, Duration::from_secs(1)));
    assert_eq!(names(&options), ["static", "captures"]);
    assert_eq!(options.subjects, [Site::Bare, Site::Typed].map(Subject::Site));
    let line = "router --rounds 3 --only captures --engine fibers --json";
    let Ok(Command::Router(options)) = parse_words(line) else { panic!("{line}") };
    assert_eq!((options.rounds, names(&options), options.json), (3, vec!["captures"], true));
    assert_eq!(options.engine.as_deref(), Some("fibers"));
    check_refused("router --subjects weft", "--subjects");
    check_refused("router --only keepalive", "unknown workload 'keepalive'");
}

#[test]
fn sites() {
    let engine = Some("pool".to_owned());
    let Ok(Command::Site(options)) = parse_words("site typed --port 9 --engine pool") else { panic!("site") };
    assert_eq!(options, SiteOptions { site: Site::Typed, port: 9, engine });
    check_refused("site --port 9", "bare or typed");
    check_refused("site plain --port 9", "bare or typed");
    check_refused("site bare", "--port");
}

#[test]
fn reports_need_results() {
    let line = "report run.json --html a --markdown b";
    assert!(matches!(parse_words(line), Ok(Command::Report { html: Some(_), markdown: Some(_), .. })));
    check_refused("report --html a", "JSON of a run");
    check_refused("report run.json", "report needs --html PATH or --markdown PATH");
}

#[test]
fn tracking() {
    let line = "track run.json --history h --bigger b --smaller s --html t";
    assert!(matches!(parse_words(line), Ok(Command::Track(options)) if options.bigger.is_some()));
    match parse_words("compare run.json") {
        Ok(Command::Compare(options)) => assert_eq!((options.last, options.least), (20, 0.8)),
        other => panic!("{other:?}"),
    }
    check_refused("track", "JSON of a run");
    check_refused("compare --last 0 run.json", "--last must be from 1");
    for least in ["nan", "0", "-0.5", "80", "inf"] {
        check_refused(&format!("compare --least {least} run.json"), "above 0, and 1 at most");
    }
    assert!(matches!(parse_words("compare --least 1 run.json"), Ok(Command::Compare(_))));
}

#[test]
fn instruction_counts() {
    match parse_words("instructions --check --same-toolchain --only head") {
        Ok(Command::Instructions(options)) => {
            assert!(options.check && options.same_toolchain && !options.update && options.only == ["head"]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn floors() {
    match parse_words("floor threads --port 9 --close --sleep-ms 1 --spawn --loops 2 --answer-bytes 200") {
        Ok(Command::Floor(options)) => {
            let sleep = Duration::from_millis(1);
            let floor = Floor::Threads;
            let want = FloorOptions {
                floor,
                port: 9,
                close: true,
                pipelined: false,
                sleep,
                spawn: true,
                loops: 2,
                answer_bytes: 200,
            };
            assert_eq!(options, want);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn wrong_arguments() {
    check_refused(
        "fast",
        "quick, full, router, turns, report, track, compare, instructions, events, held, floor, site, soak or slow-heads",
    );
    check_refused("--version", "--version");
    check_refused("quick --rounds 0", "--rounds must be from 1");
    check_refused("quick --rounds many", "many");
    check_refused("quick --seconds 0", "0.2 to 60");
    check_refused("quick --only health", "unknown workload 'health'");
    check_refused("quick --subjects apache", "unknown subject 'apache'");
    check_refused("quick --cores 1", "SERVER,LOAD");
    check_refused("quick --load ab", "own or wrk");
    check_refused("quick --colour", "--colour");
    check_refused("floor --port 1", "which floor");
    check_refused("floor epoll", "--port");
    check_refused("floor poll --port 1", "epoll or threads");
    check_refused("floor epoll --port 1 --answer-bytes 0", "--answer-bytes");
}

#[test]
fn help_is_there_for_each_command() {
    for line in [
        "",
        "--help",
        "help",
        "quick --help",
        "floor -h",
        "instructions -h",
        "full -h",
        "report --help",
        "track -h",
        "compare -h",
        "router --help",
        "site -h",
    ] {
        assert!(matches!(parse_words(line), Ok(Command::Help(text)) if text.contains("Usage:")), "{line}");
    }
}

#[test]
fn hostile_clients() {
    let Ok(Command::Soak(options)) = parse_words("soak --minutes 2 --engine pool,reactor:2") else {
        panic!("soak")
    };
    assert_eq!(options.time, Duration::from_secs(120));
    assert_eq!(options.engines, ["pool", "reactor:2"].map(|name| Some(name.to_owned())));
    let Ok(Command::SlowHeads(options)) = parse_words("slow-heads --clients 7") else { panic!("slow-heads") };
    assert_eq!((options.heads, options.cores), (7, Cores::default()));
    check_refused("soak --minutes 0", "--minutes must be from 1 to 1440, not 0");
    check_refused("slow-heads --clients 0", "--clients must be from 1");
}
