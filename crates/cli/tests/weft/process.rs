//! A running `weft`: started with arguments and variables, read line by line, and always ended.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use crate::client::Client;

pub(crate) const LAST_LINE: &str = "Ctrl-C stops the server after requests in flight finish";

/// Maximum time of a process. A test that waits for a line that does not come then fails.
const LIFE_MAX: Duration = Duration::from_secs(300);

pub(crate) struct Weft {
    pub(crate) child: Child,
    /// Disconnected at the end of the test.
    _alive: Sender<()>,
    stdout: BufReader<File>,
    /// Absent if the test has set stderr.
    stderr: Option<BufReader<ChildStderr>>,
    /// Lines that it printed at startup.
    pub(crate) lines: Vec<String>,
}

/// Returns a command with these arguments and variables, and without other variables that `weft` reads.
pub(crate) fn command(line: &str, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("WEFT_") || name == "HOST" || name == "PORT" {
            command.env_remove(&*name);
        }
    }
    command.args(line.split_whitespace()).envs(variables.iter().copied()).stdin(Stdio::null());
    command
}

/// Runs `weft` to its end. If a server starts, it is ended and the test fails.
pub(crate) fn output(line: &str, variables: &[(&str, &str)]) -> Output {
    run(&mut command(line, variables))
}

pub(crate) fn run(command: &mut Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    while stdout.read_line(&mut said).unwrap() > 0 {
        if said.lines().last() == Some(LAST_LINE) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{command:?} serves: {said}");
        }
    }
    Output { stdout: said.into_bytes(), ..child.wait_with_output().unwrap() }
}

impl Weft {
    pub(crate) fn start(line: &str) -> Weft {
        Weft::start_with(line, &[])
    }

    pub(crate) fn start_with(line: &str, variables: &[(&str, &str)]) -> Weft {
        Weft::start_command(command(line, variables))
    }

    pub(crate) fn start_command(mut command: Command) -> Weft {
        command.stderr(Stdio::piped());
        Weft::start_with_stderr_set(command)
    }

    /// Starts a command whose stderr is set already.
    pub(crate) fn start_with_stderr_set(mut command: Command) -> Weft {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = OwnedFd::from(child.stdout.take().unwrap());
        Weft::started(child, stdout)
    }

    /// Returns once the process has printed its startup lines, which `stdout` reads.
    pub(crate) fn started(mut child: Child, stdout: OwnedFd) -> Weft {
        let (alive, ended) = channel();
        let id = child.id();
        std::thread::spawn(move || {
            if ended.recv_timeout(LIFE_MAX) == Err(RecvTimeoutError::Timeout) {
                signal(id, "-KILL");
            }
        });
        let mut stdout = BufReader::new(File::from(stdout));
        let stderr = child.stderr.take().map(BufReader::new);
        let mut lines = Vec::new();
        while lines.last().is_none_or(|last| last != LAST_LINE) {
            let mut line = String::new();
            assert_ne!(stdout.read_line(&mut line).unwrap(), 0, "weft ended after {lines:?}");
            lines.push(line.trim_end().to_owned());
        }
        Weft { child, _alive: alive, stdout, stderr, lines }
    }

    /// Returns the address in the first line that names a URL, such as `127.0.0.1:8080`.
    pub(crate) fn address(&self) -> String {
        let url = self.lines.iter().find_map(|line| line.strip_prefix("listening at http://"));
        url.and_then(|url| url.split('/').next())
            .unwrap_or_else(|| panic!("no URL in {:?}", self.lines))
            .to_owned()
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(&self.address())
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.id(), name);
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end of the process, although its outputs may be open in another one.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// Reads stderr up to a line that contains `part`, and returns the line.
    pub(crate) fn wait_for(&mut self, part: &str) -> String {
        let mut line = String::new();
        let stderr = self.stderr.as_mut().unwrap();
        while !line.contains(part) {
            line.clear();
            assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "weft ended without {part:?}");
        }
        line
    }

    /// Reads stdout up to a line that contains `part`, and returns the line.
    pub(crate) fn says(&mut self, part: &str) -> String {
        let mut line = String::new();
        while !line.contains(part) {
            line.clear();
            assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "weft ended without {part:?}");
        }
        line
    }

    /// Waits for the end, and returns the exit code and the rest of both outputs.
    pub(crate) fn end(mut self) -> (Option<i32>, String, String) {
        let (mut out, mut err) = (String::new(), String::new());
        self.stdout.read_to_string(&mut out).unwrap();
        self.stderr.iter_mut().for_each(|stderr| _ = stderr.read_to_string(&mut err).unwrap());
        (self.child.wait().unwrap().code(), out, err)
    }
}

impl Drop for Weft {
    fn drop(&mut self) {
        // The process has already ended if the test waited for it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn signal(id: u32, name: &str) {
    assert!(Command::new("kill").args([name, &id.to_string()]).status().unwrap().success());
}
