//! How is the whole grid run? As `quick` is, with more of everything, and with pages at the end.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use crate::args::{FullOptions, GridOptions};
use crate::failure::{Failure, Result};
use crate::grid;
use crate::honesty;
use crate::page;
use crate::peers::Peers;
use crate::report::table;
use crate::results::{Contestant, Results, collect};
use crate::subject::Subject;
use crate::workloads::QUICK;

pub(crate) fn run(options: &FullOptions) -> Result<()> {
    let mut peers = grid::prepare(&options.grid)?;
    let contestants = contestants(&mut peers)?;
    let run = grid::measure_all(&options.grid, &mut peers, &contestants)?;
    io::stdout().write_all(table::tables(&run).as_bytes())?;
    let results = collect(&run, &options.grid, contestants, peers.left_out);
    if let Some(path) = &options.json {
        write(path, &results.json()?)?;
    }
    pages(&results, options.html.as_deref(), options.markdown.as_deref())
}

/// Makes the pages that are wanted.
pub(crate) fn pages(results: &Results, html: Option<&Path>, markdown: Option<&Path>) -> Result<()> {
    if let Some(path) = html {
        write(path, &page::html(results))?;
    }
    if let Some(path) = markdown {
        write(path, &page::markdown(results))?;
        // The text shows the charts of the whole; the page has one for each column.
        let folder = path.with_extension("");
        fs::create_dir_all(&folder).map_err(|error| Failure::step(folder.display(), error))?;
        for chart in page::overviews(results) {
            write(&folder.join(&chart.file), &chart.svg)?;
        }
    }
    Ok(())
}

pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| Failure::step(path.display(), error))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}

/// Runs what `quick --json` wants: the same document, without asking for manners.
pub(crate) fn quick_json(run: &crate::report::Run, options: &GridOptions, peers: &Peers) -> Result<String> {
    let contestants = peers.subjects.iter().map(|subject| contestant(subject, peers)).collect();
    collect(run, options, contestants, peers.left_out.clone()).json()
}

fn contestants(peers: &mut Peers) -> Result<Vec<Contestant>> {
    let subjects = peers.subjects.clone();
    let mut contestants = Vec::new();
    for subject in &subjects {
        let mut contestant = contestant(subject, peers);
        match peers.start(subject, &QUICK[0]) {
            Ok(server) => {
                let broken = honesty::broken(server.port, subject)?;
                contestant.broken = broken.into_iter().map(str::to_owned).collect();
            }
            Err(Failure::Run(message)) => eprintln!("note: {subject}: {message}"),
            Err(other) => return Err(other),
        }
        let marks = if contestant.broken.is_empty() {
            "keeps the rules".to_owned()
        } else {
            contestant.broken.join("; ")
        };
        eprintln!("{:<16} {marks}", contestant.name);
        contestants.push(contestant);
    }
    Ok(contestants)
}

fn contestant(subject: &Subject, peers: &Peers) -> Contestant {
    let name = subject.to_string();
    let version = peers.versions.get(&name).cloned().unwrap_or_default();
    let about = match subject {
        Subject::Floor => {
            "hand-written: reads, and answers with canned bytes; parses nothing, limits nothing"
        }
        Subject::FloorSpawn => "the same, a new thread for each connection",
        Subject::Weft { .. } => {
            "`weft demo`, for files `weft serve`, as they come: every limit and deadline on; what waits without blocking does so by `Response::with_delay`, on \
             fibers in the handler, by `weftwork::sleep`"
        }
        Subject::Peer(peer) => peer.about,
        Subject::Site(site) => site.about(),
    };
    Contestant { name, version, about: about.to_owned(), broken: Vec::new() }
}
