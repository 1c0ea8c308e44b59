//! What has a process, with all its descendants, used so far? Read from /proc: CPU, context switches,
//! resident memory.

use std::fs;

/// CPU and switches of a process tree since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// utime + stime, with that of reaped children.
    pub(crate) ticks: u64,
    /// Context switches of the threads that live; what ended threads did is not kept by the kernel.
    pub(crate) switches: u64,
}

/// The fields of /proc/PID/stat that are used here (proc_pid_stat(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    ticks: u64,
}

impl Usage {
    pub(crate) fn of(pid: u32) -> Self {
        tree(pid).into_iter().fold(Usage::default(), |sum, pid| Usage {
            ticks: sum.ticks + stat(pid).map_or(0, |stat| stat.ticks),
            switches: sum.switches + switches(pid),
        })
    }

    /// CPU since `before`, in microseconds.
    pub(crate) fn cpu_us_since(&self, before: &Usage) -> f64 {
        ticks_us(self.ticks.saturating_sub(before.ticks))
    }
}

/// Ticks of /proc in microseconds.
pub(crate) fn ticks_us(ticks: u64) -> f64 {
    ticks as f64 * 1e6 / rustix::param::clock_ticks_per_second() as f64
}

/// Ticks that a core has been busy since boot, with whatever; 0 if it is not there.
pub(crate) fn core_busy_ticks(core: usize) -> u64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    parse_core(&text, core).unwrap_or(0)
}

/// The line of a core in /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal (proc_stat(5)).
fn parse_core(text: &str, core: usize) -> Option<u64> {
    let name = format!("cpu{core} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&name))?;
    let ticks: Vec<u64> = line.split_ascii_whitespace().map_while(|field| field.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = ticks[..] else { return None };
    Some(user + nice + system + irq + softirq + steal)
}

/// A process and its descendants.
pub(crate) fn tree(root: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = pids("/proc").filter_map(|pid| Some((pid, stat(pid)?.parent))).collect();
    let mut tree = vec![root];
    let mut at = 0;
    while let Some(&parent) = tree.get(at) {
        tree.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| pid));
        at += 1;
    }
    tree
}

/// Resident bytes of a process tree. Pages shared within the tree count once for each process.
pub(crate) fn resident_bytes(root: u32) -> u64 {
    tree(root)
        .into_iter()
        .filter_map(|pid| {
            // Exact, where the counters of /proc/PID/status lag behind by some pages for each thread.
            let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
            Some(field(&text, "Rss:")? * 1024)
        })
        .sum()
}

/// How large a process tree is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peak {
    /// Resident bytes of each process at their highest, in sum.
    pub(crate) bytes: u64,
    /// Threads now.
    pub(crate) threads: u64,
}

impl Peak {
    pub(crate) fn of(root: u32) -> Self {
        tree(root).into_iter().fold(Peak::default(), |sum, pid| {
            let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            Peak {
                bytes: sum.bytes + field(&text, "VmHWM:").unwrap_or(0) * 1024,
                threads: sum.threads + field(&text, "Threads:").unwrap_or(0),
            }
        })
    }
}

fn pids(directory: &str) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn switches(pid: u32) -> u64 {
    let tasks = format!("/proc/{pid}/task");
    pids(&tasks)
        .filter_map(|tid| {
            let text = fs::read_to_string(format!("{tasks}/{tid}/status")).ok()?;
            Some(field(&text, "voluntary_ctxt_switches:")? + field(&text, "nonvoluntary_ctxt_switches:")?)
        })
        .sum()
}

/// The command's name is in parentheses and may hold anything, parentheses too: fields count from the last.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, after) = text.rsplit_once(')')?;
    let fields: Vec<&str> = after.split_ascii_whitespace().collect();
    // After the name comes field 3; ppid is 4, utime to cstime are 14 to 17.
    let parent = fields.get(1)?.parse().ok()?;
    let times = fields.get(11..15)?.iter();
    let ticks = times.map(|time| time.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(Stat { parent, ticks })
}

/// The number after a name at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests;
