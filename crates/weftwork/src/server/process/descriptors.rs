//! Takes listening sockets that another process has passed: `fd:N`, `systemd:NAME`, and the variable `LISTEN_FDS`.
//!
//! `LISTEN_FDS` counts the sockets, which begin at descriptor 3. `LISTEN_PID` names the process that they are for, and
//! `LISTEN_FDNAMES` their names (sd_listen_fds(3)).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use filedescriptor::FileDescriptor;
use rustix::io::{FdFlags, fcntl_getfd};
use rustix::net::{self, sockopt};

use crate::error::{Error, Result};
use crate::transport::log_queue::log_line;

/// First descriptor of `LISTEN_FDS`.
const FIRST: RawFd = 3;
/// Maximum of `LISTEN_FDS`. A larger number is a mistake.
const PASSED_MAX: RawFd = 10_000;
/// Name of a socket without a name (sd_listen_fds_with_names(3)).
const UNNAMED: &str = "unknown";

/// Held while a descriptor is looked at and taken.
static TAKING: Mutex<()> = Mutex::new(());

/// A descriptor of `LISTEN_FDS`.
#[derive(Debug, PartialEq)]
struct Passed {
    number: RawFd,
    name: String,
}

/// Returns whether an address names sockets instead of a place.
pub(crate) fn is_passed(address: &str) -> bool {
    address.starts_with("fd:") || address.starts_with("systemd:")
}

/// Takes the sockets that `fd:N`, `systemd:NAME` or `systemd:*` names.
pub(crate) fn take(address: &str) -> Result<Vec<OwnedFd>> {
    if let Some(number) = address.strip_prefix("fd:") {
        let number = number.parse().ok().filter(|number| *number >= 0);
        let wanted =
            || Error::usage(format!("invalid address {address:?}: expected fd: and a number, such as fd:3"));
        return Ok(vec![take_number(number.ok_or_else(wanted)?)?]);
    }
    let name = address.strip_prefix("systemd:").unwrap_or(address);
    let passed = Passed::all(variable)?;
    let named = passed.iter().filter(|passed| name == "*" || passed.name == name);
    let taken = named.map(|passed| take_number(passed.number)).collect::<Result<Vec<_>>>()?;
    if !taken.is_empty() {
        return Ok(taken);
    }
    let names: Vec<&str> = passed.iter().map(|passed| passed.name.as_str()).collect();
    let there = match names.join(", ") {
        none if none.is_empty() => {
            "no sockets were passed to this process (LISTEN_FDS, LISTEN_PID)".to_owned()
        }
        names => format!(
            "the sockets that were passed have the names: {names} (FileDescriptorName= in their units)"
        ),
    };
    Err(Error::usage(format!("cannot listen at {address}: {there}")))
}

/// Returns whether a supervisor has passed sockets in `LISTEN_FDS` that nobody has taken.
pub(crate) fn are_waiting() -> bool {
    // An invalid variable is an error of the address that takes the sockets.
    Passed::all(variable).map_or(true, |passed| passed.iter().any(|passed| is_inherited(passed.number)))
}

/// Logs the sockets that no address uses, because their clients would wait without an end.
pub(crate) fn warn_of_unused() {
    let passed = match Passed::all(variable) {
        Ok(passed) => passed,
        Err(error) => return log_line!(Warn, "{error}, so its sockets are ignored"),
    };
    for Passed { number, name } in passed.iter().filter(|passed| is_inherited(passed.number)) {
        log_line!(
            Warn,
            "the socket {name} was passed as descriptor {number} (LISTEN_FDS), and no address uses it, so its clients \
             wait without an end: listen at systemd:{name}, fd:{number} or systemd:*"
        );
    }
    let for_other = passed.is_empty() && variable("LISTEN_FDS").is_some() && !is_for_this_process(variable);
    if let Some(pid) = variable("LISTEN_PID").filter(|_| for_other && is_listener(FIRST)) {
        log_line!(
            Warn,
            "LISTEN_FDS passes sockets to the process {pid} (LISTEN_PID), and this is process {}: start it without a \
             shell, or with exec",
            std::process::id()
        );
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()).filter(|value| !value.is_empty())
}

fn is_for_this_process(variable: impl Fn(&str) -> Option<String>) -> bool {
    variable("LISTEN_PID").is_none_or(|pid| pid.trim().parse() == Ok(std::process::id()))
}

impl Passed {
    /// Reads the variables. A missing `LISTEN_PID` counts as this process, because some launchers cannot know it.
    fn all(variable: impl Fn(&str) -> Option<String>) -> Result<Vec<Passed>> {
        let Some(count) = variable("LISTEN_FDS") else { return Ok(Vec::new()) };
        if !is_for_this_process(&variable) {
            return Ok(Vec::new());
        }
        let parsed = count.trim().parse().ok().filter(|count| (0..=PASSED_MAX).contains(count));
        let count: RawFd = parsed.ok_or_else(|| {
            Error::usage(format!("invalid LISTEN_FDS {count:?}: expected a number of descriptors"))
        })?;
        let names = variable("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':').map(|name| if name.is_empty() { UNNAMED } else { name });
        let name = |number| Passed { number, name: names.next().unwrap_or(UNNAMED).to_owned() };
        Ok((FIRST..FIRST + count).map(name).collect())
    }
}

fn take_number(number: RawFd) -> Result<OwnedFd> {
    let _alone = TAKING.lock().unwrap_or_else(PoisonError::into_inner);
    let failed =
        |error: io::Error| Error::io(format!("cannot use the descriptor {number} (fd:{number})"), error);
    match number {
        0 => take_stdin().map_err(failed),
        1 | 2 => {
            Err(Error::usage(format!("cannot listen at fd:{number}: it is the standard output or error")))
        }
        _ if !is_inherited(number) => Err(Error::usage(format!(
            "cannot listen at fd:{number}: no process has passed the descriptor {number} to this one, or an address \
             uses it already"
        ))),
        _ => {
            // Nothing in this process owns the descriptor, because it was inherited.
            let passed = FileDescriptor::new(number);
            let copied = passed.as_fd().try_clone_to_owned().map_err(failed);
            if copied.is_err() {
                let _ = passed.into_raw_fd();
            }
            copied
        }
    }
}

/// A launcher in the manner of inetd passes its socket as the standard input.
fn take_stdin() -> io::Result<OwnedFd> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    sockopt::socket_type(&socket)?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(socket)
}

/// Returns whether the descriptor comes from another process and is not in use. Rust opens every descriptor with
/// close-on-exec, and the kernel closes those when a program starts.
fn is_inherited(number: RawFd) -> bool {
    look_at(number, |fd| fcntl_getfd(fd).is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC)))
}

fn is_listener(number: RawFd) -> bool {
    let is_listener = |fd: &FileDescriptor| sockopt::socket_type(fd).is_ok() && net::getpeername(fd).is_err();
    is_inherited(number) && look_at(number, is_listener)
}

fn look_at(number: RawFd, look: impl FnOnce(&FileDescriptor) -> bool) -> bool {
    let seen = FileDescriptor::new(number);
    let found = look(&seen);
    // The descriptor stays open.
    let _ = seen.into_raw_fd();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(variables: &[(&str, &str)]) -> Result<Vec<(RawFd, String)>, String> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned()).filter(|value| !value.is_empty())
        };
        let all = Passed::all(variable).map_err(|error| error.to_string())?;
        Ok(all.into_iter().map(|passed| (passed.number, passed.name)).collect())
    }

    #[test]
    fn the_variables_count_and_name_the_sockets() {
        let own = std::process::id().to_string();
        let check = |variables: &[(&str, &str)], want: &[(RawFd, &str)]| {
            let want: Vec<(RawFd, String)> = want.iter().map(|(n, name)| (*n, (*name).to_owned())).collect();
            assert_eq!(passed(variables), Ok(want), "{variables:?}");
        };
        check(&[], &[]);
        check(&[("LISTEN_FDS", "")], &[]);
        check(&[("LISTEN_FDS", "0")], &[]);
        check(&[("LISTEN_FDS", "1")], &[(3, "unknown")]);
        check(
            &[("LISTEN_FDS", "2"), ("LISTEN_PID", &own), ("LISTEN_FDNAMES", "http:side")],
            &[(3, "http"), (4, "side")],
        );
        check(&[("LISTEN_FDS", "2"), ("LISTEN_FDNAMES", ":side")], &[(3, "unknown"), (4, "side")]);
        check(&[("LISTEN_FDS", "2"), ("LISTEN_FDNAMES", "http")], &[(3, "http"), (4, "unknown")]);
        check(&[("LISTEN_FDS", "1"), ("LISTEN_PID", "1")], &[]);
        check(&[("LISTEN_FDS", "1"), ("LISTEN_PID", "none")], &[]);
        for count in ["-1", "many", "99999999999"] {
            assert!(passed(&[("LISTEN_FDS", count)]).unwrap_err().contains(count), "{count}");
        }
    }

    #[test]
    fn a_descriptor_of_this_process_is_not_taken() {
        use std::os::fd::AsRawFd;
        let own = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        for address in [
            format!("fd:{}", own.as_raw_fd()),
            "fd:9999".into(),
            "fd:1".into(),
            "fd:-1".into(),
            "fd:x".into(),
        ] {
            let error = take(&address).unwrap_err().to_string();
            assert!(error.contains(&address), "{address}: {error}");
        }
        assert!(own.local_addr().is_ok(), "it is still open");
        let error = take("systemd:http").unwrap_err().to_string();
        assert!(error.contains("no sockets were passed"), "{error}");
    }
}
