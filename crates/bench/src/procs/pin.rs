//! On which core does what run? Affinity is inherited over fork, so a server is pinned by pinning this
//! thread while it is started.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::failure::{Failure, Result};

/// The core of the servers and the core of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cores {
    pub(crate) server: usize,
    pub(crate) load: usize,
}

impl Cores {
    /// Checks that both exist; one core for both is allowed, and noted.
    pub(crate) fn check(self) -> Result<()> {
        let allowed = sched_getaffinity(None)?;
        for core in [self.server, self.load] {
            if core >= CpuSet::MAX_CPU || !allowed.is_set(core) {
                let hint = "see --cores; with one core use --cores 0,0";
                return Err(Failure::Usage(format!("core {core} is not there for this process ({hint})")));
            }
        }
        if self.server == self.load {
            eprintln!("note: server and load share core {}: rates say little, CPU still does", self.load);
        }
        Ok(())
    }
}

/// Pins this thread, and what it starts from now on.
pub(crate) fn pin(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).map_err(|error| Failure::step(format!("pinning to core {core}"), error))
}
