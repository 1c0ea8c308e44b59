//! Leaves address space for allocations when threads are started, because an allocation that fails ends the process.
//!
//! A limit of the address space (`RLIMIT_AS`: `ulimit -v`, `LimitAS=` of systemd) counts stacks in full, however little of
//! them is used. The limit of a cgroup counts only used pages (`cgroup_memory.rs`).

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};

use rustix::process::{Resource, getrlimit};

use super::cgroup_memory;

/// Address space that threads leave: for buffers, and for what handlers allocate.
const RESERVE_BYTES: u64 = 24 << 20;
/// Address space of an arena of glibc's malloc. A new thread gets an arena of its own, unless there is no room for one.
const ARENA_BYTES: u64 = 64 << 20;
/// Maximum number of arenas of glibc, for each core.
const ARENAS_PER_CORE: u64 = 8;
/// Stack of a thread in std, without its guard page.
const STACK_BYTES: u64 = 2 << 20;

/// Threads that were started since the process has begun, at most one arena each.
static STARTED: AtomicU64 = AtomicU64::new(0);
/// Threads that may not have their arena yet.
static STARTING: AtomicU64 = AtomicU64::new(0);

/// Starts a thread, if there is room for its stack.
///
/// # Errors
/// The system refuses the thread, or its stack would leave too little for allocations.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    if !has_room(stack_bytes()) {
        // As if the system had refused it.
        let why = "the limit of the address space (RLIMIT_AS) leaves too little beside its stack";
        return Err(io::Error::new(io::ErrorKind::OutOfMemory, why));
    }
    if !cgroup_memory::has_room() {
        let why = "the memory limit of the cgroup leaves too little beside it";
        return Err(io::Error::new(io::ErrorKind::OutOfMemory, why));
    }
    spawn_first(name, work)
}

/// Starts a thread without which the server cannot run.
///
/// # Errors
/// The system refuses the thread.
pub(crate) fn spawn_first(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    STARTING.fetch_add(1, Ordering::SeqCst);
    let started = Builder::new().name(name.into()).spawn(move || {
        // The first allocation of a thread gives it an arena.
        drop(std::hint::black_box(Box::new(0_u64)));
        STARTING.fetch_sub(1, Ordering::SeqCst);
        work();
    });
    match &started {
        Ok(_) => STARTED.fetch_add(1, Ordering::SeqCst),
        Err(_) => STARTING.fetch_sub(1, Ordering::SeqCst),
    };
    started
}

/// Returns whether a thread that is started elsewhere leaves enough for allocations.
#[cfg(feature = "fibers")]
pub(crate) fn has_room_for_thread() -> bool {
    has_room(stack_bytes()) && cgroup_memory::has_room()
}

/// Returns whether a mapping of this size leaves enough for allocations.
pub(crate) fn has_room(bytes: u64) -> bool {
    let Some(left) = bytes_left() else { return true };
    let started = STARTED.load(Ordering::SeqCst);
    let coming = STARTING.load(Ordering::SeqCst) + 1;
    fits(left, bytes, coming.min(arenas_max().saturating_sub(started)))
}

/// Returns whether a mapping fits beside the reserve and so many new arenas. An arena for which there is no room is not made.
fn fits(left: u64, bytes: u64, arenas: u64) -> bool {
    let left = left.saturating_sub(bytes);
    let taken = arenas.min(left / ARENA_BYTES) * ARENA_BYTES;
    left - taken >= RESERVE_BYTES
}

/// Returns how many of `threads_max` threads have room, if not all of them.
fn threads_that_fit(mut left: u64, threads_max: usize, mut arenas: u64) -> Option<usize> {
    for threads in 0..threads_max {
        if !fits(left, stack_bytes(), arenas.min(1)) {
            return Some(threads);
        }
        left -= stack_bytes();
        if arenas > 0 && left >= ARENA_BYTES {
            (left, arenas) = (left - ARENA_BYTES, arenas - 1);
        }
    }
    None
}

/// Returns a warning if the stacks of all threads do not fit.
pub(crate) fn caution(threads_max: usize) -> Option<String> {
    caution_of_address_space(threads_max).or_else(|| cgroup_memory::caution(threads_max))
}

fn caution_of_address_space(threads_max: usize) -> Option<String> {
    let arenas = arenas_max().saturating_sub(STARTED.load(Ordering::SeqCst));
    let threads = threads_that_fit(bytes_left()?, threads_max, arenas)?;
    let arenas = match is_glibc() && std::env::var_os(ARENA_MAX).is_none() {
        true => ", or set MALLOC_ARENA_MAX=2, because malloc takes 64 MiB for each of its arenas",
        false => "",
    };
    Some(format!(
        "the limit of the address space (RLIMIT_AS: ulimit -v, LimitAS of systemd) has room for about {threads} of {threads_max} \
         threads (threads_max): requests wait for those, and an allocation that fails ends the process. Raise the limit, \
         or lower threads_max{arenas}"
    ))
}

/// Variable that glibc reads.
const ARENA_MAX: &str = "MALLOC_ARENA_MAX";

fn is_glibc() -> bool {
    cfg!(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))
}

/// Returns how many arenas malloc makes at most.
fn arenas_max() -> u64 {
    static MAX: OnceLock<u64> = OnceLock::new();
    *MAX.get_or_init(|| {
        if !is_glibc() {
            return 0;
        }
        let set = std::env::var(ARENA_MAX).ok().and_then(|max| max.parse().ok());
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        set.unwrap_or(cores * ARENAS_PER_CORE)
    })
}

/// Returns the size of a thread's stack, with its guard page.
fn stack_bytes() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let set = std::env::var("RUST_MIN_STACK").ok().and_then(|bytes| bytes.parse().ok());
        set.unwrap_or(STACK_BYTES) + rustix::param::page_size() as u64
    })
}

/// Returns how much of the address space is left, if it has a limit.
fn bytes_left() -> Option<u64> {
    let limit = getrlimit(Resource::As).current?;
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').next()?.parse().ok()?;
    Some(limit.saturating_sub(pages * rustix::param::page_size() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_reserve_is_left_whatever_malloc_takes() {
        for (left, arenas, is_enough) in [
            (25, 0, false),
            (26, 0, true),
            // An arena has no room, and is not made.
            (65, 1, true),
            (66, 1, false),
            (89, 1, false),
            (90, 1, true),
            (90, 2, true),
            (130, 2, false),
            (154, 2, true),
        ] {
            assert_eq!(fits(left * MIB, 2 * MIB, arenas), is_enough, "{left} MiB, {arenas} arenas");
        }
        assert!(!fits(0, 2 * MIB, 0));
    }

    #[test]
    fn threads_are_counted_with_their_arenas() {
        let (stack, gib) = (stack_bytes(), 1024 * MIB);
        assert_eq!(threads_that_fit(gib, 100, 0), None);
        assert_eq!(threads_that_fit(gib, 512, 0), Some(((gib - RESERVE_BYTES) / stack) as usize));
        let of_arenas = threads_that_fit(gib, 512, 8).unwrap();
        assert_eq!(of_arenas, ((gib - 8 * ARENA_BYTES - RESERVE_BYTES) / stack) as usize);
        assert_eq!(threads_that_fit(0, 512, 0), Some(0));
    }
}
