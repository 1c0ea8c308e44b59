//! How is the whole grid run? As `quick` is, with more of everything, and with pages at the end.

use std::fs::{self, OpenOptions};
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
    check_outputs(options)?;
    let mut peers = grid::prepare(&options.grid)?;
    let contestants = contestants(&mut peers)?;
    let run = grid::measure_all(&options.grid, &mut peers, &contestants)?;
    io::stdout().write_all(table::tables(&run).as_bytes())?;
    let results = collect(&run, &options.grid, contestants, peers.left_out);
    if let Some(path) = &options.json {
        write(path, &results.json()?)?;
    }
    pages(&results, options.html.as_deref(), options.markdown.as_deref())?;
    grid::check_measured(&run)
}

/// Before the run: after it, all that was measured would be lost.
fn check_outputs(options: &FullOptions) -> Result<()> {
    let FullOptions { json, html, markdown, .. } = options;
    for (option, path) in [("--json", json), ("--html", html), ("--markdown", markdown)] {
        let Some(path) = path else { continue };
        check_output(path).map_err(|error| {
            let path = path.display();
            Failure::Usage(format!("{option} {path}: {error}: give the path of a file that can be written"))
        })?;
    }
    // It would be the page's own name.
    match markdown {
        Some(path) if path.extension().is_none() => Err(Failure::Usage(format!(
            "--markdown {0}: the charts go to a folder of this name without its extension: say {0}.md",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// What is there stays as it is until there is something better.
fn check_output(path: &Path) -> io::Result<()> {
    let is_new = path.symlink_metadata().is_err();
    OpenOptions::new().append(true).create(true).open(path)?;
    if is_new { fs::remove_file(path) } else { Ok(()) }
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
        let asked = peers.start(subject, &QUICK[0]).and_then(|server| honesty::broken(server.port, subject));
        contestant.broken = broken(subject, asked)?;
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

/// Who cannot be asked is marked, and the others go on.
fn broken(subject: &Subject, asked: Result<Vec<&'static str>>) -> Result<Vec<String>> {
    match asked {
        Ok(broken) => Ok(broken.into_iter().map(str::to_owned).collect()),
        Err(Failure::Run(message)) => {
            eprintln!("note: {subject}: {message}");
            Ok(vec![format!("{}: {}", honesty::NO_ANSWER, message.lines().next().unwrap_or_default())])
        }
        Err(other) => Err(other),
    }
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::results::is_honest;
    use crate::workloads::GRID;

    /// One server that breaks off must not end the run of all, nor be first.
    #[test]
    fn who_does_not_answer_when_asked_is_marked() {
        let nginx: Subject = "nginx".parse().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let broken_of = |asked| broken(&nginx, asked).unwrap();
        let asked = broken_of(honesty::broken(port, &nginx));
        assert!(asked[0].starts_with("did not answer when asked for its manners: Connection refused"));
        let not_started = broken_of(Err(Failure::Run("nginx ended\nand its log".to_owned())));
        assert_eq!(not_started, ["did not answer when asked for its manners: nginx ended"]);
        assert!(matches!(broken(&nginx, Err(Failure::Interrupted)), Err(Failure::Interrupted)));
        for (broken, is_first) in [
            (asked, false),
            (not_started, false),
            (vec!["sends no Date".to_owned()], true),
            (Vec::new(), true),
        ] {
            let contestant = Contestant { name: "nginx".to_owned(), broken, ..Contestant::default() };
            assert_eq!(is_honest(&[contestant], "nginx"), is_first);
        }
    }

    #[test]
    fn what_cannot_be_written_is_said_before_the_run() {
        let folder = std::env::temp_dir().join(format!("weftwork-bench-outputs-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let check = |json: &str, markdown: &str| {
            let [json, markdown] = [json, markdown].map(|name| Some(folder.join(name)));
            let grid = GridOptions { workloads: GRID.iter().collect(), ..GridOptions::default() };
            check_outputs(&FullOptions { grid, json, html: None, markdown })
        };
        let says = |checked| match checked {
            Err(Failure::Usage(message)) => message,
            other => panic!("{other:?}"),
        };
        fs::write(folder.join("old.json"), "kept").unwrap();
        assert!(check("old.json", "new.md").is_ok());
        assert_eq!(fs::read_to_string(folder.join("old.json")).unwrap(), "kept");
        assert!(!folder.join("new.md").exists(), "a run that fails leaves nothing");
        let message = says(check("nowhere/run.json", "new.md"));
        let path = folder.join("nowhere/run.json");
        assert!(message.starts_with(&format!("--json {}: ", path.display())), "{message}");
        assert!(says(check("old.json", "")).starts_with("--markdown "), "a folder");
        assert!(says(check("old.json", "page")).contains("page.md"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
