//! Every server is told how many cores it has.

mod rules;

use super::*;

/// Returns the words of a peer's command, its variables, and the configuration that was written.
fn told(name: &str, workers: usize, has_tls: bool) -> String {
    let scratch = env::temp_dir()
        .join(format!("weftwork-bench-peers-{name}-{workers}-{has_tls}-{}", std::process::id()));
    fs::create_dir(&scratch).unwrap();
    let peer = PEERS.iter().find(|peer| peer.name == name).unwrap();
    let command = command(peer, Path::new("program"), 1, workers, 1024, &scratch, has_tls).unwrap();
    let mut told = format!("{command:?}");
    for entry in fs::read_dir(&scratch).unwrap() {
        told.push_str(&fs::read_to_string(entry.unwrap().path()).unwrap());
    }
    fs::remove_dir_all(&scratch).unwrap();
    // At signs stand in comments of the configurations alone.
    let left = told.lines().find(|line| line.contains('@'));
    assert_eq!(left, None);
    told
}

fn check(name: &str, one: &str, four: &str) {
    let (alone, many) = (told(name, 1, false), told(name, 4, false));
    assert!(alone.contains(one), "{name}: {alone}");
    assert!(many.contains(four), "{name}: {many}");
}

#[test]
fn a_worker_for_each_core() {
    check("nginx", "worker_processes 1;", "worker_processes 4;");
    check("nginx", "backlog=4096;", "backlog=4096 reuseport;");
    check("h2o", "num-threads: 1\n", "num-threads: 4\n");
    check("lighttpd", "server.max-worker = 0\n", "server.max-worker = 4\n");
    check("go-nethttp", "GOMAXPROCS=\"1\"", "GOMAXPROCS=\"4\"");
    check("go-fasthttp", "GOMAXPROCS=\"1\"", "GOMAXPROCS=\"4\"");
    check("hyper", "\"hyper\" \"1\" \"1\"", "\"hyper\" \"1\" \"4\"");
}

#[test]
fn tls_is_configured_if_it_is_asked_for() {
    for (name, words) in [
        ("nginx", "ssl http2;"),
        ("h2o", "certificate-file: "),
        ("hyper", "/tls\""),
        ("go-nethttp", "/tls\""),
    ] {
        assert!(told(name, 1, true).contains(words), "{name}");
        assert!(!told(name, 1, false).contains(words), "{name}");
    }
}

#[test]
fn the_go_servers_do_what_the_table_says() {
    for name in ["go-nethttp", "go-fasthttp"] {
        let peer = PEERS.iter().find(|peer| peer.name == name).unwrap();
        let source = fs::read_to_string(build::folder().join(name).join("main.go")).unwrap();
        assert!(peer.about.contains("nanosleep(2)") && source.contains("syscall.Nanosleep"), "{name}");
        assert!(peer.about.contains("time.Sleep") && source.contains("time.Sleep"), "{name}");
    }
}
