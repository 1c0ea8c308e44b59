//! Tests that SIGUSR2 replaces a running `weft` by a new process with the same sockets.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::process::{Weft, command, signal};
use crate::signals::ENGINES;
use crate::supervised::{Supervisor, passing, tcp};

/// A folder with a copy of the program that a deployment can replace.
struct Deployment(PathBuf);

impl Deployment {
    fn new(name: &str) -> Deployment {
        let folder = Deployment(std::env::temp_dir().join(format!("weft-{}-{name}", std::process::id())));
        let _ = fs::remove_dir_all(&folder.0);
        fs::create_dir(&folder.0).unwrap();
        folder.install();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Puts a new file in the place of the program, as a package does.
    fn install(&self) {
        let (new, program) = (self.path("new"), self.path("weft"));
        copy(env!("CARGO_BIN_EXE_weft").as_ref(), &new);
        fs::rename(new, program).unwrap();
    }

    fn install_script(&self, script: &str) {
        let (text, new, program) = (self.path("text"), self.path("new"), self.path("weft"));
        fs::write(&text, format!("#!/bin/sh\n{script}\n")).unwrap();
        copy(&text, &new);
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(new, program).unwrap();
    }

    fn command(&self, line: &str, variables: &[(&str, &str)]) -> Command {
        let plain = command(line, variables);
        let mut command = Command::new(self.path("weft"));
        command.args(plain.get_args()).stdin(std::process::Stdio::null());
        for (name, value) in plain.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    fn start(&self, line: &str) -> Weft {
        Weft::start_command(self.command(line, &[]))
    }
}

/// Copies a program by another process. A process that another test starts meanwhile would inherit a descriptor of this one
/// for a moment, and a file that is open for writing cannot be started (ETXTBSY).
fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").args([from, to]).status().unwrap().success());
}

impl Drop for Deployment {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The process that has replaced another one. It is ended with the test.
struct Successor(u32);

impl Successor {
    /// Returns once the new process is ready.
    fn of(weft: &mut Weft) -> Successor {
        let line = weft.wait_for("replaced by process ");
        let after = line.split("replaced by process ").nth(1).unwrap();
        Successor(after.split(':').next().unwrap().parse().unwrap())
    }

    fn is_alive(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
        status.rsplit(") ").next().is_some_and(|state| !state.starts_with('Z') && !state.is_empty())
    }

    fn end(&self) {
        signal(self.0, "-TERM");
        let told = Instant::now();
        while self.is_alive() {
            assert!(told.elapsed() < Duration::from_secs(20), "process {} does not end", self.0);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if self.is_alive() {
            signal(self.0, "-KILL");
        }
    }
}

fn admin_address(weft: &Weft) -> String {
    let line = weft.lines.iter().find(|line| line.contains("probes") || line.contains("admin"));
    let (_, url) = line.unwrap().split_once("http://").unwrap();
    url.split('/').next().unwrap().to_owned()
}

fn ask_unix(path: &Path) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn sockets_and_kept_clients_survive_on_every_engine() {
    for engine in ENGINES {
        let folder = Deployment::new(&format!("engine-{engine}"));
        let socket = folder.path("weft.sock");
        let line = format!(
            "--port 0 --bind unix:{} --admin 127.0.0.1:0 --log info --engine {engine} --drain-idle-timeout 20s",
            socket.display()
        );
        let mut old = folder.start(&line);
        let (address, side) = (old.address(), admin_address(&old));
        let (mut kept, mut busy) = (old.connect(), old.connect());
        assert_eq!(kept.ask("GET /health").status, 200);
        busy.send(b"GET /slow?ms=500 HTTP/1.1\r\nHost: here\r\n\r\n");
        old.signal("-USR2");
        let new = Successor::of(&mut old);
        assert_ne!(new.0, old.id());
        // The last request on a kept connection is answered.
        let answer = kept.ask("POST /echo\nContent-Length: 0");
        assert_eq!((answer.status, answer.field("connection")), (200, Some("close")), "{engine}");
        let answer = busy.answer(false);
        assert_eq!((answer.status, answer.text()), (200, "blocked\n"), "{engine}");
        assert_eq!(old.exit_code(), Some(0), "{engine}");
        for address in [&address, &side] {
            assert_eq!(Client::connect(address).ask("GET /health").status, 200, "{engine} {address}");
        }
        assert!(ask_unix(&socket).starts_with("HTTP/1.1 200"), "{engine}");

        // The new process can be replaced too, and the last one removes the file.
        signal(new.0, "-USR2");
        let newest = Successor::of(&mut old);
        assert_ne!(newest.0, new.0);
        assert_eq!(Client::connect(&address).ask("GET /health").status, 200, "{engine}");
        assert!(ask_unix(&socket).starts_with("HTTP/1.1 200"), "{engine}");
        newest.end();
        assert!(!socket.exists(), "{engine}: the file is removed at the end");
    }
}

#[test]
fn a_new_process_that_fails_leaves_the_old_one_as_it_was() {
    let folder = Deployment::new("fails");
    let socket = folder.path("weft.sock");
    let line = format!("--port 0 --bind unix:{} --replacement-timeout 300ms", socket.display());
    let mut weft = folder.start(&line);
    let mut kept = weft.connect();
    for (script, reason) in [
        ("exit 3", "the new process ended before it was ready: exit status: 3"),
        ("exec sleep 60", "the new process was not ready within 300ms (replacement_timeout), and was ended"),
    ] {
        folder.install_script(script);
        weft.signal("-USR2");
        let line = weft.wait_for("SIGUSR2");
        assert!(line.contains(reason) && line.contains("this process goes on"), "{line}");
        let answer = kept.ask("GET /health");
        assert_eq!((answer.status, answer.field("connection")), (200, None), "{script}");
        assert_eq!(weft.connect().ask("GET /health").status, 200, "{script}");
        assert!(ask_unix(&socket).starts_with("HTTP/1.1 200"), "{script}");
    }
    fs::remove_file(folder.path("weft")).unwrap();
    weft.signal("-USR2");
    let line = weft.wait_for("SIGUSR2");
    assert!(line.contains("cannot start") && line.contains(folder.0.to_str().unwrap()), "{line}");
    assert_eq!(kept.ask("GET /health").status, 200);
    weft.signal("-TERM");
    assert_eq!(weft.exit_code(), Some(0));
    assert!(!socket.exists(), "the file is removed at the end");
}

/// `/proc/self/exe` says that the file was deleted.
#[test]
fn a_program_that_was_replaced_is_started_from_its_path() {
    let folder = Deployment::new("path");
    let link = folder.path("current");
    std::os::unix::fs::symlink(folder.path("weft"), &link).unwrap();
    let mut command = folder.command("--port 0 --log info", &[]);
    let mut by_link = Command::new(&link);
    by_link.args(command.get_args()).stdin(std::process::Stdio::null());
    command = by_link;
    let mut weft = Weft::start_command(command);
    let address = weft.address();
    // The next version is another file, to which the link is switched.
    copy(env!("CARGO_BIN_EXE_weft").as_ref(), &folder.path("next"));
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(folder.path("next"), &link).unwrap();
    fs::remove_file(folder.path("weft")).unwrap();
    weft.signal("-USR2");
    let new = Successor::of(&mut weft);
    let running = fs::read_link(format!("/proc/{}/exe", new.0)).unwrap();
    assert_eq!(running, folder.path("next"));
    assert_eq!(Client::connect(&address).ask("GET /health").status, 200);
}

/// If systemd did not learn of the new process, it would end the service together with the old one.
#[test]
fn systemd_learns_of_the_new_process() {
    let supervisor = Supervisor::new("replaced");
    let folder = Deployment::new("systemd");
    let mut weft = Weft::start_command(folder.command("--port 0 --log info", &[supervisor.variable()]));
    assert_eq!(supervisor.hears(), "READY=1");
    weft.signal("-USR2");
    assert!(supervisor.hears().starts_with("RELOADING=1\n"));
    let told = supervisor.hears();
    let new = Successor::of(&mut weft);
    assert_eq!(told, format!("MAINPID={}\nREADY=1", new.0));
    assert_eq!(weft.exit_code(), Some(0));
    new.end();
    assert_eq!(supervisor.hears(), "STOPPING=1", "the old process did not say so");

    folder.install_script("exit 1");
    let weft = Weft::start_command(command_in(&folder, &supervisor));
    assert_eq!(supervisor.hears(), "READY=1");
    folder.install_script("exit 1");
    weft.signal("-USR2");
    assert!(supervisor.hears().starts_with("RELOADING=1\n"));
    assert_eq!(supervisor.hears(), "READY=1");
}

fn command_in(folder: &Deployment, supervisor: &Supervisor) -> Command {
    folder.install();
    folder.command("--port 0", &[supervisor.variable()])
}

#[test]
fn a_stop_ends_a_new_process_that_is_not_ready() {
    let folder = Deployment::new("stopped");
    let mut weft = folder.start("--port 0");
    let mark = folder.path("started");
    folder.install_script(&format!(
        "echo $$ >> {0}.new; cp {0}.new {0}.copy; mv {0}.copy {0}; exec sleep 60",
        mark.display()
    ));
    weft.signal("-USR2");
    let asked = Instant::now();
    while !mark.exists() {
        assert!(asked.elapsed() < Duration::from_secs(20), "the new process does not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    let new = Successor(fs::read_to_string(&mark).unwrap().trim().parse().unwrap());
    // Signals within half a second count as one.
    std::thread::sleep(Duration::from_millis(700));
    weft.signal("-USR2");
    weft.wait_for("SIGUSR2: a new process is starting already");
    // Time for a second process to start, if that were wrong.
    std::thread::sleep(Duration::from_millis(200));
    weft.signal("-TERM");
    assert_eq!(weft.exit_code(), Some(0));
    let told = Instant::now();
    while new.is_alive() {
        assert!(told.elapsed() < Duration::from_secs(20), "the new process goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
    let started = fs::read_to_string(&mark).unwrap();
    assert_eq!(started.lines().count(), 1, "one process at a time: {started}");
}

/// The new process gets the sockets of systemd from the old one, without `LISTEN_FDS`.
#[test]
fn sockets_of_systemd_are_passed_on() {
    let folder = Deployment::new("passed");
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let mut command = folder.command("--bind fd:0 --log info", &[]);
    command.stdin(std::process::Stdio::from(std::os::fd::OwnedFd::from(socket)));
    let mut weft = Weft::start_command(command);
    assert_eq!(weft.address(), address);
    weft.signal("-USR2");
    let _new = Successor::of(&mut weft);
    assert_eq!(weft.exit_code(), Some(0));
    assert_eq!(Client::connect(&address).ask("GET /health").status, 200);
}

/// No flag names the sockets: both processes find them by themselves.
#[test]
fn sockets_of_systemd_without_a_flag_are_passed_on_too() {
    let (socket, address) = tcp();
    for variables in ["LISTEN_FDS=1 LISTEN_PID=$$", "LISTEN_FDS=1"] {
        let mut weft = passing(&[&socket], variables, "--log info").start();
        assert_eq!(weft.address(), address);
        weft.signal("-USR2");
        let new = Successor::of(&mut weft);
        assert_eq!(weft.exit_code(), Some(0));
        assert_eq!(Client::connect(&address).ask("GET /health").status, 200, "{variables}");
        signal(new.0, "-USR2");
        let newest = Successor::of(&mut weft);
        assert_eq!(Client::connect(&address).ask("GET /health").status, 200, "{variables}");
        newest.end();
    }
}

/// The kernel ends a container together with its PID 1.
#[test]
fn pid_1_is_not_replaced() {
    let plain = command("--port 0", &[]);
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", env!("CARGO_BIN_EXE_weft")]).args(plain.get_args());
    let can = Command::new("unshare")
        .args(["--pid", "--fork", "true"])
        .output()
        .is_ok_and(|out| out.status.success());
    if !can {
        return println!("not checked: this machine has no process namespaces");
    }
    let mut weft = Weft::start_command(command);
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", weft.id())).unwrap();
    let child: u32 = children.split_whitespace().next().unwrap().parse().unwrap();
    signal(child, "-USR2");
    let line = weft.wait_for("SIGUSR2");
    assert!(line.contains("it is PID 1 of a container"), "{line}");
    assert_eq!(weft.connect().ask("GET /health").status, 200);
}

/// systemd ends the processes of a service together with its main process, unless it is told of another one.
#[test]
fn without_a_message_to_systemd_a_service_is_not_replaced() {
    let folder = Deployment::new("service");
    // A shell with the name of systemd starts the service.
    let parent = folder.path("systemd");
    fs::copy("/bin/bash", &parent).unwrap();
    let mut command = Command::new(&parent);
    command
        .arg("-c")
        .arg("\"$0\" --port 0 & echo $!; wait")
        .arg(folder.path("weft"))
        .env("INVOCATION_ID", "1");
    command.env_remove("NOTIFY_SOCKET").stdin(std::process::Stdio::null());
    let mut weft = Weft::start_command(command);
    let service = Successor(weft.lines[0].parse().unwrap());
    signal(service.0, "-USR2");
    let line = weft.wait_for("SIGUSR2");
    assert!(line.contains("set Type=notify in its unit"), "{line}");
    assert_eq!(weft.connect().ask("GET /health").status, 200);
    service.end();
}
