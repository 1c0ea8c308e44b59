//! Tests of how the command line is read.

use super::*;

fn read(line: &str) -> Result<Command, Usage> {
    parse(line.split_whitespace().map(OsString::from))
}

#[track_caller]
fn fails(line: &str, want: &str) {
    let Usage(message) = read(line).expect_err(line);
    assert_eq!(message, want, "{line}");
}

#[test]
fn commands() {
    let check = |line: &str, want: Command| assert_eq!(read(line), Ok(want), "{line}");
    check("", Command::Demo(Options::default()));
    check("demo", Command::Demo(Options::default()));
    check("serve public", Command::Serve(Options::default(), Folder::default().at("public")));
    let Ok(Command::Serve(_, read)) = read("serve public --hidden --index a.htm") else { panic!("serve") };
    assert_eq!((read.hidden, read.index, read.path), (true, Some("a.htm".into()), "public".into()));
    check("help", Command::Help(Topic::All));
    check("-h", Command::Help(Topic::All));
    check("--help", Command::Help(Topic::All));
    check("help serve", Command::Help(Topic::Serve));
    check("demo --help", Command::Help(Topic::Demo));
    check("--port 1 demo -h", Command::Help(Topic::Demo));
    check("serve -h", Command::Help(Topic::Serve));
    check("help --port 3 -h", Command::Help(Topic::All));
    check("--version", Command::Version);
    check("-V", Command::Version);
    check("serve -- -dir", Command::Serve(Options::default(), Folder::default().at("-dir")));
}

#[test]
fn options() {
    let line = "--host ::1 --host localhost --port=0 --bind unix:/run/s --bind :80 --engine reactor:2 --log info \
                --head-bytes-max 1KiB --idle-timeout=5s";
    let want = Options {
        hosts: vec!["::1".into(), "localhost".into()],
        port: Some(0),
        binds: vec!["unix:/run/s".into(), ":80".into()],
        engine: Some(Engine::Reactor { loops: Some(2) }),
        log: Some(LevelFilter::Info),
        settings: vec![("head_bytes_max".into(), "1KiB".into()), ("idle_timeout".into(), "5s".into())],
    };
    assert_eq!(read(line), Ok(Command::Demo(want)));
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
        let Ok(Command::Demo(options)) = read(&format!("--host {host}")) else { panic!("{host}") };
        assert_eq!(options.hosts, [host]);
    }
}

#[test]
fn every_setting_is_a_flag() {
    for setting in Settings::default().list() {
        let line = format!("--{} {}", flag(setting.name), setting.value);
        let Ok(Command::Demo(options)) = read(&line) else { panic!("{line}") };
        assert_eq!(options.settings, [(setting.name.to_owned(), setting.value)]);
    }
}

#[test]
fn mistakes() {
    fails("--prot 1", "there is no option --prot; did you mean --port?");
    fails("--head-byte-max 1", "there is no option --head-byte-max; did you mean --head-bytes-max?");
    fails("--frobnicate", "there is no option --frobnicate; weft demo --help lists them");
    fails("serve . --frobnicate", "there is no option --frobnicate; weft serve --help lists them");
    fails("-x", "there is no option -x; weft demo --help lists them");
    fails("-p 80", "there is no option -p; weft demo --help lists them");
    fails("serve . -x", "there is no option -x; weft serve --help lists them");
    fails("engines --port 5", "--port goes with weft demo or weft serve DIR");
    fails("--idle-timeout 5s help", "--idle-timeout goes with weft demo or weft serve DIR");
    fails("help serve --port 3", "--port goes with weft demo or weft serve DIR");
    fails("--port", "missing argument for option '--port'");
    fails("--port 65536", "--port is \"65536\", but has to be a number from 0 to 65535");
    fails("--host=", "--host is \"\", but has to be an address or a name; all of them are [::]");
    for host in
        ["127.0.0.1:3000", "localhost:80", "[::1]:80", "[::1", "::1]", ":80", "unix:/run/s", "http://h"]
    {
        let wanted = "a host without its port: --port says that, or --bind both";
        fails(&format!("--host {host}"), &format!("--host is {host:?}, but has to be {wanted}"));
    }
    fails("--log loud", "--log is \"loud\", but has to be off, error, warn, info, debug or trace");
    fails(
        "--head-bytes-max much",
        "--head-bytes-max is \"much\", but has to be a size such as 512, 64KiB or 2MiB",
    );
    fails(
        "--body-bytes-max 99999999999999999999999GiB",
        "--body-bytes-max is \"99999999999999999999999GiB\", but has to be at most 17179869183GiB",
    );
    fails(
        "--idle-timeout 99999999999999h",
        "--idle-timeout is \"99999999999999h\", but has to be at most 213503982334d",
    );
    fails("dmeo", "there is no command \"dmeo\"; did you mean demo?");
    fails("frobnicate", "there is no command \"frobnicate\"; the commands: demo, serve, engines, help");
    fails("help frobnicate", "there is no command \"frobnicate\"; the commands: demo, serve, engines, help");
    fails("--hidden", "--hidden goes with weft serve DIR");
    fails("demo --spa a.html", "--spa goes with weft serve DIR");
    fails("serve . --hiden", "there is no option --hiden; did you mean --hidden?");
    fails("serve . --spa", "missing argument for option '--spa'");
    fails("serve", "serve needs a directory: weft serve DIR");
    fails("demo twice", "\"twice\" is one word too many (weft help says what is taken)");
    fails("serve a b", "\"b\" is one word too many (weft help says what is taken)");
    let Usage(message) = read("--engine warp").expect_err("no such engine");
    assert!(message.starts_with("--engine: there is no engine \"warp\" (the engines: adaptive"), "{message}");
}
