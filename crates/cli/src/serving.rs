//! Starts a server from the options, announces it, and waits for its end.

use std::io::IsTerminal;
use std::process::{Command, Stdio};
use std::sync::Arc;

use log::LevelFilter;
use weftwork::middleware::{AccessLog, LogFormat, Metrics};
use weftwork::{Address, Handler, HandlerExt, Running, Server, Settings, Signals, Source};

use crate::args::{Options, Usage, flag, level, log_style, on_or_off};
use crate::logger::LogStyle;
use crate::place::{Place, places};
use crate::probes::Probes;
use crate::{say_in_time, tls};

/// Settings that are always shown at startup. Other settings are shown if they were changed.
const SHOWN: [&str; 5] = ["connections_max", "threads_max", "body_bytes_max", "head_timeout", "idle_timeout"];

/// Variables that only the command reads.
const VARIABLES: [&str; 9] = [
    "WEFT_ACCESS_LOG",
    "WEFT_ADMIN",
    "WEFT_HOST",
    "WEFT_LOG",
    "WEFT_LOG_FORMAT",
    "WEFT_METRICS",
    "WEFT_PORT",
    tls::VARIABLES[0],
    tls::VARIABLES[1],
];

/// Starts the server with the handler that `site` makes, and serves until SIGTERM or SIGINT. `shown` gets the
/// server once it listens.
pub(crate) fn serve<H: Handler>(
    title: &str,
    options: &Options,
    shown: impl FnOnce(&Running),
    site: impl FnOnce(Probes) -> H,
) -> Result<(), Usage> {
    // Shells and service files unset a variable by making it empty.
    let variable = |name: &str| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty());
        value.map(|value| value.to_string_lossy().into_owned())
    };
    let log = match (options.log, variable("WEFT_LOG")) {
        (Some(level), _) => level,
        (None, Some(text)) => level("WEFT_LOG", &text)?,
        (None, None) => LevelFilter::Warn,
    };
    let style = match (options.log_style, variable("WEFT_LOG_FORMAT")) {
        (Some(style), _) => style,
        (None, Some(text)) => log_style("WEFT_LOG_FORMAT", &text)?,
        (None, None) => LogStyle::Text,
    };
    let counts = match (options.metrics, variable("WEFT_METRICS")) {
        (Some(is_on), _) => is_on,
        (None, Some(text)) => on_or_off("WEFT_METRICS", &text)?,
        (None, None) => true,
    };
    crate::logger::install(log, style);
    weftwork::log_panics();
    let file = options.access_log.clone().or_else(|| variable("WEFT_ACCESS_LOG"));
    let access_log = access_log(file, style, log)?;
    // Only the report of unknown variables counts here, because the server reads the settings again.
    Settings::from_env_beside(&VARIABLES)?;
    let admin = options.admin.clone().or_else(|| variable("WEFT_ADMIN"));
    let mut server = bind(&places(options, Server::sockets_are_passed(), variable)?)?;
    for (name, value) in &options.settings {
        server = server.set(name, value)?;
    }
    let server = options.tls.apply(server, variable)?;
    let server = match options.engine {
        Some(engine) => server.engine(engine),
        None => server,
    };
    // The signals are installed before the server is visible. So no signal meets the default action.
    let signals = match server.status().settings().maintenance_signals {
        true => Signals::install()?,
        false => Signals::stop_only()?,
    };
    let metrics = Metrics::new().server(server.status());
    let of_site = Probes::new(server.status(), &metrics, admin.is_none());
    let server = match admin {
        Some(address) => {
            let probes = Probes::new(server.status(), &metrics, true);
            server.admin(address, probes.on_side_listener())?
        }
        None => server,
    };
    let mut site: Arc<dyn Handler> = Arc::new(site(of_site));
    if counts {
        site = Arc::new(site.with(metrics));
    }
    if let Some(log) = access_log {
        site = Arc::new(site.with(log));
    }
    let running = server.start(site).map_err(|error| with_flag(error, &options.settings))?;
    announce(title, &running);
    shown(&running);
    say_in_time(running.wait(signals)?);
    Ok(())
}

/// Opens the access log, if there is one. A person at a terminal, or one who looks for errors, sees a line a request.
fn access_log(file: Option<String>, style: LogStyle, level: LevelFilter) -> Result<Option<AccessLog>, Usage> {
    let is_terminal = std::io::stdout().is_terminal();
    // https://no-color.org: an empty variable has no effect.
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let format = match style {
        LogStyle::Json => LogFormat::Json,
        LogStyle::Text if file.is_some() => LogFormat::Combined,
        LogStyle::Text if is_terminal && !no_color => LogFormat::Terminal,
        LogStyle::Text => LogFormat::Short,
    };
    let is_seen = is_terminal || level >= LevelFilter::Debug;
    Ok(match file.as_deref() {
        Some("-") => Some(AccessLog::to_stdout(format)?),
        Some(path) => Some(AccessLog::to_file(format, path)?),
        None if is_seen => Some(AccessLog::to_stdout(format)?),
        None => None,
    })
}

/// Adds the flag that set the value to an error that names a setting.
fn with_flag(error: weftwork::Error, given: &[(String, String)]) -> Usage {
    let mut words = error.message().split([' ', '(']);
    match words.find(|word| given.iter().any(|(name, _)| name == word)) {
        // If the error names a variable, the user must change that variable.
        Some(name) if !error.message().starts_with("WEFT_") => Usage(format!("--{}: {error}", flag(name))),
        _ => error.into(),
    }
}

fn bind(places: &[Place]) -> Result<Server, Usage> {
    let mut server: Option<Server> = None;
    for Place { address, from } in places {
        let bound = match server {
            None => Server::bind(address),
            Some(server) => server.and_bind(address),
        };
        server = Some(bound.map_err(|error| match from.as_slice() {
            // An error about a setting already names its source.
            names if names.is_empty() || error.message().starts_with("WEFT_") => error.into(),
            names => Usage(format!("{error} (from {})", names.join(" and "))),
        })?);
    }
    server.ok_or_else(|| Usage("there is no address to listen at".into()))
}

/// Prints the startup lines. People read them, and programs find them by their first words.
fn announce(title: &str, running: &Running) {
    let mut lines = vec![format!("weft {} {title}", env!("CARGO_PKG_VERSION"))];
    for address in running.addresses() {
        lines.push(format!("listening at {}", shown(address, running.has_tls(address))));
    }
    for certificate in running.status().certificates() {
        let names = certificate.names.join(", ");
        lines.push(format!("certificate for {names}, SHA-256 {}", certificate.fingerprint));
    }
    for address in running.redirect_addresses() {
        lines.push(format!("redirecting to HTTPS from {}", shown(address, false)));
    }
    for address in running.admin_addresses() {
        lines.push(format!("probes and metrics at {}", shown(address, running.has_tls(address))));
    }
    let engine = running.engine();
    lines.push(match engine.loops() {
        0 => format!("engine {engine}"),
        1 => format!("engine {engine}, 1 loop"),
        loops => format!("engine {engine}, {loops} loops"),
    });
    lines.extend(engine.caution().map(ToString::to_string));
    for setting in running.settings().list() {
        match setting.source {
            Source::Default if SHOWN.contains(&setting.name) => {
                lines.push(format!("{} {}", setting.name, setting.value));
            }
            Source::Default => {}
            source => lines.push(format!("{} {} ({source})", setting.name, setting.value)),
        }
    }
    if cfg!(debug_assertions) {
        lines.push("this is a debug build: to measure, add --release".into());
    }
    lines.push("Ctrl-C stops the server after requests in flight finish".into());
    say_in_time(lines.join("\n"));
}

/// Opens the first address that has a URL in the browser of the desktop. The server runs on if that fails.
pub(crate) fn open_browser(running: &Running) {
    let url = running.addresses().iter().find_map(|address| {
        let scheme = if running.has_tls(address) { "https" } else { "http" };
        Some(address.url()?.replacen("http", scheme, 1))
    });
    let Some(url) = url else { return log::warn!("--open: no address has a URL") };
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let started = Command::new(program)
        .arg(&url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match started {
        // The program ends when the browser has the URL. Its exit is read, so that it does not stay as a zombie.
        Ok(mut child) => drop(std::thread::spawn(move || child.wait())),
        Err(error) => log::warn!("--open: cannot run {program}: {error}"),
    }
}

/// Returns the address as a URL with the real port. For all addresses, adds the URL to use on this machine.
fn shown(address: &Address, has_tls: bool) -> String {
    let scheme = if has_tls { "https" } else { "http" };
    let url = address.url().map(|url| url.replacen("http", scheme, 1));
    match (address, url) {
        (Address::Tcp(all), Some(url)) if all.ip().is_unspecified() => {
            format!("{scheme}://{all}/ (here: {url})")
        }
        (_, Some(url)) => url,
        (unix, None) if has_tls => format!("{unix} (TLS)"),
        (unix, None) => unix.to_string(),
    }
}
