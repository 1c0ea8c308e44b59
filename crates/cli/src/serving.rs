//! How a server is started from options, says what it does, and ends.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use log::LevelFilter;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use weftwork::{Address, Handler, Report, Running, Server, Settings, Source};

use crate::args::{Options, Usage, level};
use crate::place::{Place, places};
use crate::say;

/// The settings worth a line at start, whatever their source; others get one when they were changed.
const SHOWN: [&str; 5] = ["connections_max", "threads_max", "body_bytes_max", "head_timeout", "idle_timeout"];

/// Where the running server sits, so that its own handler can look at it. Empty before and after.
#[derive(Clone, Default)]
pub(crate) struct Seat(Arc<Mutex<Option<Running>>>);

impl Seat {
    pub(crate) fn look(&self) -> MutexGuard<'_, Option<Running>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the server, and serves until SIGTERM or SIGINT.
pub(crate) fn serve(title: &str, options: &Options, handler: impl Handler, seat: Seat) -> Result<(), Usage> {
    let variable = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    let log = match (options.log, variable("WEFT_LOG")) {
        (Some(level), _) => level,
        (None, Some(text)) => level("WEFT_LOG", &text)?,
        (None, None) => LevelFilter::Warn,
    };
    crate::logger::install(log);
    let server = bind(&places(options, variable)?)?;
    let mut refused = None;
    let server = server.settings(|settings| apply(settings, options, &mut refused));
    if let Some(error) = refused {
        return Err(error);
    }
    let server = match options.engine {
        Some(engine) => server.engine(engine),
        None => server,
    };
    // Before anyone can know that the server is there, so that no signal finds the default action.
    let signals = Signals::new([SIGTERM, SIGINT]);
    let signals = signals.map_err(|error| Usage(format!("signals cannot be waited for: {error}")))?;
    let running = server.start(handler)?;
    // Seated first: whoever reads the lines may ask for the page at once.
    announce(title, seat.look().insert(running));
    if let Some(report) = wait(signals, &seat) {
        say(report);
    }
    Ok(())
}

fn bind(places: &[Place]) -> Result<Server, Usage> {
    let mut server: Option<Server> = None;
    for Place { address, from } in places {
        let bound = match server {
            None => Server::bind(address),
            Some(server) => server.and_bind(address),
        };
        server = Some(bound.map_err(|error| match from.as_slice() {
            [] => error.into(),
            names => Usage(format!("{error} (from {})", names.join(" and "))),
        })?);
    }
    server.ok_or_else(|| Usage("there is no address to listen at".into()))
}

fn apply(mut settings: Settings, options: &Options, refused: &mut Option<Usage>) -> Settings {
    for (name, value) in &options.settings {
        if let Err(error) = settings.set(name, value) {
            *refused = Some(error.into());
        }
    }
    settings
}

/// Lines that people read, and that programs find by their first words.
fn announce(title: &str, running: &Running) {
    say(format_args!("weft {} {title}", env!("CARGO_PKG_VERSION")));
    for address in running.addresses() {
        say(format_args!("listening at {}", shown(address)));
    }
    let engine = running.engine();
    let loops = engine.loops();
    say(format_args!("engine {engine}, {loops} {}", if loops == 1 { "loop" } else { "loops" }));
    for setting in running.settings().list() {
        match setting.source {
            Source::Default if SHOWN.contains(&setting.name) => {
                say(format_args!("{} {}", setting.name, setting.value))
            }
            Source::Default => {}
            source => say(format_args!("{} {} ({source})", setting.name, setting.value)),
        }
    }
    say("stop with Ctrl-C (requests in flight may finish)");
}

/// The address as a URL with the real port; where it is all of them, also the one to type here.
fn shown(address: &Address) -> String {
    match (address, address.url()) {
        (Address::Tcp(all), Some(url)) if all.ip().is_unspecified() => format!("http://{all}/ (here: {url})"),
        (_, Some(url)) => url,
        (unix, None) => unix.to_string(),
    }
}

/// Waits for a signal, then for the requests in flight; a second signal ends that at once.
///
/// [`Running::wait`] does the same, but takes the server away from the page that looks at it.
fn wait(mut signals: Signals, seat: &Seat) -> Option<Report> {
    signals.forever().next();
    let running = seat.look().take()?;
    log::info!("stopping: requests in flight may finish; a second signal cuts them");
    std::thread::spawn(move || {
        signals.forever().next();
        say("stopped at once: a second signal came");
        std::process::exit(0);
    });
    let deadline = running.settings().drain_timeout;
    Some(running.shutdown(deadline))
}
