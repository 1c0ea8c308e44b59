//! Runs one of the servers: `weftwork-bench-peers NAME PORT [CORES]`, on 127.0.0.1, until killed. Over TLS, for hyper alone:
//! `weftwork-bench-peers hyper PORT CORES TLS_FOLDER FILES_FOLDER`.

mod actix;
mod astra;
mod axum;
mod hyper;
mod may;
mod ntex;
mod routes;
mod tiny;
mod tls;
mod tokio;

use std::env;
use std::path::Path;
use std::process::ExitCode;

/// The port, and how many workers.
type Serve = fn(u16, usize) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;

const SERVERS: &[(&str, Serve)] = &[
    ("hyper", hyper::serve),
    ("axum", axum::serve_asynchronous),
    ("axum-blocking", axum::serve_blocking),
    ("actix-web", actix::serve),
    ("ntex", ntex::serve),
    ("may_minihttp", may::serve),
    ("tiny_http", tiny::serve),
    ("astra", astra::serve),
];

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let (name, port, workers) = match words.as_slice() {
        [name, port] => (name, port, "1"),
        [name, port, workers] => (name, port, workers.as_str()),
        [name, port, workers, tls, files] if name == "hyper" => {
            let (Ok(port), Ok(workers @ 1..)) = (port.parse(), workers.parse()) else { return usage() };
            return exit(name, hyper::serve_tls(port, workers, Path::new(tls), Path::new(files)));
        }
        _ => return usage(),
    };
    let server = SERVERS.iter().find(|(known, _)| known == name);
    let (Some((_, serve)), Ok(port), Ok(workers @ 1..)) = (server, port.parse(), workers.parse()) else {
        return usage();
    };
    exit(name, serve(port, workers))
}

fn exit(name: &str, served: Result<(), Box<dyn std::error::Error + Send + Sync>>) -> ExitCode {
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    let names: Vec<&str> = SERVERS.iter().map(|(name, _)| *name).collect();
    eprintln!("Usage: weftwork-bench-peers <{}> PORT [CORES]", names.join("|"));
    ExitCode::from(2)
}
