//! Tests of the command. Each test starts the real binary on its own port.

mod client;
mod logs;
#[cfg(target_os = "linux")]
mod memory_limit;
mod mistakes;
mod options;
mod process;
mod replacement;
mod routes;
mod serve;
mod signals;
mod stop;
#[cfg(target_os = "linux")]
mod stuck_output;
mod supervised;
