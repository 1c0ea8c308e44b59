//! The outputs of a document: tables for the terminal, the page docs/benchmarks.md, and its charts.

pub(crate) mod charts;
mod markdown;
mod standing;
pub(crate) mod table;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::Path;

use crate::failure::{Failure, Result};
use crate::results::Results;

pub(crate) use standing::{counts, decides};

/// Writes the page, and the charts to a folder of its name without the extension.
pub(crate) fn pages(results: &Results, path: &Path) -> Result<()> {
    write(path, &markdown::markdown(results))?;
    let folder = path.with_extension("");
    fs::create_dir_all(&folder).map_err(|error| Failure::step(folder.display(), error))?;
    for chart in charts::charts(results) {
        write(&folder.join(chart.file), &chart.draw(results)?)?;
    }
    Ok(())
}

pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| Failure::step(path.display(), error))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}
