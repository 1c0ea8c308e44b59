//! The limit of open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::failure::{Failure, Result};

/// Raises this process's limit of open files to the hard limit, also for its children. Returns the limit.
pub fn raise_files() -> Result<u64> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        .map_err(|error| Failure::step("raising the limit of open files", error))?;
    Ok(maximum.unwrap_or(u64::MAX))
}
