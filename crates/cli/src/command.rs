//! Definition of the command line for clap: commands, options, and their help.

use clap::builder::Str;
use clap::{Arg, ArgAction, Command, ValueHint, value_parser};
use clap_complete::Shell;
use weftwork::{Engine, Settings};

use crate::args::{Usage, check_setting, flag, host, level, log_style, on_or_off, port};
use crate::{folder, tls};

const ABOUT: &str = "An HTTP server for plain blocking handlers";
const DEMO: &str = "Serve a page that shows what runs, with routes to try and to measure";
const SERVE: &str = "Serve the files of a directory, or one file";

const AFTER: &str = "\
weft COMMAND --help lists the options and every limit with its default.
Without a command, weft runs the demo at http://127.0.0.1:8080/.";

const ROUTES: &str = "\
Routes:
  /health  /ready  /metrics  /json  /echo  /headers  /nocontent  /bytes?n=N  /slow?ms=N  /slow?us=N  /wait?ms=N
  /later?ms=N  /events  /ws/echo  /upload  /files/  /dashboard  /block?wait=true  /block.svg

";

const FILES: &str = "\
For a directory, weft sends its index.html, or else a list of its files. Files are sent with a type, a
tag and a date, and downloads can be resumed. If FILE.br, FILE.zst or FILE.gz exists beside FILE, clients
that accept that encoding get it. Where DIR has no file of that name, /health, /ready (503 while the server
stops) and /metrics (for Prometheus, unless there is --admin) are answered by weft.

";

const SOURCES: &str = "\
Each limit also has a variable: WEFT_HEAD_BYTES_MAX for --head-bytes-max. A flag overrides its WEFT_
variable, a WEFT_ variable overrides HOST and PORT, and these override the default. An invalid WEFT_
setting or engine variable is an error even if a flag overrides it.";

/// Returns the definition. Options may also come before their command.
pub(crate) fn command() -> Command {
    let server = server_args();
    let of_any_command = server.iter().cloned().chain(folder::args()).map(|arg| arg.hide(true));
    let shell = Arg::new("shell").value_name("SHELL").required(true).value_parser(value_parser!(Shell));
    Command::new("weft")
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .override_usage("weft [COMMAND] [OPTIONS]")
        .after_help(AFTER)
        // The help is not wrapped, so each option has one line.
        .term_width(0)
        .args_override_self(true)
        .args(of_any_command)
        .subcommand(
            Command::new("demo")
                .about(DEMO)
                .override_usage("weft [demo] [OPTIONS]")
                .args(server.clone())
                .after_help(format!("{ROUTES}{SOURCES}")),
        )
        .subcommand(
            Command::new("serve")
                .about(SERVE)
                .override_usage("weft serve DIR [OPTIONS]")
                .arg(directory())
                .args(folder::args())
                .args(server)
                .after_help(format!("{FILES}{SOURCES}")),
        )
        .subcommand(Command::new("engines").about("List the engines, and what each is for"))
        .subcommand(
            Command::new("completions")
                .about("Print the completions of a shell")
                .arg(shell)
                .after_help("For bash: source <(weft completions bash)"),
        )
        .subcommand(
            Command::new("man").about("Print the manual page").after_help("To read it: weft man | man -l -"),
        )
}

/// Returns the definition for the manual page, which is one page for all commands.
pub(crate) fn man() -> Command {
    Command::new("weft")
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .long_about(format!(
            "weft demo: {DEMO}. This is also what weft does without a command.\n\n\
             weft serve: {SERVE}. {FILES}\
             weft engines: List the engines that --engine accepts.\n\n{SOURCES}"
        ))
        .override_usage(
            "weft [demo] [OPTIONS]\nweft serve DIR [OPTIONS]\nweft engines\nweft completions SHELL\nweft man",
        )
        .args(folder::args())
        .args(server_args())
}

fn directory() -> Arg {
    Arg::new("dir")
        .value_name("DIR")
        .required(true)
        .value_parser(value_parser!(std::path::PathBuf))
        .value_hint(ValueHint::AnyPath)
        .help("The directory, or one file")
}

/// Defines an option with a value.
pub(crate) fn option(name: impl Into<Str>, value: &'static str) -> Arg {
    let name = name.into();
    Arg::new(name.clone()).long(name).value_name(value).allow_negative_numbers(true)
}

/// Defines the options of every server: addresses, engine, log, and each setting of the library.
fn server_args() -> Vec<Arg> {
    let mut args = vec![
        option("host", "HOST")
            .action(ArgAction::Append)
            .value_parser(|text: &str| host("--host", text.to_owned()))
            .value_hint(ValueHint::Hostname)
            .help("where to listen, may be repeated [HOST or WEFT_HOST; 127.0.0.1]"),
        option("port", "N")
            .value_parser(|text: &str| port("--port", text))
            .help("0 lets the system choose [PORT or WEFT_PORT; 8080]"),
        option("bind", "ADDRESS").action(ArgAction::Append).help(
            "127.0.0.1:8080, [::1]:8080, :8080, unix:/path, fd:3 or systemd:NAME,\n\
                 may be repeated; proxy+127.0.0.1:8080 expects the PROXY protocol,\n\
                 plain+127.0.0.1:8080 stays without TLS\n\
                 [the sockets of LISTEN_FDS, if there are any]",
        ),
        option("admin", "ADDRESS")
            .help("answer /health, /ready, /metrics, /dashboard there, even if busy [WEFT_ADMIN]"),
        option("engine", "NAME")
            .value_parser(|text: &str| {
                text.parse::<Engine>().map_err(|error| Usage(format!("--engine: {error}")))
            })
            .help("see weft engines [WEFT_ENGINE; adaptive]"),
        option("log", "LEVEL")
            .value_parser(|text: &str| level("--log", text))
            .help("off, error, warn, info, debug or trace [WEFT_LOG; warn]"),
        option("log-format", "FORMAT")
            .value_parser(|text: &str| log_style("--log-format", text))
            .help("text or json, for the log and the access log [WEFT_LOG_FORMAT; text]"),
        option("access-log", "FILE").value_hint(ValueHint::FilePath).help(
            "write a line a request to FILE, or to stdout: -\n\
                 [WEFT_ACCESS_LOG; - if stdout is a terminal, or at log level debug]",
        ),
        option("metrics", "ON")
            .value_parser(|text: &str| on_or_off("--metrics", text))
            .help("on or off: count and time requests for /metrics [WEFT_METRICS; on]"),
    ];
    args.extend(tls::args());
    args.extend(Settings::default().list().into_iter().map(|setting| {
        let name = setting.name;
        option(flag(name), kind(&setting.value))
            .id(name)
            .help_heading("Limits and deadlines")
            .value_parser(move |text: &str| check_setting(name, text))
            .help(format!("{} [{}]", setting.about, setting.value))
    }));
    args
}

/// Returns the name for a value of a setting, derived from the form of its default.
fn kind(default: &str) -> &'static str {
    let unit = default.trim_start_matches(|c: char| c.is_ascii_digit());
    match unit {
        "" => "N",
        _ if unit == default => "VALUE",
        _ if unit.ends_with('B') => "SIZE",
        _ if unit.ends_with(['s', 'm', 'h']) => "TIME",
        _ => "VALUE",
    }
}
