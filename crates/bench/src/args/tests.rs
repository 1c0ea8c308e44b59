//! Arguments are read right, and wrong ones are refused with a reason.

use clap::Parser;

use super::*;
use crate::floors::{Floor, FloorArgs};
use crate::grid;
use crate::procs::pin::Span;
use crate::site::Site;
use crate::workloads::{GRID, QUICK};
use crate::{Cli, Command};

fn parse(line: &str) -> std::result::Result<Command, String> {
    let words = ["weftwork-bench"].into_iter().chain(line.split_whitespace());
    Cli::try_parse_from(words).map(|cli| cli.command).map_err(|error| error.to_string())
}

fn options(line: &str) -> Result<GridOptions> {
    match parse(line) {
        Ok(Command::Quick(args)) => grid::quick(args),
        Ok(Command::Full(args)) => grid::full(args),
        Ok(Command::Router(args)) => grid::router(args),
        other => panic!("{line}: {other:?}"),
    }
}

fn names(options: &GridOptions) -> Vec<&str> {
    options.workloads.iter().map(|workload| workload.name.as_str()).collect()
}

#[track_caller]
fn check_refused(line: &str, reason: &str) {
    match parse(line) {
        Err(message) => assert!(message.contains(reason), "{line}: {message}"),
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn quick_defaults() {
    let quick = options("quick").unwrap();
    assert_eq!((quick.rounds, quick.time, quick.args.idle), (5, Duration::from_secs(1), 9_000));
    assert_eq!((quick.args.server.cores.cores, quick.args.json), (Cores::default(), None));
    assert_eq!((quick.workloads.len(), quick.subjects.len(), quick.runoff), (QUICK.len(), 3, Duration::ZERO));
}

#[test]
fn quick_choices() {
    let line =
        "quick --only mixed,slow,slow-100 --subjects floor,weft:reactor --cores 2,3 --json a --seconds 0.5";
    let quick = options(line).unwrap();
    let slow = ["slow-64-100us", "slow-64-300us", "slow-100", "slow-400", "slow-close-100", "slow-close-400"];
    assert_eq!(names(&quick), [&["mixed"], &slow[..]].concat());
    assert_eq!(quick.subjects, [Subject::Floor, Subject::Weft { engine: Some("reactor".to_owned()) }]);
    assert_eq!(quick.args.server.cores.cores, Cores { server: Span::one(2), load: Span::one(3) });
    assert_eq!((quick.args.json, quick.time), (Some("a".into()), Duration::from_millis(500)));
    let spans = options("quick --cores 0-3,4-7").unwrap().args;
    let four = |first| Span { first, count: 4 };
    assert_eq!(spans.server.cores.cores, Cores { server: four(0), load: four(4) });
    assert_eq!(names(&options("quick --only close").unwrap()), ["close"]);
    let unknown = options("quick --only health").map(|_| ());
    assert!(
        matches!(unknown, Err(Failure::Usage(why)) if why.contains("unknown workload 'health': keepalive"))
    );
}

#[test]
fn full_takes_the_whole_grid_or_what_is_named() {
    let all = options("full").unwrap();
    assert_eq!((all.workloads.len(), all.rounds, all.runoff.as_secs()), (GRID.len(), 2, 4));
    assert!(all.subjects.len() > 15 && all.args.json.is_none());
    assert_eq!(options("full --runoff 0").unwrap().runoff, Duration::ZERO);
    let some =
        options("full --only slow,json-64 --subjects hyper,weft:pool --rounds 1 --markdown c").unwrap();
    assert_eq!((names(&some).len(), some.subjects.len(), some.args.markdown), (9, 2, Some("c".into())));
}

#[test]
fn router_compares_two_sites() {
    let router = options("router").unwrap();
    assert_eq!((router.rounds, router.time), (15, Duration::from_secs(1)));
    assert_eq!(names(&router), ["static", "captures"]);
    assert_eq!(router.subjects, [Site::Bare, Site::Typed].map(Subject::Site));
    let router = options("router --rounds 3 --only captures --engine fibers --json a").unwrap();
    assert_eq!((router.rounds, names(&router)), (3, vec!["captures"]));
    assert_eq!(router.args.server.engine.as_deref(), Some("fibers"));
}

#[test]
fn commands() {
    for line in [
        "turns --only pipelined,slow-64-100us --beside weft-before --turn-ms 50 --rounds 1000",
        "report run.json --markdown b",
        "track run.json --history h --charts c --last 3",
        "instructions --check --same-toolchain --only head,body",
        "instructions --inside head_small 100",
        "events --clients 5 --seconds 1",
        "held --engine fibers:2",
        "site typed --port 9 --engine pool",
        "blocking --svg a.svg",
    ] {
        assert!(parse(line).is_ok(), "{line}: {:?}", parse(line));
    }
    let line = "floor threads --port 9 --close --sleep-us 100 --loops 2 --answer-bytes 200";
    let Ok(Command::Floor(floor)) = parse(line) else { panic!("{line}") };
    let (close, pipelined) = (true, false);
    let port = 9;
    let want = FloorArgs {
        floor: Floor::Threads,
        port,
        close,
        pipelined,
        sleep_us: 100,
        loops: 2,
        answer_bytes: 200,
    };
    assert_eq!(floor, want);
}

#[test]
fn wrong_arguments() {
    check_refused("fast", "unrecognized subcommand 'fast'");
    check_refused("quick --rounds 0", "0 is not in 1..=100");
    check_refused("quick --rounds many", "invalid value 'many' for '--rounds <N>'");
    check_refused("quick --seconds 0", "0.2 to 60 seconds");
    check_refused("quick --subjects apache", "unknown subject 'apache': floor, weft, weft:ENGINE, nginx");
    check_refused("quick --cores 1", "SERVER,LOAD");
    check_refused("quick --colour", "--colour");
    check_refused("full --runoff 61", "0.2 to 60 seconds");
    check_refused("turns --turn-ms 2", "2 is not in 5..=10000");
    check_refused("turns --rounds 4", "4 is not in 5..=10000");
    check_refused("turns --json a", "--json");
    check_refused("floor --port 1", "<FLOOR>");
    check_refused("floor epoll", "--port");
    check_refused("floor poll --port 1", "epoll, threads");
    check_refused("floor epoll --port 1 --answer-bytes 0", "--answer-bytes");
    check_refused("site plain --port 9", "bare, typed");
    check_refused("site bare", "--port");
    check_refused("report run.json", "--markdown");
    check_refused("track", "RUN.json");
    check_refused("track --last 0 run.json", "0 is not in 1..=10000");
}

#[test]
fn every_option_has_a_help_text() {
    use clap::CommandFactory;
    let cli = Cli::command();
    for command in cli.get_subcommands() {
        assert!(command.get_about().is_some(), "{}", command.get_name());
        for argument in command.get_arguments().filter(|one| !one.is_positional()) {
            assert!(argument.get_help().is_some(), "{} {argument}", command.get_name());
        }
    }
}
