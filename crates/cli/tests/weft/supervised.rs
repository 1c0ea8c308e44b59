//! Tests of `weft` under a supervisor such as systemd: sockets that are passed, and messages about its state.

use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::client::Client;
use crate::process::{Weft, command, run};

/// Returns a command that runs `weft` with these sockets as descriptors 3, 4 and so on, as systemd does.
pub(crate) fn passing(sockets: &[&OwnedFd], variables: &str, line: &str) -> Passing {
    let weft = command(line, &[]);
    let mut script = String::new();
    let mut held = Vec::new();
    for (socket, number) in sockets.iter().zip(3..) {
        // The copy is inherited, also by children that other tests start meanwhile, which does no harm.
        let copy = rustix::io::fcntl_dupfd_cloexec(socket, 100).unwrap();
        rustix::io::fcntl_setfd(&copy, rustix::io::FdFlags::empty()).unwrap();
        script += &format!("exec {number}<&{0} {0}<&-; ", copy.as_raw_fd());
        held.push(copy);
    }
    script += &format!("{variables} exec \"$0\" \"$@\"");
    let mut shell = Command::new("bash");
    shell.arg("-c").arg(script).arg(weft.get_program()).args(weft.get_args()).stdin(Stdio::null());
    for (name, value) in weft.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    Passing { shell, _held: held }
}

/// A command, and the descriptors that it passes.
pub(crate) struct Passing {
    shell: Command,
    _held: Vec<OwnedFd>,
}

impl Passing {
    pub(crate) fn start(self) -> Weft {
        Weft::start_command(self.shell)
    }

    /// Returns what `weft` prints before it ends with a mistake of the user.
    fn mistake(mut self) -> String {
        let output = run(&mut self.shell);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

pub(crate) fn tcp() -> (OwnedFd, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener.into(), address)
}

struct Path(PathBuf);

impl Path {
    fn new(name: &str) -> Path {
        Path(std::env::temp_dir().join(format!("weft-{}-{name}", std::process::id())))
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn sockets_of_systemd_are_used_without_a_flag() {
    let path = Path::new("passed.sock");
    let (first, address) = tcp();
    let second: OwnedFd = UnixListener::bind(&path.0).unwrap().into();
    for variables in ["LISTEN_FDS=2 LISTEN_PID=$$", "LISTEN_FDS=2 PORT=1 WEFT_PORT=1"] {
        let weft = passing(&[&first, &second], variables, "").start();
        assert_eq!(weft.address(), address);
        assert!(weft.lines.iter().any(|line| line.contains("passed.sock")), "{:?}", weft.lines);
        assert_eq!(weft.connect().ask("GET /health").status, 200);
        weft.signal("-TERM");
        let (code, _, err) = weft.end();
        assert_eq!((code, err.as_str()), (Some(0), ""));
        assert!(path.0.exists(), "the socket belongs to systemd");
    }
}

#[test]
fn a_socket_is_chosen_by_its_number_or_name() {
    let ((first, _), (second, address)) = (tcp(), tcp());
    let named = "LISTEN_FDS=2 LISTEN_PID=$$ LISTEN_FDNAMES=site:side";
    for (variables, bind) in [("", "fd:4"), (named, "systemd:side")] {
        let weft = passing(&[&first, &second], variables, &format!("--bind {bind} --log error")).start();
        assert_eq!(weft.address(), address, "{bind}");
        assert_eq!(weft.connect().ask("GET /health").status, 200);
    }
}

/// A launcher in the manner of inetd, with `wait`.
#[test]
fn a_socket_may_be_the_standard_input() {
    let (socket, address) = tcp();
    let mut weft = command("--bind fd:0", &[]);
    weft.stdin(Stdio::from(socket));
    let weft = Weft::start_command(weft);
    assert_eq!(weft.address(), address);
    assert_eq!(weft.connect().ask("GET /health").status, 200);
}

#[test]
fn a_socket_that_no_address_uses_is_named() {
    let ((first, _), (second, _)) = (tcp(), tcp());
    let variables = "LISTEN_FDS=2 LISTEN_PID=$$ LISTEN_FDNAMES=site:side";
    let mut weft = passing(&[&first, &second], variables, "--bind systemd:site").start();
    weft.wait_for("the socket side was passed as descriptor 4 (LISTEN_FDS), and no address uses it");
    assert_eq!(weft.connect().ask("GET /health").status, 200);
    let mut weft = passing(&[&first], "LISTEN_FDS=1 LISTEN_PID=1", "--port 0").start();
    weft.wait_for("LISTEN_FDS passes sockets to the process 1 (LISTEN_PID)");
}

#[test]
fn what_cannot_be_used_is_named() {
    let (socket, _) = tcp();
    let udp: OwnedFd = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into();
    for (variables, bind, want) in [
        ("LISTEN_FDS=1 LISTEN_FDNAMES=site", "systemd:sight", "have the names: site"),
        ("", "systemd:site", "no sockets were passed to this process"),
        ("LISTEN_FDS=many", "systemd:site", "invalid LISTEN_FDS \"many\""),
        ("", "fd:77", "no process has passed the descriptor 77"),
        ("", "fd:three", "expected fd: and a number"),
    ] {
        let err = passing(&[&socket], variables, &format!("--bind {bind}")).mistake();
        assert!(err.contains(want), "{bind}: {err}");
    }
    // Without a flag, the clients of the socket would wait for a server at another address.
    for count in ["many", "-1", "20000"] {
        let err = passing(&[&socket], &format!("LISTEN_FDS={count}"), "").mistake();
        assert!(err.contains(&format!("invalid LISTEN_FDS \"{count}\"")), "{err}");
    }
    let err = passing(&[&udp], "", "--bind fd:3").mistake();
    assert!(err.contains("it is not a stream socket"), "{err}");
    let err = passing(&[&socket], "", "--bind fd:3 --bind fd:3").mistake();
    assert!(err.contains("uses it already"), "{err}");
}

/// The socket of a supervisor that is notified.
pub(crate) struct Supervisor {
    socket: UnixDatagram,
    path: Path,
}

impl Supervisor {
    pub(crate) fn new(name: &str) -> Supervisor {
        let path = Path::new(name);
        let socket = UnixDatagram::bind(&path.0).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Supervisor { socket, path }
    }

    pub(crate) fn variable(&self) -> (&str, &str) {
        ("NOTIFY_SOCKET", self.path.0.to_str().unwrap())
    }

    pub(crate) fn hears(&self) -> String {
        let mut bytes = [0; 512];
        let length = self.socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }
}

#[test]
fn systemd_is_told_the_state() {
    let supervisor = Supervisor::new("states");
    let weft = Weft::start_with("--port 0", &[supervisor.variable()]);
    assert_eq!(supervisor.hears(), "READY=1");
    weft.signal("-TERM");
    assert_eq!(supervisor.hears(), "STOPPING=1");
    assert_eq!(weft.end().0, Some(0));
}

#[test]
fn the_watchdog_of_systemd_hears_of_the_process() {
    for own in ["", "WATCHDOG_PID=$$"] {
        let supervisor = Supervisor::new("watchdog");
        let (name, path) = supervisor.variable();
        let variables = format!("WATCHDOG_USEC=20000 {own} {name}={path}");
        let _weft = passing(&[], &variables, "--port 0").start();
        assert_eq!(supervisor.hears(), "READY=1");
        for _ in 0..3 {
            assert_eq!(supervisor.hears(), "WATCHDOG=1");
        }
    }
    let other = Supervisor::new("watchdog-of-another-process");
    let weft =
        Weft::start_with("--port 0", &[other.variable(), ("WATCHDOG_USEC", "1000"), ("WATCHDOG_PID", "1")]);
    assert_eq!(other.hears(), "READY=1");
    // Time for a hundred messages, if that were wrong.
    std::thread::sleep(Duration::from_millis(100));
    weft.signal("-TERM");
    assert_eq!(other.hears(), "STOPPING=1");
}

#[test]
fn a_client_that_came_before_the_server_is_served() {
    let (socket, address) = tcp();
    let mut early = Client::connect(&address);
    early.send(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n");
    let _weft = passing(&[&socket], "LISTEN_FDS=1", "").start();
    assert_eq!(early.answer(false).status, 200);
}
