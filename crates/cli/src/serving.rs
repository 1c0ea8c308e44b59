//! How a server is started from options, says what it does, and ends.

use log::LevelFilter;
use weftwork::{Address, Handler, Running, Server, Settings, Signals, Source, View};

use crate::args::{Options, Usage, flag, level};
use crate::place::{Place, places};
use crate::say;

/// The settings worth a line at start, whatever their source; others get one when they were changed.
const SHOWN: [&str; 5] = ["connections_max", "threads_max", "body_bytes_max", "head_timeout", "idle_timeout"];

/// What is read here and in `place`, and is no setting of the library.
const VARIABLES: [&str; 3] = ["WEFT_HOST", "WEFT_LOG", "WEFT_PORT"];

/// Starts the server with the handler that `site` makes, and serves until SIGTERM or SIGINT.
pub(crate) fn serve<H: Handler>(
    title: &str,
    options: &Options,
    site: impl FnOnce(View) -> H,
) -> Result<(), Usage> {
    // An empty variable is how shells and service files unset one.
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
    // What matters is what it says of the others: the server reads the settings by itself.
    Settings::from_env_beside(&VARIABLES)?;
    let mut server = bind(&places(options, variable)?)?;
    for (name, value) in &options.settings {
        server = server.set(name, value)?;
    }
    let server = match options.engine {
        Some(engine) => server.engine(engine),
        None => server,
    };
    // Before anyone can know that the server is there, so that no signal finds the default action.
    let signals = Signals::install()?;
    let site = site(server.view());
    let running = server.start(site).map_err(|error| with_flag(error, &options.settings))?;
    announce(title, &running);
    say(running.wait(signals)?);
    Ok(())
}

/// The same error, with the flag that has brought the setting which it names.
fn with_flag(error: weftwork::Error, given: &[(String, String)]) -> Usage {
    let mut words = error.message().split([' ', '(']);
    match words.find(|word| given.iter().any(|(name, _)| name == word)) {
        // A variable that is named is what has to change.
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
            // A setting says itself where it is from.
            names if names.is_empty() || error.message().starts_with("WEFT_") => error.into(),
            names => Usage(format!("{error} (from {})", names.join(" and "))),
        })?);
    }
    server.ok_or_else(|| Usage("there is no address to listen at".into()))
}

/// Lines that people read, and that programs find by their first words.
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

/// The address as a URL with the real port; where it is all of them, also the one to type here.
fn shown(address: &Address) -> String {
    match (address, address.url()) {
        (Address::Tcp(all), Some(url)) if all.ip().is_unspecified() => format!("http://{all}/ (here: {url})"),
        (_, Some(url)) => url,
        (unix, None) => unix.to_string(),
    }
}
