//! Reads the command line into an action and its options.

mod errors;

use std::any::Any;
use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddrV6;

use clap::ArgMatches;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap_complete::Shell;
use log::LevelFilter;
use weftwork::{Engine, Settings};

use crate::command::command;
use crate::folder::{self, Folder};
use crate::logger::LogStyle;
use crate::place::join;
use crate::tls::TlsOptions;

/// Action that the command line asks for.
#[derive(Debug, PartialEq)]
pub(crate) enum Action {
    Demo(Options),
    Serve(Options, Folder),
    /// Prints the engines.
    Engines,
    /// Prints the completions of a shell.
    Completions(Shell),
    /// Prints the manual page.
    Man,
    /// Prints a text: help or the version.
    Print(String),
}

/// Values of the flags. If a flag is missing, the environment and the defaults decide.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Options {
    pub(crate) hosts: Vec<String>,
    pub(crate) port: Option<u16>,
    pub(crate) binds: Vec<String>,
    pub(crate) engine: Option<Engine>,
    pub(crate) log: Option<LevelFilter>,
    pub(crate) log_style: Option<LogStyle>,
    /// File for a line a request. `-` is the standard output.
    pub(crate) access_log: Option<String>,
    /// Whether requests are counted and timed.
    pub(crate) metrics: Option<bool>,
    /// Address of the side listener.
    pub(crate) admin: Option<String>,
    pub(crate) tls: TlsOptions,
    /// Names and values of settings. Each value is valid.
    pub(crate) settings: Vec<(String, String)>,
}

/// A mistake of the user, described in one line.
#[derive(Debug, PartialEq)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

impl From<weftwork::Error> for Usage {
    fn from(error: weftwork::Error) -> Usage {
        Usage(error.to_string())
    }
}

/// Reads the arguments, including the program name. Without a command, the action is the demo.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Action, Usage> {
    let matches = match command().try_get_matches_from(args) {
        Ok(matches) => matches,
        Err(error) => {
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(Action::Print(error.to_string())),
                _ => Err(errors::usage(&error)),
            };
        }
    };
    let (name, after) = matches.subcommand().unwrap_or(("demo", &matches));
    let given = Given { before: &matches, after };
    given.check(name)?;
    Ok(match name {
        "serve" => Action::Serve(Options::from(&given), Folder::from(&given)),
        "engines" => Action::Engines,
        "completions" => Action::Completions(given.one("shell").unwrap_or(Shell::Bash)),
        "man" => Action::Man,
        _ => Action::Demo(Options::from(&given)),
    })
}

/// Options before a command and after it. Options after the command override the others.
pub(crate) struct Given<'m> {
    before: &'m ArgMatches,
    after: &'m ArgMatches,
}

impl Given<'_> {
    pub(crate) fn one<T: Any + Clone + Send + Sync>(&self, id: &str) -> Option<T> {
        let one = |matches: &ArgMatches| matches.try_get_one::<T>(id).ok().flatten().cloned();
        one(self.after).or_else(|| one(self.before))
    }

    /// Returns all values of an option that may be repeated.
    pub(crate) fn all(&self, id: &str) -> Vec<String> {
        let all = |matches: &ArgMatches| matches.get_many(id).into_iter().flatten().cloned().collect();
        let mut values: Vec<String> = all(self.before);
        if !std::ptr::eq(self.before, self.after) {
            values.extend(all(self.after));
        }
        values
    }

    pub(crate) fn has(&self, id: &str) -> bool {
        is_given(self.before, id) || is_given(self.after, id)
    }

    /// Refuses options before a command on which they have no effect.
    fn check(&self, command: &str) -> Result<(), Usage> {
        let mut given = self.before.ids().map(|id| id.as_str()).filter(|id| is_given(self.before, id));
        let useless = given.find(|id| match command {
            "serve" => false,
            "demo" => folder::IDS.contains(id),
            _ => true,
        });
        useless.map_or(Ok(()), |id| Err(errors::useless(&flag(id))))
    }
}

fn is_given(matches: &ArgMatches, id: &str) -> bool {
    matches.ids().any(|known| known == id) && matches.value_source(id) == Some(ValueSource::CommandLine)
}

impl From<&Given<'_>> for Options {
    fn from(given: &Given<'_>) -> Options {
        let settings = Settings::default().list().into_iter();
        Options {
            hosts: given.all("host"),
            port: given.one("port"),
            binds: given.all("bind"),
            engine: given.one("engine"),
            log: given.one("log"),
            log_style: given.one("log-format"),
            access_log: given.one("access-log"),
            metrics: given.one("metrics"),
            admin: given.one("admin"),
            tls: TlsOptions::from(given),
            settings: settings.filter_map(|set| Some((set.name.to_owned(), given.one(set.name)?))).collect(),
        }
    }
}

/// Returns the flag for a setting, without the leading dashes.
pub(crate) fn flag(setting: &str) -> String {
    setting.replace('_', "-")
}

/// Checks a host. An empty text would mean all addresses of the machine, and is often an unset variable of a script.
///
/// Only an IPv6 address contains colons. Other texts with a colon would take a slow name lookup.
pub(crate) fn host(source: &str, text: String) -> Result<String, Usage> {
    let wanted = match text.as_str() {
        "" => "an address or a name (for all addresses: [::])",
        text if text.contains(':') && join(text, 0).parse::<SocketAddrV6>().is_err() => {
            "a host without a port (for a port: --port, or --bind for both)"
        }
        _ => return Ok(text),
    };
    Err(invalid(source, &text, wanted))
}

pub(crate) fn port(source: &str, text: &str) -> Result<u16, Usage> {
    text.trim().parse().map_err(|_| invalid(source, text, "a number from 0 to 65535"))
}

pub(crate) fn level(source: &str, text: &str) -> Result<LevelFilter, Usage> {
    text.trim().parse().map_err(|_| invalid(source, text, "off, error, warn, info, debug or trace"))
}

pub(crate) fn log_style(source: &str, text: &str) -> Result<LogStyle, Usage> {
    match text.trim() {
        "text" => Ok(LogStyle::Text),
        "json" => Ok(LogStyle::Json),
        _ => Err(invalid(source, text, "text or json")),
    }
}

pub(crate) fn on_or_off(source: &str, text: &str) -> Result<bool, Usage> {
    match text.trim() {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(invalid(source, text, "on or off")),
    }
}

pub(crate) fn invalid(name: &str, value: &str, wanted: &str) -> Usage {
    Usage(format!("invalid {name} {value:?}: expected {wanted}"))
}

/// Returns the value if the setting accepts it. The library's error names the setting, and the error here names the
/// flag.
pub(crate) fn check_setting(name: &str, value: &str) -> Result<String, Usage> {
    match Settings::default().set(name, value) {
        Ok(()) => Ok(value.to_owned()),
        Err(error) => Err(Usage(error.to_string().replacen(name, &format!("--{}", flag(name)), 1))),
    }
}

#[cfg(test)]
mod tests;
