//! Two servers that answer alike, to measure what a router adds to a request. One has one handler for all paths, the other a hundred typed routes in
//! front of the same answer.

use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddrV4};

use clap::{Args, ValueEnum};
use rustix::process::{Signal, set_parent_process_death_signal};
use weftwork::prelude::*;
use weftwork::{Engine, Signals};

use crate::failure::{Failure, Result};
use crate::procs::limits;

// The routes that the library's tests and its benchmark beside matchit have.
#[path = "../../weftwork/tests/support/hundred.rs"]
mod hundred;

use hundred::Hundred;

/// The answer of both, whatever is asked.
pub(crate) const ANSWER: &str = "OK";

/// One of the two servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Site {
    Bare,
    Typed,
}

#[derive(Args, Debug)]
pub(crate) struct SiteArgs {
    #[arg(value_enum)]
    site: Site,
    /// Port to listen on
    #[arg(long, value_name = "N")]
    port: u16,
    /// Engine [default: that of weft]
    #[arg(long)]
    engine: Option<String>,
}

impl Site {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Site::Bare => "bare",
            Site::Typed => "typed",
        }
    }
}

/// Runs a site until it is told to stop, or until the bench that started it has ended.
pub(crate) fn run(options: &SiteArgs) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    limits::raise_files()?;
    match options.site {
        Site::Bare => serve(options, bare),
        Site::Typed => serve(options, routes(typed)),
    }
    .map_err(|error| Failure::step(options.site.name(), error))
}

fn serve(options: &SiteArgs, handler: impl Handler) -> weftwork::Result<()> {
    let mut server = Server::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, options.port))?;
    if let Some(engine) = &options.engine {
        server = server.engine(engine.parse::<Engine>()?);
    }
    let signals = Signals::install()?;
    server.start(handler)?.wait(signals)?;
    Ok(())
}

fn bare(_: &mut Request) -> &'static str {
    ANSWER
}

fn typed(route: Hundred, _: &mut Request) -> &'static str {
    // The compiler would not make a value that is not used.
    black_box(&route);
    ANSWER
}

#[cfg(test)]
mod tests {
    use weftwork::{Routes, TestClient};

    use super::*;
    use crate::workloads::ROUTER;

    #[test]
    fn a_hundred_routes() {
        assert_eq!(Hundred::ROUTES.len(), 100);
    }

    #[test]
    fn both_answer_the_same_bytes() {
        for workload in ROUTER.iter() {
            let request = format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", workload.group().path);
            let [bare, typed] = [TestClient::new(bare), TestClient::new(routes(typed))].map(|client| {
                let mut connection = client.connect();
                connection.send(&request);
                String::from_utf8(connection.received()).unwrap()
            });
            assert!(bare.starts_with("HTTP/1.1 200 OK\r\n") && bare.ends_with("\r\n\r\nOK"), "{bare}");
            assert_eq!(bare, typed, "{request}");
        }
    }

    #[test]
    fn only_one_of_them_knows_paths() {
        assert_eq!(TestClient::new(bare).get("/nothing").send().status, 200);
        assert_eq!(TestClient::new(routes(typed)).get("/nothing").send().status, 404);
    }
}
