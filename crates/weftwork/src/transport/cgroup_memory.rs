//! Reads how much memory the cgroups of this process leave, so that threads are not started until the kernel kills the process.
//!
//! The kernel counts only used pages. A file in its cache counts too, and gives way to other pages.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Memory that a thread uses before its handler uses any.
const THREAD_BYTES: u64 = 32 << 10;
/// Memory that threads leave, at most. Small cgroups leave a sixteenth.
const RESERVE_BYTES_MAX: u64 = 24 << 20;

/// Names of a version of cgroups.
#[derive(Debug, PartialEq)]
struct Names {
    /// Its directory below that of all cgroups.
    mount: &'static str,
    limit: &'static str,
    used: &'static str,
    /// Line of `memory.stat` with the bytes of files that nobody has used lately. The kernel frees them first.
    cached: &'static str,
}

const V1: Names = Names {
    mount: "memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cached: "total_inactive_file ",
};
const V2: Names = Names { mount: "", limit: "memory.max", used: "memory.current", cached: "inactive_file " };

/// A cgroup whose limit counts. The limit may be absent at times, because it may be changed.
#[derive(Debug, PartialEq)]
struct Level {
    directory: PathBuf,
    names: &'static Names,
}

/// Returns whether another thread leaves enough memory. Without a limit, or if a file cannot be read, it does.
pub(super) fn has_room() -> bool {
    threads_that_fit(of_process()).is_none_or(|threads| threads > 0)
}

/// Returns a warning if the memory does not suffice for all threads.
pub(super) fn caution(threads_max: usize) -> Option<String> {
    caution_of(of_process(), threads_max)
}

fn caution_of(levels: &[Level], threads_max: usize) -> Option<String> {
    let threads = threads_that_fit(levels)?;
    (threads < threads_max as u64).then(|| {
        format!(
            "the memory limit of the cgroup (docker --memory, MemoryMax of systemd, limits of Kubernetes) has room for about {threads} of \
             {threads_max} threads (threads_max): requests wait for those. Raise the limit, or lower threads_max"
        )
    })
}

/// Returns the cgroup of this process, and those above it.
fn of_process() -> &'static [Level] {
    static LEVELS: OnceLock<Vec<Level>> = OnceLock::new();
    LEVELS.get_or_init(|| {
        let lines = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        levels(&lines, Path::new("/sys/fs/cgroup"))
    })
}

/// Returns the cgroups that can have a limit. `lines`: as in `/proc/self/cgroup`.
fn levels(lines: &str, mount: &Path) -> Vec<Level> {
    lines.lines().flat_map(|line| levels_of_line(line, mount).unwrap_or_default()).collect()
}

/// Reads a line such as `0::/pod/app` (v2) or `4:memory:/pod/app` (v1). In a container, the directory may be that of the mount,
/// whatever the path is.
fn levels_of_line(line: &str, mount: &Path) -> Option<Vec<Level>> {
    let (controllers, path) = line.split_once(':')?.1.split_once(":/")?;
    let names = match controllers {
        "" => &V2,
        _ if controllers.split(',').any(|controller| controller == "memory") => &V1,
        _ => return None,
    };
    let mount = mount.join(names.mount);
    // With `..`, the process is outside of what is mounted here.
    let is_inside = path.split('/').all(|name| name != "..");
    let directory = if is_inside { mount.join(path) } else { mount.clone() };
    let above = directory.ancestors().take_while(|level| level.starts_with(&mount));
    let above = above.filter(|level| level.join(names.limit).exists());
    Some(above.map(|level| Level { directory: level.to_owned(), names }).collect())
}

/// Returns how many more threads fit, if there is a limit.
fn threads_that_fit(levels: &[Level]) -> Option<u64> {
    levels.iter().filter_map(|level| Some(level.bytes_left()? / THREAD_BYTES)).min()
}

impl Level {
    /// Returns the memory that threads may use, if there is a limit.
    fn bytes_left(&self) -> Option<u64> {
        let limit = self.number(self.names.limit)?;
        let left = limit.saturating_sub(self.number(self.names.used)?);
        // Only if it matters: the kernel collects these figures from all its cores.
        let cached = if left < limit / 2 { self.cached_bytes() } else { 0 };
        Some((left + cached).saturating_sub(RESERVE_BYTES_MAX.min(limit / 16)))
    }

    fn cached_bytes(&self) -> u64 {
        let stat = fs::read_to_string(self.directory.join("memory.stat")).unwrap_or_default();
        let bytes = |line: &str| line.strip_prefix(self.names.cached)?.trim().parse().ok();
        stat.lines().find_map(bytes).unwrap_or(0)
    }

    /// Returns None for `max`, and for what cannot be read.
    fn number(&self, name: &str) -> Option<u64> {
        fs::read_to_string(self.directory.join(name)).ok()?.trim().parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Writes the files of a cgroup.
    fn cgroup(at: &Path, names: &Names, max: &str, used_mib: u64, cached_mib: u64) {
        fs::create_dir_all(at).unwrap();
        fs::write(at.join(names.limit), max).unwrap();
        fs::write(at.join(names.used), format!("{}\n", used_mib * MIB)).unwrap();
        let cached = cached_mib * MIB;
        let stat = format!("anon 1\ninactive_anon 7\n{}{cached}\nactive_file 9\n", names.cached);
        fs::write(at.join("memory.stat"), stat).unwrap();
    }

    fn of_mib(mib: u64) -> Option<u64> {
        Some(mib * MIB / THREAD_BYTES)
    }

    #[test]
    fn the_lowest_limit_counts() {
        for (names, line) in [(&V2, "0::/pod/app\n"), (&V1, "4:cpu,memory:/pod/app\n")] {
            let root = tempfile::tempdir().unwrap();
            let (pod, lines) =
                (root.path().join(names.mount).join("pod"), format!("9:cpuset:/elsewhere\n{line}"));
            let found = || threads_that_fit(&levels(&lines, root.path()));
            fs::create_dir_all(pod.join("app")).unwrap();
            assert_eq!(found(), None, "there are no files");

            let none = if names == &V2 { "max\n" } else { "9223372036854771712\n" };
            cgroup(&pod.join("app"), names, none, 10, 0);
            assert!(found().is_none_or(|threads| threads > 1 << 40), "there is no limit");

            // 64 MiB less a sixteenth, and 1 GiB less 24 MiB.
            cgroup(&pod.join("app"), names, "67108864\n", 20, 0);
            assert_eq!(found(), of_mib(40));
            cgroup(&pod, names, "1073741824\n", 500, 0);
            assert_eq!(found(), of_mib(40));
            cgroup(&pod, names, "1073741824\n", 990, 0);
            assert_eq!(found(), of_mib(10));
            cgroup(&pod, names, "1073741824\n", 1020, 0);
            assert_eq!(found(), Some(0));
            // Files in the cache give way.
            cgroup(&pod, names, "1073741824\n", 1020, 32);
            assert_eq!(found(), of_mib(12));
        }
    }

    #[test]
    fn what_cannot_be_read_is_no_limit() {
        let root = tempfile::tempdir().unwrap();
        cgroup(root.path(), &V2, "67108864", 63, 0);
        for lines in ["", "4:memory:/\n", "0::\n", "0\n", "memory"] {
            assert_eq!(levels(lines, root.path()), [], "{lines:?}");
        }
        // The directory that the process sees is that of its container.
        for lines in ["0::/", "0::/../other\n", "0::/docker/1a2b\n"] {
            assert_eq!(threads_that_fit(&levels(lines, root.path())), Some(0), "{lines:?}");
        }
        let own = levels("0::/", root.path());
        for (file, text) in [("memory.current", "many"), ("memory.max", "")] {
            fs::write(root.path().join(file), text).unwrap();
            assert_eq!(threads_that_fit(&own), None, "{file}");
        }
        fs::remove_file(root.path().join("memory.max")).unwrap();
        assert_eq!(threads_that_fit(&own), None);
        assert_eq!(caution_of(&own, 512), None);
    }

    #[test]
    fn a_limit_that_is_too_low_is_told_at_the_start() {
        let root = tempfile::tempdir().unwrap();
        cgroup(root.path(), &V2, "67108864", 50, 0);
        let own = levels("0::/", root.path());
        let caution = caution_of(&own, 512).unwrap();
        assert!(caution.contains("has room for about 320 of 512 threads (threads_max)"), "{caution}");
        assert_eq!(caution_of(&own, 320), None);
    }
}
