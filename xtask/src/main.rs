//! The tasks of this repository. `cargo xtask` lists them, `cargo xtask <name>` runs one.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod prose;
mod readme;
mod tidy;

const HELP: &str = "\
cargo xtask <command>

  tidy                check the house rules on every tracked file
  prose [PATH ...]    check the English of Markdown and comments, with details of the files under PATH
  readme <name>       print the commands of README.md that stand after <!-- name -->
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        ["prose", ref paths @ ..] => prose::run(&root(), paths),
        ["tidy"] => tidy::run(&root()),
        ["readme", name] => readme::run(&root(), name),
        _ => Err(format!("unknown command: {}\n\n{HELP}", words.join(" "))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the root of the repository, for a call from any folder. Cargo gives the path at run time. Worktrees that
/// share a target folder share this program, too, so the path of the build would be wrong.
fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let here = Path::new(&here);
    here.parent().unwrap_or(here).to_path_buf()
}
