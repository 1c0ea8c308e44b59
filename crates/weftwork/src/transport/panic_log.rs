//! Sends the messages of panics to the log, because the standard library writes them to stderr and may wait for it.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;
use std::sync::Once;

use super::log_queue::log_line;
use crate::error::{OneLine, panic_message};
use crate::message::large_stack::with_large_stack;

/// Sends the message of each panic in a handler to the log, at the level error, with its place in the source. If
/// `RUST_BACKTRACE` is set, the backtrace follows.
///
/// Without this call, the standard library writes the message to stderr, on the thread of the handler. If nothing reads
/// stderr, that thread waits. It may be a loop, with all its connections. The lines of the log never hold up a handler
/// (see [`ServerStats::log_lines_dropped`](crate::ServerStats::log_lines_dropped)).
///
/// It sets the panic hook of the process. Threads that are not the server's keep the hook that was set before. A hook that
/// is set later replaces it. Later calls do nothing.
///
/// ```
/// // At the start of `main`, after the logger.
/// weftwork::log_panics();
/// ```
pub fn log_panics() {
    static SET: Once = Once::new();
    SET.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| if is_of_server() { log(panic) } else { others(panic) }));
    });
}

/// Returns whether this is a thread of a server, by the names that the engines give.
fn is_of_server() -> bool {
    let thread = std::thread::current();
    thread
        .name()
        .is_some_and(|name| name == "weft" || name.starts_with("weft-") || name.starts_with("fiber-"))
}

fn log(panic: &PanicHookInfo<'_>) {
    let message = OneLine(panic_message(panic.payload()));
    // The place is always known today.
    let place = panic.location().map(|place| format!(" at {place}")).unwrap_or_default();
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        // To write it takes more stack than a fiber has.
        with_large_stack(|| log_line!(Error, "panicked{place}: {message}\n{backtrace}"));
    } else {
        log_line!(Error, "panicked{place}: {message}");
    }
}
