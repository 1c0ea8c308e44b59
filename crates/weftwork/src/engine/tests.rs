//! Tests that engines are named, shown and refused as their docs say.

use super::*;

fn reads_back(text: &str, engine: Engine) {
    assert_eq!(text.parse(), Ok(engine));
    assert_eq!(engine.to_string(), text);
}

#[test]
fn names_survive_a_round_trip() {
    reads_back("adaptive", Engine::Adaptive { loops: None });
    reads_back("adaptive:3", Engine::Adaptive { loops: Some(3) });
    reads_back("reactor", Engine::Reactor { loops: None });
    reads_back("reactor:1", Engine::Reactor { loops: Some(1) });
    reads_back("workers", Engine::Workers { listeners: None });
    reads_back("workers:4", Engine::Workers { listeners: Some(4) });
    reads_back("pool", Engine::Pool { standby: None });
    reads_back("pool:16", Engine::Pool { standby: Some(16) });
    #[cfg(feature = "fibers")]
    reads_back("fibers", Engine::Fibers { threads: None });
    #[cfg(feature = "fibers")]
    reads_back("fibers:2", Engine::Fibers { threads: Some(2) });
}

#[test]
fn what_names_no_engine_is_refused_with_the_choices() {
    for text in ["", "apache", "pool:", "pool:0", "workers:-1", "Pool", "pool:8:8", "reactor:0"] {
        let error = text.parse::<Engine>().unwrap_err().to_string();
        assert!(error.contains(&format!("{text:?}")) && error.contains(&info::usages()), "{error}");
    }
}

#[cfg(not(feature = "fibers"))]
#[test]
fn an_engine_that_is_off_says_so() {
    for text in ["fibers", "fibers:2"] {
        let error = text.parse::<Engine>().unwrap_err().to_string();
        assert!(error.contains("feature `fibers`") && error.contains(&info::usages()), "{error}");
    }
}

#[track_caller]
fn refused(engine: Engine, settings: Settings, words: [&str; 2]) {
    let error = engine.check(&settings).unwrap_err().to_string();
    assert!(words.iter().all(|word| error.contains(word)), "{error}");
}

#[test]
fn parameters_with_which_no_engine_could_run_are_refused() {
    let settings = || Settings::default().connections_max(1000);
    refused(Engine::Adaptive { loops: Some(0) }, settings(), ["invalid loops 0", "at least 1"]);
    refused(Engine::Reactor { loops: Some(0) }, settings(), ["invalid loops 0", "at least 1"]);
    refused(Engine::Workers { listeners: Some(0) }, settings(), ["invalid listeners 0", "at least 1"]);
    refused(Engine::Pool { standby: Some(0) }, settings(), ["invalid standby 0", "at least 1"]);
    let none = settings().standby_kept(0);
    refused(Engine::Pool { standby: None }, none, ["invalid standby_kept 0", "at least 1"]);
    let few = settings().threads_max(8);
    refused(Engine::Pool { standby: Some(9) }, few, ["invalid standby 9", "threads_max (8)"]);
    #[cfg(feature = "fibers")]
    refused(Engine::Fibers { threads: Some(0) }, settings(), ["invalid threads 0", "at least 1"]);
    let many = settings().accepted_max(1001);
    refused(Engine::Pool { standby: None }, many, ["invalid accepted_max 1001", "connections_max (1000)"]);
}

#[test]
fn parameters_at_their_limits_are_fine() {
    let settings = Settings::default().connections_max(1000).threads_max(8).accepted_max(1000);
    for text in ["pool:8", "pool:1", "workers:1", "adaptive:1", "reactor:1"] {
        let engine: Engine = text.parse().unwrap();
        assert!(engine.check(&settings).is_ok(), "{text}");
    }
}

#[test]
fn the_listed_names_are_those_that_are_read() {
    for listed in ENGINES {
        let (name, number) = listed.usage.split_once("[:").unwrap();
        let engine: Engine = name.parse().unwrap();
        assert_eq!(engine.to_string(), name);
        assert_eq!(engine.parameter().0, number.trim_end_matches(']'));
    }
    assert_eq!(ENGINES[0].usage.split('[').next(), Some(Engine::default().to_string().as_str()));
}
