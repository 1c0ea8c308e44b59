//! Tests of parsing, formatting, sources and checks of the settings.

use std::time::Duration;

use super::*;

fn reads_back<T: Unit + PartialEq + std::fmt::Debug>(text: &str, value: T, shown: &str) {
    assert_eq!(T::parse(text).as_ref(), Ok(&value), "{text}");
    assert_eq!(value.show(), shown);
    assert_eq!(T::parse(shown), Ok(value));
}

#[test]
fn values_are_written_as_people_write_them() {
    reads_back("30s", Duration::from_secs(30), "30s");
    reads_back("1500ms", Duration::from_millis(1500), "1500ms");
    reads_back("90 m", Duration::from_secs(5400), "90m");
    reads_back("0s", Duration::ZERO, "0s");
    reads_back("2MiB", 2_u64 << 20, "2MiB");
    reads_back("64kib", 64_u64 << 10, "64KiB");
    reads_back("1_000", 1000_u64, "1000B");
    reads_back("1GB", 1_000_000_000_u64, "1000000000B");
    reads_back("4096", 4096_u32, "4096");
    reads_back("on", true, "on");
    reads_back("false", false, "off");
    reads_back("Forwarded", ForwardedHeader::Forwarded, "forwarded");
    reads_back("x-forwarded-for", ForwardedHeader::XForwardedFor, "x-forwarded-for");
    reads_back("", Networks::NONE, "none");
}

#[test]
fn networks() {
    let has = |networks: &str, address: &str| {
        let networks: Networks = networks.parse().unwrap();
        assert_eq!(networks.to_string().parse::<Networks>().unwrap(), networks);
        networks.contains(if address == "unix" { None } else { Some(address.parse().unwrap()) })
    };
    for (networks, address) in [
        ("10.0.0.0/8", "10.255.0.1"),
        ("10.0.0.0/8", "::ffff:10.0.0.1"),
        ("192.0.2.7", "192.0.2.7"),
        ("192.0.2.7 , 2001:db8::/32", "2001:db8:ffff::1"),
        ("0.0.0.0/0", "255.255.255.255"),
        ("unix", "unix"),
        ("unix,::1", "::1"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "::ffff:192.0.2.7"),
        ("::ffff:10.0.0.0/104", "10.255.0.1"),
    ] {
        assert!(has(networks, address), "{address} is in {networks}");
    }
    for (networks, address) in [
        ("none", "10.0.0.1"),
        ("none", "unix"),
        ("10.0.0.0/8", "11.0.0.0"),
        ("10.0.0.0/8", "unix"),
        ("192.0.2.7", "192.0.2.8"),
        ("0.0.0.0/0", "::1"),
        ("::/0", "192.0.2.7"),
        ("::ffff:10.0.0.0/104", "11.0.0.0"),
        ("::ffff:0:0/95", "10.0.0.1"),
    ] {
        assert!(!has(networks, address), "{address} is not in {networks}");
    }
    for text in ["10.0.0.0/33", "10.0.0/8", "localhost", "10.0.0.1,,::1", "any", "/8"] {
        let error = text.parse::<Networks>().unwrap_err().to_string();
        assert!(error.contains("10.0.0.0/8"), "{error}");
    }
}

/// A value that is well-formed and too large is reported as too large, not as malformed.
#[test]
fn values_that_are_too_large_are_reported_as_such() {
    for text in ["213503982335d", "99999999999999999999s", "99999999999999h"] {
        assert_eq!(Duration::parse(text), Err("at most 213503982334d"), "{text}");
    }
    assert!(Duration::parse("213503982334d").is_ok());
    for text in ["17179869184GiB", "99999999999999999999999", "18446744073709551615KiB"] {
        assert_eq!(u64::parse(text), Err("at most 17179869183GiB"), "{text}");
    }
    assert!(u64::parse("17179869183GiB").is_ok());
    assert_eq!(u32::parse("4294967296"), Err("at most 4294967295"));
    assert_eq!(u16::parse("65536"), Err("at most 65535"));
    assert_eq!(Duration::parse("99999999999999999999 parsecs"), Duration::parse("30 parsecs"));
}

#[test]
fn values_that_say_nothing_are_refused() {
    for text in ["", "s", "30", "1.5s", "-1s", "30 parsecs", "99999999999999999999s"] {
        assert!(Duration::parse(text).is_err(), "{text}");
    }
    for text in ["", "MiB", "-1", "2 MiBs", "18446744073709551615KiB"] {
        assert!(u64::parse(text).is_err(), "{text}");
    }
    assert!(bool::parse("maybe").is_err() && ForwardedHeader::parse("via").is_err());
    for text in ["", "x", "-1", "1.0"] {
        assert!(u32::parse(text).is_err(), "{text}");
    }
}

#[test]
fn every_setting_round_trips_by_name() {
    let mut settings = Settings::default();
    for setting in Settings::default().list() {
        settings.set(&setting.name.replace('_', "-"), &setting.value).unwrap();
    }
    for (set, default) in settings.list().into_iter().zip(Settings::default().list()) {
        assert_eq!((set.value, set.source), (default.value, Source::Code));
        assert_eq!(default.source, Source::Default);
    }
}

#[test]
fn a_builder_marks_its_source() {
    let settings = Settings::default().head_timeout(Duration::from_secs(3));
    let listed = settings.list().into_iter().find(|s| s.name == "head_timeout").unwrap();
    assert_eq!((listed.value.as_str(), listed.source), ("3s", Source::Code));
}

#[test]
fn a_field_that_was_assigned_to_came_from_code() {
    let source = |settings: &Settings, name: &str| {
        settings.list().into_iter().find(|setting| setting.name == name).unwrap().source
    };
    let variables = [("WEFT_IDLE_TIMEOUT", "9s"), ("WEFT_HEAD_TIMEOUT", "9s")];
    let (mut settings, _) = read(&variables).unwrap();
    settings.idle_timeout = Duration::from_secs(8);
    settings.fields_max = 7;
    assert_eq!(source(&settings, "idle_timeout"), Source::Code);
    assert_eq!(source(&settings, "fields_max"), Source::Code);
    assert_eq!(source(&settings, "head_timeout"), Source::Environment);
    assert_eq!(source(&settings, "age_max"), Source::Default);
    settings.work_out(1000);
    assert_eq!((settings.connections_max, settings.accepted_max), (800, 800));
    assert_eq!(source(&settings, "connections_max"), Source::Default, "worked out, and not set");
    assert_eq!(source(&settings, "fields_max"), Source::Code);
    assert_eq!(source(&settings, "idle_timeout"), Source::Code);
}

/// A user who lowers `threads_max` need not know `standby_kept`.
#[test]
fn fewer_threads_keep_fewer_on_standby() {
    for (threads_max, kept) in [(4, 4), (8, 8), (512, 8)] {
        let mut settings = Settings::default().threads_max(threads_max);
        settings.check().unwrap();
        settings.work_out(1000);
        assert_eq!(settings.standby_kept, kept);
        assert!(settings.is_default("standby_kept"));
    }
}

/// Tests what 0 means for every duration.
#[test]
fn no_time_is_none_or_refused() {
    let taken = [
        "age_max",
        "drain_delay",
        "drain_idle_timeout",
        "drain_timeout",
        "handler_warn_after",
        "hsts_max_age",
        "linger_timeout",
        "request_timeout",
        "tls_check_interval",
        "unread_timeout",
        "upgrade_idle_timeout",
    ];
    let refused = [
        "body_idle_timeout",
        "head_timeout",
        "heartbeat",
        "idle_timeout",
        "proxy_header_timeout",
        "replacement_timeout",
        "rate_grace",
        "tls_handshake_timeout",
        "write_timeout",
    ];
    let mut durations = Vec::new();
    for setting in Settings::default().list() {
        let mut settings = Settings::default();
        if settings.set(setting.name, "0s").is_err() {
            continue;
        }
        durations.push(setting.name);
        match settings.check() {
            Ok(()) => {
                assert!(taken.contains(&setting.name), "{} is taken", setting.name);
                assert!(setting.about.contains("(0s: "), "{} does not say what 0s is", setting.name);
            }
            Err(error) => {
                assert!(refused.contains(&setting.name), "{error}");
                assert!(
                    error.to_string().starts_with(&format!("invalid {} \"0s\": must", setting.name)),
                    "{error}"
                );
            }
        }
    }
    assert_eq!(durations.len(), taken.len() + refused.len(), "{durations:?}");
    // A duration below the clock's resolution counts as 0.
    let error = Settings::default().head_timeout(Duration::from_micros(999)).check().unwrap_err();
    assert!(error.to_string().starts_with("invalid head_timeout \"0ms\""), "{error}");
    assert!(Settings::default().head_timeout(Duration::from_millis(1)).check().is_ok());
    let error = Settings::default().proxy_header_bytes_max(0).check().unwrap_err();
    assert!(error.to_string().contains("proxy_header_bytes_max"), "{error}");
}

/// Tests the sizes and numbers for which 0 has a meaning of its own, or is an ordinary value.
#[test]
fn no_bytes_is_not_no_limit() {
    let error = Settings::default().body_bytes_max(0).check().unwrap_err().to_string();
    assert!(error.starts_with("invalid body_bytes_max \"0B\"") && error.contains("1000000GiB"), "{error}");
    for (name, least) in
        [("http2_streams_max", 1), ("http2_window_bytes_max", 65_536), ("http2_held_bytes_max", 65_536)]
    {
        let mut settings = Settings::default();
        settings.set(name, &(least - 1).to_string()).unwrap();
        let error = settings.check().unwrap_err().to_string();
        assert_eq!(error, format!("invalid {name} {}: must be at least {least}", least - 1));
        settings.set(name, &least.to_string()).unwrap();
        assert!(settings.check().is_ok(), "{name}");
    }
    for name in [
        "body_ahead_bytes_max",
        "chunk_extension_bytes_max",
        "linger_bytes_max",
        "queue_max",
        "standby_kept",
        "unread_bytes_max",
    ] {
        let mut settings = Settings::default();
        settings.set("body_bytes_max", "1000000GiB").unwrap();
        settings.set(name, "0").unwrap();
        assert!(settings.check().is_ok(), "{name}");
    }
}

fn read(variables: &[(&str, &str)]) -> Result<(Settings, Vec<String>), Error> {
    let variables = variables.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    Settings::read(variables, &["WEFT_OWN"])
}

#[test]
fn a_variable_with_which_no_server_could_run_is_named() {
    for (variable, value, wanted) in [
        ("WEFT_HEARTBEAT", "0s", "WEFT_HEARTBEAT: invalid heartbeat \"0s\": must be at least 1ms"),
        ("WEFT_THREADS_MAX", "1", "WEFT_THREADS_MAX: invalid threads_max 1: must be at least 2"),
        ("WEFT_STANDBY_KEPT", "9999", "WEFT_STANDBY_KEPT: invalid standby_kept 9999"),
    ] {
        let (settings, _) = read(&[(variable, value), ("WEFT_BODY_IDLE_TIMEOUT", "9s")]).unwrap();
        let error = settings.check().unwrap_err().to_string();
        assert!(error.starts_with(wanted), "{error}");
        let error = settings.threads_max(0).check().unwrap_err().to_string();
        assert!(error.starts_with("invalid threads_max 0"), "{error}");
    }
}

#[test]
fn an_empty_variable_is_not_set() {
    let (settings, unknown) = read(&[("WEFT_HEAD_TIMEOUT", ""), ("WEFT_NONSENSE", "")]).unwrap();
    assert!(settings.list().iter().all(|setting| setting.source == Source::Default));
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn unknown_variables_are_named() {
    let warnings = |variable: &str| read(&[(variable, "5s")]).unwrap().1;
    assert_eq!(
        warnings("WEFT_HEAD_TIMOUT"),
        ["unknown variable WEFT_HEAD_TIMOUT ignored, did you mean WEFT_HEAD_TIMEOUT?"]
    );
    assert_eq!(warnings("WEFT_NONSENSE_OF_MINE"), ["unknown variable WEFT_NONSENSE_OF_MINE ignored"]);
    assert_eq!(warnings("WEFT_ENGIN").len(), 1);
    // Only the command `weft` reads these variables.
    for of_weft in ["WEFT_LOG", "WEFT_PORT", "WEFT_HOST"] {
        assert_eq!(warnings(of_weft).len(), 1, "{of_weft}");
    }
    assert!(warnings("WEFT_OWM")[0].ends_with("did you mean WEFT_OWN?"));
    for others in ["WEFT_OWN", "WEFT_ENGINE", "WEFTWORK_X", "HEAD_TIMOUT"] {
        assert!(warnings(others).is_empty(), "{others}");
    }
    for of_kubernetes in ["WEFT_SERVICE_HOST", "WEFT_PORT_8080_TCP"] {
        assert!(warnings(of_kubernetes).is_empty(), "{of_kubernetes}");
    }
    let text = read(&[("WEFT_HEAD_TIMEOUT", "soon")]).unwrap_err().to_string();
    assert!(text.contains("WEFT_HEAD_TIMEOUT") && text.contains("soon"), "{text}");
}

#[test]
fn errors_name_the_setting_its_value_and_the_cure() {
    let mut settings = Settings::default();
    let text = settings.set("head_timeout", "soon").unwrap_err().to_string();
    assert!(text.contains("head_timeout") && text.contains("soon") && text.contains("30s"), "{text}");
    let text = settings.set("haed_timeout", "3s").unwrap_err().to_string();
    assert!(text.contains("haed_timeout") && text.contains("did you mean head_timeout?"), "{text}");
    let text = settings.set("colour", "red").unwrap_err().to_string();
    assert!(text.ends_with("unknown setting \"colour\""), "{text}");
    let text = settings.set("head_bytes_max", "2 MB!").unwrap_err().to_string();
    assert!(text.contains("2 MB!") && text.contains("2MiB"), "{text}");
    let text = Settings::default().threads_max(1).check().unwrap_err().to_string();
    assert!(text.contains("threads_max") && text.contains('1') && text.contains('2'), "{text}");
    let text = Settings::default().threads_max(4).standby_kept(8).check().unwrap_err().to_string();
    assert!(text.contains("standby_kept") && text.contains("threads_max"), "{text}");
}
