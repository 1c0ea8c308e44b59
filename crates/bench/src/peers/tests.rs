//! Is every server told how many cores it has?

use super::*;

/// The words of a peer's command, its variables, and the configuration that it wrote.
fn told(name: &str, workers: usize) -> String {
    let scratch =
        env::temp_dir().join(format!("weftwork-bench-peers-{name}-{workers}-{}", std::process::id()));
    fs::create_dir(&scratch).unwrap();
    let setup = Setup {
        port: 1,
        workers,
        files_max: 1024,
        scratch: &scratch,
        files: &scratch,
        program: Path::new("program"),
    };
    let peer = PEERS.iter().find(|peer| peer.name == name).unwrap();
    let mut told = format!("{:?}", (peer.command)(peer, &setup).unwrap());
    for entry in fs::read_dir(&scratch).unwrap() {
        told.push_str(&fs::read_to_string(entry.unwrap().path()).unwrap());
    }
    fs::remove_dir_all(&scratch).unwrap();
    told
}

fn check(name: &str, one: &str, four: &str) {
    let (alone, many) = (told(name, 1), told(name, 4));
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
    check("hyper", "\"hyper\" \"1\"", "\"hyper\" \"1\" \"4\"");
}

#[test]
fn go_does_what_is_said_of_it() {
    for name in ["go-nethttp", "go-fasthttp"] {
        let peer = PEERS.iter().find(|peer| peer.name == name).unwrap();
        let source = fs::read_to_string(rust::folder().join(name).join("main.go")).unwrap();
        assert!(peer.about.contains("nanosleep(2)") && source.contains("syscall.Nanosleep"), "{name}");
        assert!(peer.about.contains("time.Sleep") && source.contains("time.Sleep"), "{name}");
    }
}
