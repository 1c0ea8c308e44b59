//! Opens a name under a root directory. The path cannot leave the root, even if the tree changes during the
//! open.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, openat, readlinkat};
use rustix::io::{Errno, Result, retry_on_intr};

/// `NONBLOCK`: opening a pipe without a writer would block the thread before the file type is known.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Maximum number of links to follow, the same as in Linux.
const LINKS_MAX: u32 = 40;

/// Treatment of symbolic links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    Refuse,
    /// Follow links that stay under the root.
    Follow,
}

/// Opens `path`, which consists of segments joined by `/`. An empty path is the root itself.
pub(super) fn open(root: impl AsFd, path: &[u8], links: Links) -> Result<OwnedFd> {
    #[cfg(target_os = "linux")]
    match open_at_once(root.as_fd(), path, links) {
        // Kernels before 5.6 do not know the call, and old sandboxes reject unknown calls. AGAIN: a part of the
        // path was moved meanwhile, so the kernel could not tell whether the path stays under the root.
        Err(Errno::NOSYS | Errno::PERM | Errno::AGAIN) => {}
        done => return done,
    }
    walk(root, path, links)
}

#[cfg(target_os = "linux")]
fn open_at_once(root: impl AsFd, path: &[u8], links: Links) -> Result<OwnedFd> {
    use rustix::fs::{ResolveFlags, openat2};
    let (flags, resolve) = match links {
        Links::Refuse => (READ | OFlags::NOFOLLOW, ResolveFlags::NO_SYMLINKS),
        Links::Follow => (READ, ResolveFlags::empty()),
    };
    let resolve = resolve | ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let path = if path.is_empty() { b"." } else { path };
    retry_on_intr(|| openat2(&root, path, flags, Mode::empty(), resolve))
}

/// Opens a path on every system: one segment at a time, each in the directory opened before. A link is read and
/// replaced by its segments.
pub(super) fn walk(root: impl AsFd, path: &[u8], links: Links) -> Result<OwnedFd> {
    let mut ahead: VecDeque<Vec<u8>> = segments(path).collect();
    let mut inner: Vec<OwnedFd> = Vec::new();
    let mut followed = 0;
    while let Some(segment) = ahead.pop_front() {
        if segment == b".." {
            // `..` at the root would leave the root.
            inner.pop().ok_or(Errno::XDEV)?;
            continue;
        }
        let dir = inner.last().map_or(root.as_fd(), AsFd::as_fd);
        let flags = if ahead.is_empty() { READ } else { READ | OFlags::DIRECTORY };
        match one(dir, &segment, flags) {
            Ok(fd) => inner.push(fd),
            Err(refused @ (Errno::LOOP | Errno::MLINK | Errno::NOTDIR)) if links == Links::Follow => {
                let target = readlinkat(dir, segment.as_slice(), Vec::new()).map_err(|_| refused)?;
                followed += 1;
                if followed > LINKS_MAX || target.to_bytes().starts_with(b"/") {
                    return Err(if followed > LINKS_MAX { Errno::LOOP } else { Errno::XDEV });
                }
                for segment in segments(target.to_bytes()).collect::<Vec<_>>().into_iter().rev() {
                    ahead.push_front(segment);
                }
            }
            Err(error) => return Err(error),
        }
    }
    match inner.pop() {
        Some(fd) => Ok(fd),
        None => one(root.as_fd(), b".", READ),
    }
}

fn segments(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    path.split(|byte| *byte == b'/').filter(|segment| !matches!(*segment, b"" | b".")).map(<[u8]>::to_vec)
}

fn one(dir: impl AsFd, name: &[u8], flags: OFlags) -> Result<OwnedFd> {
    retry_on_intr(|| openat(&dir, name, flags | OFlags::NOFOLLOW, Mode::empty()))
}
