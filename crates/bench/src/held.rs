//! Do ten thousand clients get their answers whose handlers all wait at once, and what does each of them cost?

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::crowd::{CrowdOptions, Crowded};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::load::idle::{read_answer, source};
use crate::load::probe::connect;

pub(crate) const HELP: &str = "\
Handlers that wait, for all clients at once: whether all are answered, and what a client costs meanwhile.

Usage: weftwork-bench held [OPTIONS]

Options:
  --clients N          clients, each with one request that waits [10000]
  --seconds S          how long a handler waits, by weftwork::sleep [10]
  --engine ENGINE      engine of the server [fibers:2]
  --weft PATH          measure this binary instead of building weftwork-cli
  --cores SERVER,LOAD  cores to pin to [0,1]
  -h, --help           this text

Fails where a client has no answer, or another than 200.
";

/// How long after its time an answer may come.
const LATE_MAX: Duration = Duration::from_secs(10);

pub(crate) fn defaults() -> CrowdOptions {
    CrowdOptions {
        time: Duration::from_secs(10),
        engine: Some("fibers:2".to_owned()),
        ..CrowdOptions::default()
    }
}

pub(crate) fn run(options: &CrowdOptions) -> Result<()> {
    let mut crowded = Crowded::start(options)?;
    let path = format!("/wait?ms={}", options.time.as_millis());
    let begun = Instant::now();
    let mut clients = ask(crowded.server.port, options.clients, &path)?;
    let asked = begun.elapsed();
    // Half of what is left, for the last ones to come into their handlers.
    let Some(rest) = options.time.checked_sub(asked) else {
        let message =
            format!("--seconds: the last client came after {asked:.1?}, when the first was answered");
        return Err(Failure::Usage(message));
    };
    interrupt::sleep(rest / 2)?;
    let cost = crowded.cost(options.clients)?;
    let answered = answers(&mut clients, begun + asked + options.time + LATE_MAX)?;
    println!("{options}");
    println!("{cost}");
    println!("answers          {answered} right, {} not", options.clients - answered);
    println!("last answer      {:.1?} after the first was asked for", begun.elapsed());
    match answered == options.clients {
        true => Ok(()),
        false => Err(Failure::Run("not every client was answered".to_owned())),
    }
}

fn ask(port: u16, count: usize, path: &str) -> Result<Vec<TcpStream>> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
    let mut clients = Vec::with_capacity(count);
    for at in 0..count {
        interrupt::check()?;
        let step = |error| Failure::step(format!("client {at} of {count}"), error);
        let mut stream = connect(port, source(at)).map_err(step)?;
        stream.write_all(request.as_bytes()).map_err(step)?;
        clients.push(stream);
    }
    Ok(clients)
}

/// How many have the right one by then.
fn answers(clients: &mut [TcpStream], until: Instant) -> Result<usize> {
    let mut right = 0;
    for client in clients {
        interrupt::check()?;
        let left = until.saturating_duration_since(Instant::now());
        client.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        right += usize::from(read_answer(client).unwrap_or(false));
    }
    Ok(right)
}
