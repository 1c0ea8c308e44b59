//! Starts a server from the options, announces it, and waits for its end.

use log::LevelFilter;
use weftwork::{Address, Handler, Running, Server, ServerStatus, Settings, Signals, Source};

use crate::args::{Options, Usage, flag, level};
use crate::place::{Place, places};
use crate::say;

/// Settings that are always shown at startup. Other settings are shown if they were changed.
const SHOWN: [&str; 5] = ["connections_max", "threads_max", "body_bytes_max", "head_timeout", "idle_timeout"];

/// Variables that only the command reads.
const VARIABLES: [&str; 3] = ["WEFT_HOST", "WEFT_LOG", "WEFT_PORT"];

/// Starts the server with the handler that `site` makes, and serves until SIGTERM or SIGINT.
pub(crate) fn serve<H: Handler>(
    title: &str,
    options: &Options,
    site: impl FnOnce(ServerStatus) -> H,
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
    crate::logger::install(log);
    // Only the report of unknown variables counts here, because the server reads the settings again.
    Settings::from_env_beside(&VARIABLES)?;
    let mut server = bind(&places(options, variable)?)?;
    for (name, value) in &options.settings {
        server = server.set(name, value)?;
    }
    let server = match options.engine {
        Some(engine) => server.engine(engine),
        None => server,
    };
    // The signals are installed before the server is visible. So no signal meets the default action.
    let signals = Signals::install()?;
    let site = site(server.status());
    let running = server.start(site).map_err(|error| with_flag(error, &options.settings))?;
    announce(title, &running);
    say(running.wait(signals)?);
    Ok(())
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
    say(format_args!("weft {} {title}", env!("CARGO_PKG_VERSION")));
    for address in running.addresses() {
        say(format_args!("listening at {}", shown(address)));
    }
    let engine = running.engine();
    match engine.loops() {
        0 => say(format_args!("engine {engine}")),
        1 => say(format_args!("engine {engine}, 1 loop")),
        loops => say(format_args!("engine {engine}, {loops} loops")),
    }
    if let Some(caution) = engine.caution() {
        say(caution);
    }
    for setting in running.settings().list() {
        match setting.source {
            Source::Default if SHOWN.contains(&setting.name) => {
                say(format_args!("{} {}", setting.name, setting.value))
            }
            Source::Default => {}
            source => say(format_args!("{} {} ({source})", setting.name, setting.value)),
        }
    }
    say("Ctrl-C stops the server after requests in flight finish");
}

/// Returns the address as a URL with the real port. For all addresses, adds the URL to use on this machine.
fn shown(address: &Address) -> String {
    match (address, address.url()) {
        (Address::Tcp(all), Some(url)) if all.ip().is_unspecified() => format!("http://{all}/ (here: {url})"),
        (_, Some(url)) => url,
        (unix, None) => unix.to_string(),
    }
}
