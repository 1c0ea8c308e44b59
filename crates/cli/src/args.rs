//! What the command line says, before anything of it is done.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddrV6;

use lexopt::{Arg, Parser, ValueExt};
use log::LevelFilter;
use weftwork::{Engine, Settings, nearest};

use crate::folder::{FOLDER_OPTIONS, Folder};
use crate::place::join;

/// The options that are not settings.
pub(crate) const OPTIONS: [&str; 7] = ["host", "port", "bind", "engine", "log", "help", "version"];
pub(crate) const COMMANDS: [&str; 4] = ["demo", "serve", "engines", "help"];

/// What to do.
#[derive(Debug, PartialEq)]
pub(crate) enum Command {
    /// Which engines there are.
    Engines,
    Demo(Options),
    Serve(Options, Folder),
    Help(Topic),
    Version,
}

/// What to explain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Topic {
    All,
    Demo,
    Serve,
}

/// What the flags say; where one is missing, the environment and the defaults decide.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Options {
    pub(crate) hosts: Vec<String>,
    pub(crate) port: Option<u16>,
    pub(crate) binds: Vec<String>,
    pub(crate) engine: Option<Engine>,
    pub(crate) log: Option<LevelFilter>,
    /// Names and values of settings, each of them found to be valid.
    pub(crate) settings: Vec<(String, String)>,
}

/// What its user has to change, in one line.
#[derive(Debug, PartialEq)]
pub(crate) struct Usage(pub(crate) String);

impl From<lexopt::Error> for Usage {
    fn from(error: lexopt::Error) -> Usage {
        Usage(error.to_string())
    }
}

impl From<weftwork::Error> for Usage {
    fn from(error: weftwork::Error) -> Usage {
        Usage(error.to_string())
    }
}

/// Reads the arguments, without the program's name. No command means the demo.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, Usage> {
    let args: Vec<OsString> = args.into_iter().collect();
    let mut parser = Parser::from_args(args);
    let mut options = Options::default();
    let mut folder = Folder::default();
    let mut words: Vec<OsString> = Vec::new();
    let mut help = false;
    // The first option that only a server has a use for.
    let mut given: Option<String> = None;
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Short('h') | Arg::Long("help") => help = true,
            Arg::Short('V') | Arg::Long("version") => return Ok(Command::Version),
            Arg::Long(name) => {
                let name = name.to_owned();
                if !folder.read(&name, &mut parser)? {
                    options.read(&name, &mut parser, listed_by(&words))?;
                    given.get_or_insert(name);
                }
            }
            Arg::Short(letter) => {
                return Err(Usage(format!("there is no option -{letter}; {} lists them", listed_by(&words))));
            }
            Arg::Value(word) => words.push(word),
        }
    }
    let is_alone = words.first().is_some_and(|name| name == "engines" || name == "help");
    match given.filter(|_| is_alone && !help) {
        Some(name) => Err(Usage(format!("--{name} goes with weft demo or weft serve DIR"))),
        None => command(words, options, folder, help),
    }
}

/// Which help has the options of the command that these words begin.
fn listed_by(words: &[OsString]) -> &'static str {
    match words.first() {
        Some(name) if name == "serve" => "weft serve --help",
        _ => "weft demo --help",
    }
}

fn command(words: Vec<OsString>, options: Options, folder: Folder, help: bool) -> Result<Command, Usage> {
    let mut words = words.into_iter();
    let name = words.next();
    if !help && name.as_deref() != Some(OsStr::new("serve")) {
        folder.check_unused()?;
    }
    let command = match name.as_deref().map(|name| name.to_string_lossy()).as_deref() {
        None if help => Command::Help(Topic::All),
        None => Command::Demo(options),
        Some("demo") if help => Command::Help(Topic::Demo),
        Some("demo") => Command::Demo(options),
        Some("serve") if help => return Ok(Command::Help(Topic::Serve)),
        Some("serve") => match words.next() {
            Some(path) => Command::Serve(options, folder.at(path)),
            None => return Err(Usage("serve needs a directory: weft serve DIR".into())),
        },
        Some("engines") => Command::Engines,
        Some("help") => Command::Help(topic(words.next())?),
        Some(name) => return Err(unknown_command(name)),
    };
    match words.next() {
        Some(word) => Err(Usage(format!(
            "{:?} is one word too many (weft help says what is taken)",
            word.to_string_lossy()
        ))),
        None => Ok(command),
    }
}

fn topic(word: Option<OsString>) -> Result<Topic, Usage> {
    match word.as_deref().map(|word| word.to_string_lossy()).as_deref() {
        None | Some("help" | "engines") => Ok(Topic::All),
        Some("demo") => Ok(Topic::Demo),
        Some("serve") => Ok(Topic::Serve),
        Some(name) => Err(unknown_command(name)),
    }
}

fn unknown_command(name: &str) -> Usage {
    let meant = match nearest(name, COMMANDS) {
        Some(known) => format!("did you mean {known}?"),
        None => format!("the commands: {}", COMMANDS.join(", ")),
    };
    Usage(format!("there is no command {name:?}; {meant}"))
}

impl Options {
    fn read(&mut self, name: &str, parser: &mut Parser, listed_by: &str) -> Result<(), Usage> {
        match name {
            "host" => self.hosts.push(host("--host", parser.value()?.string()?)?),
            "port" => self.port = Some(port("--port", &parser.value()?.string()?)?),
            "bind" => self.binds.push(parser.value()?.string()?),
            "engine" => {
                let engine = parser.value()?.string()?;
                self.engine = Some(engine.parse().map_err(|error| Usage(format!("--engine: {error}")))?);
            }
            "log" => self.log = Some(level("--log", &parser.value()?.string()?)?),
            _ => {
                let setting = Settings::default().list().into_iter().find(|known| flag(known.name) == name);
                let Some(setting) = setting else { return Err(unknown_option(name, listed_by)) };
                let value = parser.value()?.string()?;
                check_setting(setting.name, &value)?;
                self.settings.push((setting.name.to_owned(), value));
            }
        }
        Ok(())
    }
}

/// How a setting is written as a flag, without the dashes in front.
pub(crate) fn flag(setting: &str) -> String {
    setting.replace('_', "-")
}

/// An empty one would be every address of the machine: often a variable of a script that was not set.
///
/// Only an IPv6 address has colons. What else has one is looked up as a name, and that takes its time.
pub(crate) fn host(source: &str, text: String) -> Result<String, Usage> {
    let wanted = match text.as_str() {
        "" => "an address or a name; all of them are [::]",
        text if text.contains(':') && join(text, 0).parse::<SocketAddrV6>().is_err() => {
            "a host without its port: --port says that, or --bind both"
        }
        _ => return Ok(text),
    };
    Err(Usage(format!("{source} is {text:?}, but has to be {wanted}")))
}

pub(crate) fn port(source: &str, text: &str) -> Result<u16, Usage> {
    text.trim()
        .parse()
        .map_err(|_| Usage(format!("{source} is {text:?}, but has to be a number from 0 to 65535")))
}

pub(crate) fn level(source: &str, text: &str) -> Result<LevelFilter, Usage> {
    let wanted = "off, error, warn, info, debug or trace";
    text.trim().parse().map_err(|_| Usage(format!("{source} is {text:?}, but has to be {wanted}")))
}

/// The library names the setting; whoever typed a flag looks for the flag.
fn check_setting(name: &str, value: &str) -> Result<(), Usage> {
    Settings::default().set(name, value).map_err(|error| {
        let text = error.to_string();
        Usage(format!("--{}{}", flag(name), text.strip_prefix(name).unwrap_or(&text)))
    })
}

fn unknown_option(name: &str, listed_by: &str) -> Usage {
    let settings: Vec<String> = Settings::default().list().iter().map(|setting| flag(setting.name)).collect();
    let known = OPTIONS.into_iter().chain(FOLDER_OPTIONS).chain(settings.iter().map(String::as_str));
    let meant = match nearest(name, known) {
        Some(known) => format!("did you mean --{known}?"),
        None => format!("{listed_by} lists them"),
    };
    Usage(format!("there is no option --{name}; {meant}"))
}

#[cfg(test)]
mod tests;
