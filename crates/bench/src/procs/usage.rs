//! The usage of a process so far, with all its descendants: CPU, context switches, resident memory.

use procfs::process::{Process, all_processes};
use procfs::{CurrentSI, KernelStats};

/// CPU and switches of a process tree since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// utime + stime, with that of reaped children.
    pub(crate) ticks: u64,
    /// Context switches of the threads that live. The kernel does not keep those of ended threads.
    pub(crate) switches: u64,
}

impl Usage {
    pub(crate) fn of(pid: u32) -> Self {
        let processes = tree(pid);
        let ticks = |process: &Process| {
            let stat = process.stat().ok()?;
            Some(stat.utime + stat.stime + stat.cutime.max(0) as u64 + stat.cstime.max(0) as u64)
        };
        Usage {
            ticks: processes.iter().filter_map(ticks).sum(),
            switches: processes.iter().map(switches).sum(),
        }
    }

    /// Returns the CPU since `before`, in microseconds.
    pub(crate) fn cpu_us_since(&self, before: &Usage) -> f64 {
        ticks_us(self.ticks.saturating_sub(before.ticks))
    }
}

/// Converts ticks of /proc to microseconds.
pub(crate) fn ticks_us(ticks: u64) -> f64 {
    ticks as f64 * 1e6 / procfs::ticks_per_second() as f64
}

/// Returns the ticks that a core has been busy since boot. 0: there is no such core.
pub(crate) fn core_busy_ticks(core: usize) -> u64 {
    let Ok(stats) = KernelStats::current() else { return 0 };
    stats.cpu_time.get(core).map_or(0, |time| {
        let more = [time.irq, time.softirq, time.steal].into_iter().flatten().sum::<u64>();
        time.user + time.nice + time.system + more
    })
}

/// Returns a process and its descendants.
pub(crate) fn tree(root: u32) -> Vec<Process> {
    let Ok(root) = Process::new(root as i32) else { return Vec::new() };
    let parent = |process: Process| Some((process.stat().ok()?.ppid, process));
    let mut others: Vec<(i32, Process)> =
        all_processes().into_iter().flatten().flatten().filter_map(parent).collect();
    let mut tree = vec![root];
    let mut at = 0;
    while at < tree.len() {
        let pid = tree[at].pid;
        tree.extend(others.extract_if(.., |(parent, _)| *parent == pid).map(|(_, process)| process));
        at += 1;
    }
    tree
}

/// Returns the resident bytes of a process tree. Pages shared within the tree count once for each process.
pub fn resident_bytes(root: u32) -> u64 {
    // Exact, while the counters of /proc/PID/status lag behind by some pages for each thread.
    let resident = |process: Process| {
        let rollup = process.smaps_rollup().ok()?;
        rollup.memory_map_rollup.0.first()?.extension.map.get("Rss").copied()
    };
    tree(root).into_iter().filter_map(resident).sum()
}

/// The size of a process tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peak {
    /// Resident bytes of each process at their highest, in sum.
    pub(crate) bytes: u64,
    /// Threads now.
    pub(crate) threads: u64,
}

impl Peak {
    pub(crate) fn of(root: u32) -> Self {
        let statuses = tree(root).into_iter().filter_map(|process| process.status().ok());
        statuses.fold(Peak::default(), |sum, status| Peak {
            bytes: sum.bytes + status.vmhwm.unwrap_or(0) * 1024,
            threads: sum.threads + status.threads,
        })
    }
}

fn switches(process: &Process) -> u64 {
    let of_task = |task: procfs::process::Task| {
        let status = task.status().ok()?;
        Some(status.voluntary_ctxt_switches? + status.nonvoluntary_ctxt_switches?)
    };
    process.tasks().into_iter().flatten().flatten().filter_map(of_task).sum()
}

#[cfg(test)]
mod tests {
    use std::process;

    use super::*;

    #[test]
    fn this_process_is_there() {
        assert!(tree(process::id()).iter().any(|one| one.pid == process::id() as i32));
        assert!(resident_bytes(process::id()) > 1 << 20);
        assert!(Usage::of(process::id()).switches > 0);
        let peak = Peak::of(process::id());
        assert!(peak.bytes >= resident_bytes(process::id()) / 2 && peak.threads > 0);
        assert!(core_busy_ticks(0) > 0 && core_busy_ticks(1 << 20) == 0);
    }

    #[test]
    fn ticks_are_turned_into_microseconds() {
        let (before, after) = (Usage { ticks: 10, switches: 0 }, Usage { ticks: 210, switches: 0 });
        let per_second = procfs::ticks_per_second() as f64;
        assert_eq!(after.cpu_us_since(&before), 200.0 * 1e6 / per_second);
        assert_eq!(before.cpu_us_since(&after), 0.0);
    }
}
