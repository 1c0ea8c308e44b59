//! Tests of reading the command line.

use super::*;

fn read(line: &str) -> Result<Action, Usage> {
    parse(["weft"].into_iter().chain(line.split_whitespace()).map(OsString::from))
}

#[track_caller]
fn fails(line: &str, want: &str) {
    let Usage(message) = read(line).expect_err(line);
    assert_eq!(message, want, "{line}");
}

#[test]
fn commands() {
    let check = |line: &str, want: Action| assert_eq!(read(line), Ok(want), "{line}");
    let at = |path: &str| Folder { path: path.into(), ..Folder::default() };
    check("", Action::Demo(Options::default()));
    check("demo", Action::Demo(Options::default()));
    check("serve public", Action::Serve(Options::default(), at("public")));
    check("serve -- -dir", Action::Serve(Options::default(), at("-dir")));
    check("engines", Action::Engines);
    check("completions zsh", Action::Completions(Shell::Zsh));
    check("man", Action::Man);
    let Ok(Action::Serve(_, read)) = read("serve public --hidden --index a.htm") else { panic!("serve") };
    assert_eq!((read.hidden, read.index, read.path), (true, Some("a.htm".into()), "public".into()));
}

#[test]
fn help_and_version() {
    let check = |line: &str, want: &str| {
        let Ok(Action::Print(text)) = read(line) else { panic!("{line}") };
        assert!(text.contains(want), "{line}: {text}");
    };
    for line in ["help", "-h", "--help", "--port 3 -h"] {
        check(line, "weft COMMAND --help lists the options");
    }
    for line in ["help demo", "demo --help", "--port 1 demo -h"] {
        check(line, "Usage: weft [demo] [OPTIONS]");
    }
    for line in ["help serve", "serve -h", "serve . --hidden --help"] {
        check(line, "Usage: weft serve DIR [OPTIONS]");
    }
    for line in ["--version", "-V"] {
        check(line, concat!("weft ", env!("CARGO_PKG_VERSION")));
    }
}

#[test]
fn options_before_and_after_a_command() {
    let line = "--port 1 --host a --queue-max 1 --hidden serve public --port 2 --host b --spa x.html";
    let Ok(Action::Serve(options, folder)) = read(line) else { panic!("serve") };
    assert_eq!((options.port, options.hosts), (Some(2), vec!["a".into(), "b".into()]), "the last one counts");
    assert_eq!(options.settings, [("queue_max".into(), "1".into())]);
    assert_eq!((folder.hidden, folder.single_page), (true, Some("x.html".into())));
    let Ok(Action::Demo(options)) = read("--port 1 --port 2") else { panic!("demo") };
    assert_eq!(options.port, Some(2));
}

#[test]
fn options() {
    let line = "--host ::1 --host localhost --port=0 --bind unix:/run/s --bind :80 --engine reactor:2 --log info \
                --log-format json --access-log a.log --metrics off --admin :9 --tls-cert a.pem --tls-key a.key --tls-self-signed \
                --tls-client-ca ca.pem --redirect-from :80 --redirect-from [::1]:80 --head-bytes-max 1KiB --idle-timeout=5s";
    let want = Options {
        hosts: vec!["::1".into(), "localhost".into()],
        port: Some(0),
        binds: vec!["unix:/run/s".into(), ":80".into()],
        engine: Some(Engine::Reactor { loops: Some(2) }),
        log: Some(LevelFilter::Info),
        log_style: Some(LogStyle::Json),
        access_log: Some("a.log".into()),
        metrics: Some(false),
        admin: Some(":9".into()),
        tls: TlsOptions {
            chains: vec!["a.pem".into()],
            keys: vec!["a.key".into()],
            is_self_signed: true,
            client_authorities: Some("ca.pem".into()),
            redirect_from: vec![":80".into(), "[::1]:80".into()],
        },
        settings: vec![("head_bytes_max".into(), "1KiB".into()), ("idle_timeout".into(), "5s".into())],
    };
    assert_eq!(read(line), Ok(Action::Demo(want)));
}

#[test]
fn hosts() {
    for host in [
        "127.0.0.1",
        "localhost",
        "::",
        "[::]",
        "::1",
        "[::1]",
        "::ffff:127.0.0.1",
        "fe80::1%2",
        "[fe80::1%2]",
    ] {
        let Ok(Action::Demo(options)) = read(&format!("--host {host}")) else { panic!("{host}") };
        assert_eq!(options.hosts, [host]);
    }
}

#[test]
fn every_setting_is_a_flag() {
    for setting in Settings::default().list() {
        let line = format!("--{} {}", flag(setting.name), setting.value);
        let Ok(Action::Demo(options)) = read(&line) else { panic!("{line}") };
        assert_eq!(options.settings, [(setting.name.to_owned(), setting.value)]);
    }
}

#[test]
fn mistakes() {
    fails("--prot 1", "unknown option --prot, did you mean --port?");
    fails("--head-byte-max 1", "unknown option --head-byte-max, did you mean --head-bytes-max?");
    fails("serve . --hiden", "unknown option --hiden, did you mean --hidden?");
    fails("--frobnicate", "unknown option --frobnicate (see weft help)");
    fails("serve . -x", "unknown option -x (see weft help)");
    fails("-p 80", "unknown option -p (see weft help)");
    fails("--port", "--port <N> needs a value");
    fails("serve . --spa", "--spa <FILE> needs a value");
    fails("serve", "serve needs a directory: weft serve DIR");
    fails("completions", "<SHELL> is missing (see weft help)");
    fails("completions sh", "invalid <SHELL> \"sh\": expected one of bash, elvish, fish, powershell, zsh");
    fails("demo twice", "unexpected argument \"twice\" (see weft help)");
    fails("serve a b", "unexpected argument \"b\" (see weft help)");
    fails("dmeo", "unknown command \"dmeo\", did you mean demo?");
    let commands = "the commands: demo, serve, engines, completions, man";
    for line in ["frobnicate", "help frobnicate"] {
        fails(line, &format!("unknown command \"frobnicate\" ({commands})"));
    }
    fails("--no-listing=1 serve .", "unexpected value '1' for '--no-listing' found; no more were expected");
}

#[test]
fn options_that_would_do_nothing_are_refused() {
    for line in ["engines --port 5", "--port 5 engines", "--port 5 man", "completions bash --port 5"] {
        fails(line, "--port works only with weft demo and weft serve DIR");
    }
    fails("engines --idle-timeout 5s", "--idle-timeout works only with weft demo and weft serve DIR");
    for line in ["--hidden", "--hidden demo", "demo --hidden", "engines --hidden"] {
        fails(line, "--hidden works only with weft serve DIR");
    }
    fails("demo --spa a.html", "--spa works only with weft serve DIR");
}

#[test]
fn values() {
    fails("--port 65536", "invalid --port \"65536\": expected a number from 0 to 65535");
    fails("--host=", "invalid --host \"\": expected an address or a name (for all addresses: [::])");
    for host in
        ["127.0.0.1:3000", "localhost:80", "[::1]:80", "[::1", "::1]", ":80", "unix:/run/s", "http://h"]
    {
        let wanted = "a host without a port (for a port: --port, or --bind for both)";
        fails(&format!("--host {host}"), &format!("invalid --host {host:?}: expected {wanted}"));
    }
    fails("--log loud", "invalid --log \"loud\": expected off, error, warn, info, debug or trace");
    fails(
        "--head-bytes-max much",
        "invalid --head-bytes-max \"much\": expected a size such as 512, 64KiB or 2MiB",
    );
    fails("--threads-max -1", "invalid --threads-max \"-1\": expected a whole number");
    fails(
        "--body-bytes-max 99999999999999999999999GiB",
        "invalid --body-bytes-max \"99999999999999999999999GiB\": expected at most 17179869183GiB",
    );
    fails(
        "--idle-timeout 99999999999999h",
        "invalid --idle-timeout \"99999999999999h\": expected at most 213503982334d",
    );
    let Usage(message) = read("--engine warp").expect_err("no such engine");
    assert!(message.starts_with("--engine: unknown engine \"warp\" (the engines: adaptive"), "{message}");
}

/// clap checks the definitions for contradictions only with debug assertions.
#[test]
fn the_definitions_agree() {
    command().debug_assert();
    crate::command::man().debug_assert();
    let page = crate::help::manual().unwrap();
    for part in ["serve DIR", "\\-\\-hidden", "\\-\\-head\\-bytes\\-max", "WEFT_"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish, Shell::PowerShell] {
        let script = crate::help::completions(shell);
        assert!(script.contains("head-bytes-max") && script.contains("serve"), "{shell}");
    }
}
