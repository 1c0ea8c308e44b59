//! Texts that `weft engines`, `weft man` and `weft completions` print.

use std::fmt::Write;

use clap_complete::Shell;
use clap_mangen::Man;
use weftwork::ENGINES;

use crate::args::Usage;
use crate::command::{command, man};

/// Returns the text of `weft engines`.
pub(crate) fn engines() -> String {
    let mut text =
        String::from("Engines, as --engine and WEFT_ENGINE accept them. The first is the default.\n");
    for engine in ENGINES {
        // Writing to a String does not fail.
        let _ = write!(
            text,
            "\n  {}\n    for           {}\n    who waits     {}\n    when blocked  {}\n",
            engine.usage, engine.best_for, engine.waits, engine.blocked
        );
    }
    text
}

/// Returns the completion script for a shell.
pub(crate) fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "weft", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Returns the manual page, in roff.
pub(crate) fn manual() -> Result<String, Usage> {
    let mut page = Vec::new();
    let man = Man::new(man()).manual("Weftwork");
    let parts = [
        Man::render_title,
        Man::render_name_section,
        Man::render_synopsis_section,
        Man::render_description_section,
        Man::render_options_section,
    ];
    for render in parts {
        render(&man, &mut page).map_err(|error| Usage(error.to_string()))?;
    }
    Ok(String::from_utf8_lossy(&page).into_owned())
}
