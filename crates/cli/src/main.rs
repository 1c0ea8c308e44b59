//! The command `weft`: runs the action and sets the exit code.

mod args;
mod command;
mod demo;
mod folder;
mod help;
mod logger;
mod place;
mod probes;
mod qr;
mod serving;
mod tls;

use std::io::Write;
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use args::{Action, Usage};
use weftwork::{HandlerExt, Running};

/// Exit code if the user must change something: the arguments, the environment, or the program that uses the port.
const EXIT_USAGE: u8 = 2;

/// Time to print lines about a server, as much as the library gives its log at the end.
const PRINT_TIMEOUT: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(Usage(message)) => {
            // stderr may be closed. The exit code still reports the mistake.
            let _ = writeln!(std::io::stderr(), "weft: {message}");
            ExitCode::from(EXIT_USAGE)
        }
    }
}

fn run() -> Result<(), Usage> {
    match args::parse(std::env::args_os())? {
        Action::Print(text) => say(text.trim_end()),
        Action::Engines => say(help::engines().trim_end()),
        Action::Completions(shell) => say(help::completions(shell).trim_end()),
        Action::Man => say(help::manual()?.trim_end()),
        Action::Demo(options) => serving::serve("demo", &options, |_| {}, demo::demo)?,
        Action::Serve(options, folder) => {
            let title = format!("serve {}", folder.path.display());
            let files = folder.files()?.with(folder::for_people).with(folder::for_other_origins(folder.cors));
            let (opens, has_qr) = (folder.open, folder.qr);
            let shown = move |running: &Running| {
                has_qr.then(|| qr::show(running));
                opens.then(|| serving::open_browser(running));
            };
            serving::serve(&title, &options, shown, |probes| {
                probes.before(files, move |name| folder.has_file(name))
            })?;
        }
    }
    Ok(())
}

/// Prints a line and flushes. A reader that has gone is no reason to stop.
fn say(line: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Prints lines about a server. If nothing reads stdout, the server has to go on, become ready, and end. So a thread
/// prints them, and is left behind if that takes too long. Without a thread, this one prints them.
fn say_in_time(lines: impl std::fmt::Display) {
    let lines = Arc::<str>::from(lines.to_string());
    let (printed, prints) = mpsc::channel::<()>();
    let said = lines.clone();
    let started = thread::Builder::new().name("weft-stdout".into()).spawn(move || {
        say(said);
        drop(printed);
    });
    match started {
        // Returns an error in both cases: the lines are printed, or take too long.
        Ok(_) => drop(prints.recv_timeout(PRINT_TIMEOUT)),
        Err(_) => say(lines),
    }
}
