//! The same load by wrk: a second opinion on the generator, and the load if one thread cannot ask enough.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::Group;
use crate::failure::{Failure, Result};
use crate::procs::child::ChildGuard;

pub(crate) const PROGRAM: &str = "wrk";

/// What wrk prints, as far as it is used here.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct WrkReport {
    pub(crate) requests: f64,
    pub(crate) rate: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) errors: f64,
}

/// wrk sends the same short request again and again.
pub(crate) fn can(group: &Group) -> bool {
    let Group { body_bytes, browser, lots_max, range, .. } = group;
    *body_bytes == 0 && !browser && *lots_max == 0 && range.is_none()
}

/// Fails if it is not there, as every cell would.
pub(crate) fn check_installed(program: &str) -> Result<()> {
    // Its exit code says nothing: that of -v is 1.
    let run = Command::new(program)
        .arg("-v")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let install = "install it (apt-get install wrk), or leave the load to the bench: --load own";
    run.map_err(|error| Failure::Run(format!("{program} cannot be run: {error}: {install}")))?;
    Ok(())
}

/// Runs wrk to its end. The script that pipelines is written to `scratch`.
pub(crate) fn run(
    group: &Group,
    port: u16,
    time: Duration,
    threads: usize,
    scratch: &Path,
) -> Result<WrkReport> {
    let mut wrk = ChildGuard::spawn(command(group, port, time, threads, scratch)?, PROGRAM)?;
    let mut text = String::new();
    if let Some(output) = wrk.stdout() {
        output.read_to_string(&mut text)?;
    }
    parse(&text).ok_or_else(|| Failure::Run(format!("wrk said what is not understood:\n{text}")))
}

fn command(group: &Group, port: u16, time: Duration, threads: usize, scratch: &Path) -> Result<Command> {
    let mut command = Command::new(PROGRAM);
    // wrk takes whole seconds only.
    let seconds = time.as_secs_f64().ceil().max(1.0);
    let threads = even_threads(group.connections, threads);
    command.args([format!("-t{threads}"), "--latency".to_owned()]);
    command.args([format!("-c{}", group.connections), format!("-d{seconds}s")]);
    if group.close {
        command.args(["-H", "Connection: close"]);
    }
    if group.depth > 1 {
        let script = scratch.join("pipeline.lua");
        fs::write(&script, pipeline_script(group)).map_err(|error| Failure::step(script.display(), error))?;
        command.arg("-s").arg(script);
    }
    command.arg(format!("http://127.0.0.1:{port}{}", group.path));
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    Ok(command)
}

/// wrk gives each thread as many connections as all others: what does not divide would not be opened.
fn even_threads(connections: usize, threads: usize) -> usize {
    (1..=threads.min(connections)).rev().find(|threads| connections.is_multiple_of(*threads)).unwrap_or(1)
}

fn pipeline_script(group: &Group) -> String {
    format!(
        "init = function() lot = string.rep(wrk.format(\"GET\", \"{}\"), {}) end\n\
         request = function() return lot end\n",
        group.path, group.depth
    )
}

fn parse(text: &str) -> Option<WrkReport> {
    let mut report = WrkReport::default();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["50%", latency] => report.p50_ms = milliseconds(latency)?,
            ["99%", latency] => report.p99_ms = milliseconds(latency)?,
            [requests, "requests", "in", ..] => report.requests = requests.parse().ok()?,
            ["Requests/sec:", rate] => report.rate = rate.parse().ok()?,
            ["Non-2xx", "or", "3xx", "responses:", count] => report.errors += count.parse::<f64>().ok()?,
            ["Socket", "errors:", ref counts @ ..] => {
                let counts = counts.iter().filter_map(|word| word.trim_end_matches(',').parse::<f64>().ok());
                report.errors += counts.sum::<f64>();
            }
            _ => {}
        }
    }
    (report.requests > 0.0).then_some(report)
}

fn milliseconds(text: &str) -> Option<f64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let scale = match &text[digits.len()..] {
        "us" => 1e-3,
        "ms" => 1.0,
        "s" => 1e3,
        "m" => 6e4,
        _ => return None,
    };
    Some(digits.parse::<f64>().ok()? * scale)
}

#[cfg(test)]
mod tests;
