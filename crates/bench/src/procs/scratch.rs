//! A directory of its own for the configurations and logs of one run, which is removed at its end.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::{env, process};

use crate::failure::{Failure, Result};

#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Result<Self> {
        let path = env::temp_dir().join(format!("weftwork-bench-{}", process::id()));
        // Fails if it exists: a directory of another program is never used, or removed.
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| Failure::step(path.display(), error))?;
        Ok(Scratch(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
