//! Does the command do what it says? Each test starts the real binary on a port of its own.

mod client;
mod mistakes;
mod options;
mod process;
mod routes;
mod serve;
mod stop;
