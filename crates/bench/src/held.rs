//! Whether ten thousand clients get their answers whose handlers all wait at once, and what each of them costs.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::clients::{ClientsArgs, LoadedServer};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::load::idle::read_answer;

/// The engine, unless another is given.
const ENGINE: &str = "fibers:2";
/// How long after its time an answer may come.
const LATE_MAX: Duration = Duration::from_secs(10);

/// Fails if a client has no answer, or another one than 200.
pub(crate) fn run(args: &ClientsArgs) -> Result<()> {
    let time = Duration::from_secs(args.seconds.unwrap_or(10));
    let mut loaded = LoadedServer::start(args, Some(ENGINE))?;
    let port = loaded.server.port;
    let request = format!("GET /wait?ms={} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n", time.as_millis());
    let begun = Instant::now();
    let mut clients = Vec::with_capacity(args.clients);
    args.connect(port, |_, mut stream| {
        stream.write_all(request.as_bytes())?;
        clients.push(stream);
        Ok(())
    })?;
    let asked = begun.elapsed();
    // Half of the rest, for the last clients to come into their handlers.
    let Some(rest) = time.checked_sub(asked) else {
        let why = "--seconds: the last client came when the first was answered, after";
        return Err(Failure::Usage(format!("{why} {asked:.1?}")));
    };
    interrupt::sleep(rest / 2)?;
    println!("{}", loaded.cost(args.clients)?);
    let answered = answers(&mut clients, begun + asked + time + LATE_MAX)?;
    println!("answers          {answered} right, {} not", args.clients - answered);
    println!("last answer      {:.1?} after the first was asked for", begun.elapsed());
    let is_well = answered == args.clients;
    is_well.then_some(()).ok_or_else(|| Failure::Run("not every client was answered".to_owned()))
}

/// Counts the right answers that have come by then.
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
