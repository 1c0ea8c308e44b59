//! HTTP/2 over TLS: the CPU that a request costs servers that have the load of `h2load` in turn.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;

use crate::args::{GridArgs, ServerArgs, count};
use crate::failure::{Failure, Result};
use crate::grid;
use crate::interrupt;
use crate::procs::server::Server;
use crate::procs::usage::Usage;
use crate::report::table::table;
use crate::results::median;
use crate::subject::Subject;
use crate::workloads::{Ask, TLS, Workload};

#[derive(Args, Debug)]
pub(crate) struct Http2Args {
    /// Turns of each server
    #[arg(long, value_name = "N", default_value = "5", value_parser = count(1, 100))]
    rounds: usize,
    /// Loads [default: all]
    #[arg(long, value_name = "A,B,..", value_delimiter = ',')]
    only: Vec<String>,
    /// As in quick, and nghttpd [default: weft, nginx, h2o, nghttpd, hyper, go-nethttp]
    #[arg(long, value_name = "A,B,..", value_delimiter = ',')]
    subjects: Vec<Subject>,
    #[command(flatten)]
    server: ServerArgs,
}

const SUBJECTS: [&str; 6] = ["weft", "nginx", "h2o", "nghttpd", "hyper", "go-nethttp"];
/// Servers of others that take bodies, at `/echo` and `/upload`.
const UPLOADS: [&str; 2] = ["hyper", "go-nethttp"];
/// The server of others that has `/bytes`.
const MEMORY: &str = "hyper";
const UPLOAD_BYTES: usize = 1 << 20;

/// What `h2load` asks for.
#[derive(Debug)]
struct Load {
    name: &'static str,
    /// The paths that each client asks for, over and over, and how often each.
    paths: &'static [(&'static str, usize)],
    clients: usize,
    /// Requests in progress on each connection.
    streams: usize,
    /// Requests of a turn: about a second of the quicker servers.
    requests: usize,
    is_upload: bool,
    is_http1: bool,
    /// Only weft: servers that a handler stops are not compared, and the load is compared with this one.
    compared_with: Option<&'static str>,
}

const fn load(
    name: &'static str,
    paths: &'static [(&'static str, usize)],
    [clients, streams, requests]: [usize; 3],
) -> Load {
    Load { name, paths, clients, streams, requests, is_upload: false, is_http1: false, compared_with: None }
}

/// Requests that block beside others answer with 202: see [`p99_ms`].
const LOADS: &[Load] = &[
    load("64x1", &[("/health", 1)], [64, 1, 60_000]),
    load("16x32", &[("/health", 1)], [16, 32, 200_000]),
    load("1x100", &[("/health", 1)], [1, 100, 200_000]),
    load("16k", &[("/16k.bin", 1)], [8, 8, 40_000]),
    load("1m", &[("/1m.bin", 1)], [8, 4, 1_000]),
    load("1m-memory", &[("/bytes?n=1048576", 1)], [8, 4, 1_000]),
    Load { is_upload: true, ..load("upload-1m", &[("/upload", 1)], [4, 2, 400]) },
    Load { is_upload: true, ..load("echo-1m", &[("/echo", 1)], [4, 2, 400]) },
    load("quick", &[("/slow?ms=0", 1)], [16, 32, 200_000]),
    Load {
        compared_with: Some("16x32"),
        ..load("blocks", &[("/health", 99), ("/slow?ms=1&accepted=true", 1)], [16, 32, 200_000])
    },
    Load {
        compared_with: Some("quick"),
        ..load("blocks-same-route", &[("/slow?ms=0", 99), ("/slow?ms=1&accepted=true", 1)], [16, 32, 200_000])
    },
    // One request blocks most of the time, beside 99 quick ones.
    Load {
        compared_with: Some("1x100"),
        ..load("one-blocked", &[("/slow?ms=1000&accepted=true", 1), ("/health", 59_999)], [1, 100, 180_000])
    },
    Load { is_http1: true, ..load("all-block-http1", &[("/slow?ms=1", 1)], [100, 1, 50_000]) },
    Load {
        compared_with: Some("all-block-http1"),
        ..load("all-block", &[("/slow?ms=1", 1)], [1, 100, 50_000])
    },
];

impl Load {
    fn title(&self) -> String {
        let paths: Vec<String> = self.paths.iter().map(|(path, times)| format!("{times} x {path}")).collect();
        let body = if self.is_upload { " with a body of 1 MiB" } else { "" };
        let protocol = if self.is_http1 { " over HTTP/1.1" } else { "" };
        format!(
            "{}{body}{protocol}, {} connections with {} requests each",
            paths.join(" and "),
            self.clients,
            self.streams
        )
    }

    /// The workload of `tls` whose server has these paths.
    fn workload(&self) -> Option<&'static Workload> {
        let ask = if self.paths[0].0.ends_with(".bin") { Ask::File } else { Ask::Health };
        TLS.iter().find(|workload| workload.ask == ask)
    }

    fn takes(&self, subject: &Subject) -> bool {
        let name = subject.to_string();
        let is_ours = subject.is_weft();
        let has = |start: &str| self.paths.iter().any(|(path, _)| path.starts_with(start));
        let takes_bodies = UPLOADS.contains(&name.as_str());
        is_ours || !has("/slow") && (!self.is_upload || takes_bodies) && (!has("/bytes") || name == MEMORY)
    }
}

/// What one turn has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Turn {
    succeeded: u64,
    failed: u64,
    per_s: f64,
    p99_ms: f64,
    cpu_us: f64,
}

pub(crate) fn run(args: &Http2Args) -> Result<()> {
    let loads: Vec<&Load> = LOADS
        .iter()
        .filter(|load| args.only.is_empty() || args.only.iter().any(|name| name == load.name))
        .collect();
    if loads.is_empty() {
        let names: Vec<&str> = LOADS.iter().map(|load| load.name).collect();
        return Err(Failure::Usage(format!("no such load: {}", names.join(", "))));
    }
    let mut subjects = args.subjects.clone();
    if subjects.is_empty() {
        subjects = SUBJECTS.into_iter().filter_map(|name| name.parse().ok()).collect();
    }
    let workloads: Vec<&Workload> = loads.iter().filter_map(|load| load.workload()).collect();
    let grid_args = GridArgs { server: args.server.clone(), ..GridArgs::default() };
    let mut peers = grid::prepare(&grid_args, &subjects, &workloads)?;
    let body = peers.scratch.path().join("upload");
    fs::write(&body, vec![b'x'; UPLOAD_BYTES])?;
    let mut known: BTreeMap<(&str, String), Turn> = BTreeMap::new();
    for load in loads {
        let Some(workload) = load.workload() else { continue };
        let able: Vec<Subject> =
            peers.subjects.iter().filter(|subject| load.takes(subject)).cloned().collect();
        let mut servers = able
            .iter()
            .map(|subject| Ok((subject.to_string(), peers.start(subject, workload)?, Vec::new())))
            .collect::<Result<Vec<(String, Server, Vec<Turn>)>>>()?;
        for round in 0..args.rounds {
            let count = servers.len();
            for at in 0..count {
                interrupt::check()?;
                let (_, server, turns) = &mut servers[(round + at) % count];
                let turn = take_turn(load, server, &body)?;
                turns.push(turn);
                server.check()?;
            }
        }
        let text = tables(load, &servers, &mut known);
        io::stdout().write_all(text.as_bytes())?;
    }
    Ok(())
}

fn take_turn(load: &Load, server: &Server, body: &Path) -> Result<Turn> {
    let address = format!("https://127.0.0.1:{}", server.port);
    let list: PathBuf = body.with_extension("list");
    let urls =
        load.paths.iter().flat_map(|(path, times)| std::iter::repeat_n(format!("{address}{path}\n"), *times));
    fs::write(&list, urls.collect::<String>())?;
    let mut command = Command::new("h2load");
    command.args([
        "-n",
        &load.requests.to_string(),
        "-c",
        &load.clients.to_string(),
        "-m",
        &load.streams.to_string(),
    ]);
    command.arg("-i").arg(&list).stdin(Stdio::null());
    if load.is_upload {
        command.arg("-d").arg(body);
    }
    if load.is_http1 {
        command.arg("--h1");
    }
    // h2load adds to a file that is there.
    let log = body.with_extension("log");
    match fs::remove_file(&log) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => command.arg("--log-file").arg(&log),
    };
    let before = Usage::of(server.pid());
    let output = command
        .output()
        .map_err(|error| Failure::step("h2load (Debian: apt-get install nghttp2-client)", error))?;
    let cpu_us = Usage::of(server.pid()).cpu_us_since(&before);
    let said = String::from_utf8_lossy(&output.stdout);
    let protocol = if load.is_http1 { "http/1.1" } else { "h2" };
    let turn =
        read(&said, protocol).ok_or_else(|| Failure::Run(format!("h2load: {}\n{said}", output.status)))?;
    let p99_ms = p99_ms(&fs::read_to_string(&log)?);
    Ok(Turn { cpu_us: cpu_us / turn.succeeded.max(1) as f64, p99_ms, ..turn })
}

/// Returns the 99th percentile of the log of `h2load`: lines of start, status, and microseconds. Requests that block beside others
/// have another status than 200, and do not count.
fn p99_ms(log: &str) -> f64 {
    let counts = log.lines().filter_map(|line| line.split_once("\t200\t"));
    let mut times: Vec<u64> = counts.filter_map(|(_, us)| us.trim().parse().ok()).collect();
    times.sort_unstable();
    times.get(times.len() * 99 / 100).map_or(f64::NAN, |us| *us as f64 / 1000.0)
}

/// Reads what `h2load` says. None: it has not finished, or did not speak the protocol.
fn read(said: &str, protocol: &str) -> Option<Turn> {
    said.lines().find(|line| line.strip_prefix("Application protocol: ") == Some(protocol))?;
    let requests = said.lines().find(|line| line.starts_with("requests: "))?;
    let codes = said.lines().find(|line| line.starts_with("status codes: "))?;
    let of = |line: &str, what: &str| {
        let part = line.split([':', ',']).find_map(|part| part.trim().strip_suffix(what))?;
        part.trim().parse::<u64>().ok()
    };
    let total = of(requests, "total")?;
    // An error is an answer, too, and cheaper than the right one.
    let succeeded = of(requests, "succeeded")?.min(of(codes, "2xx")?);
    let finished = said.lines().find_map(|line| line.strip_prefix("finished in "))?;
    let per_s = finished.split(", ").find_map(|part| part.strip_suffix(" req/s"))?.parse().ok()?;
    Some(Turn { succeeded, failed: total - succeeded, per_s, p99_ms: f64::NAN, cpu_us: 0.0 })
}

fn tables<'l>(
    load: &'l Load,
    servers: &[(String, Server, Vec<Turn>)],
    known: &mut BTreeMap<(&'l str, String), Turn>,
) -> String {
    for (name, _, turns) in servers {
        known.insert((load.name, name.clone()), medians(turns));
    }
    let first = servers.iter().map(|(_, _, turns)| medians(turns).cpu_us).fold(f64::INFINITY, f64::min);
    let mut head = vec!["subject", "CPU us", "x first", "requests/s", "p99 ms", "errors"];
    if load.compared_with.is_some() {
        head.extend(["x CPU", "x requests/s", "x p99"]);
    }
    let rows = servers.iter().map(|(name, _, turns)| {
        let ours = medians(turns);
        let errors: u64 = turns.iter().map(|turn| turn.failed).sum();
        let mut row = vec![
            name.clone(),
            format!("{:.2}", ours.cpu_us),
            format!("{:.3}", ours.cpu_us / first),
            format!("{:.0}", ours.per_s),
            format!("{:.2}", ours.p99_ms),
            errors.to_string(),
        ];
        if let Some(other) = load.compared_with {
            let base = known.get(&(other, name.clone())).copied().unwrap_or_else(|| medians(&[]));
            let ratios = [ours.cpu_us / base.cpu_us, ours.per_s / base.per_s, ours.p99_ms / base.p99_ms];
            row.extend(ratios.map(|ratio| format!("{ratio:.3}")));
        }
        row
    });
    let compared = load.compared_with.map(|other| format!(" (beside {other})")).unwrap_or_default();
    let head = head.into_iter().map(str::to_owned).collect();
    format!("{}: {}{compared}\n{}\n", load.name, load.title(), table(head, rows))
}

/// Returns the median of each figure. It is no number without turns.
fn medians(turns: &[Turn]) -> Turn {
    let of = |figure: fn(&Turn) -> f64| median(turns.iter().map(figure).collect()).unwrap_or(f64::NAN);
    Turn {
        per_s: of(|turn| turn.per_s),
        p99_ms: of(|turn| turn.p99_ms),
        cpu_us: of(|turn| turn.cpu_us),
        ..Turn::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "TLS Protocol: TLSv1.3\nApplication protocol: h2\n\nfinished in 1.23s, 40650.41 req/s, 4.65MB/s\n\
        requests: 50000 total, 50000 started, 50000 done, 49990 succeeded, 10 failed, 0 errored, 0 timeout\n\
        status codes: 49980 2xx, 0 3xx, 10 4xx, 10 5xx\n";

    #[test]
    fn what_h2load_says_is_read() {
        let turn = read(SAID, "h2").unwrap();
        assert_eq!((turn.succeeded, turn.failed, turn.per_s), (49_980, 20, 40_650.41));
        assert!(read(&SAID.replace(": h2", ": http/1.1"), "h2").is_none());
        assert!(read(&SAID.replace(": h2", ": http/1.1"), "http/1.1").is_some());
        assert!(read(&SAID.replace("finished in", ""), "h2").is_none());
    }

    #[test]
    fn the_99th_percentile_of_a_log() {
        let log: String = (1..=200).map(|us| format!("1700000000\t200\t{us}000\n")).collect();
        let blocked = "1700000000\t202\t9000000\n".repeat(100);
        assert_eq!(p99_ms(&(blocked + &log)), 199.0);
        assert!(p99_ms("").is_nan());
    }

    #[test]
    fn each_load_has_a_server_for_its_paths() {
        assert!(LOADS.iter().all(|load| load.workload().is_some()));
        let of = |name: &str| name.parse::<Subject>().unwrap();
        for (load, count) in [(0, 6), (5, 2), (6, 3), (7, 3), (9, 1)] {
            assert_eq!(SUBJECTS.iter().filter(|name| LOADS[load].takes(&of(name))).count(), count);
        }
    }
}
