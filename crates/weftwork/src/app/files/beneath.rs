//! How a name is opened so that it cannot lead out of its root, whoever changes the tree meanwhile.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::{Errno, Result, retry_on_intr};

/// `NONBLOCK`: opening a pipe that nobody writes would hang the thread before its type can be looked at.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Opens `path` (segments joined by `/`; empty for the root itself) without following any symbolic link.
pub(super) fn open(root: impl AsFd, path: &[u8]) -> Result<OwnedFd> {
    #[cfg(target_os = "linux")]
    match open_at_once(root.as_fd(), path) {
        // Kernels before 5.6 do not know the call, and old sandboxes refuse what they do not know.
        Err(Errno::NOSYS | Errno::PERM) => {}
        done => return done,
    }
    walk(root, path)
}

#[cfg(target_os = "linux")]
fn open_at_once(root: impl AsFd, path: &[u8]) -> Result<OwnedFd> {
    use rustix::fs::{ResolveFlags, openat2};
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    retry_on_intr(|| openat2(&root, or_dot(path), READ, Mode::empty(), resolve))
}

/// The same on every system: one segment at a time, each opened in the directory that was opened before it.
pub(super) fn walk(root: impl AsFd, path: &[u8]) -> Result<OwnedFd> {
    let (parents, last) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&path[..0], path),
    };
    let mut inner: Option<OwnedFd> = None;
    for segment in parents.split(|byte| *byte == b'/').filter(|segment| !segment.is_empty()) {
        let outer = inner.as_ref().map_or(root.as_fd(), AsFd::as_fd);
        inner = Some(one(outer, segment, READ | OFlags::DIRECTORY)?);
    }
    let outer = inner.as_ref().map_or(root.as_fd(), AsFd::as_fd);
    one(outer, or_dot(last), READ)
}

fn one(dir: impl AsFd, name: &[u8], flags: OFlags) -> Result<OwnedFd> {
    if name == b".." || name.contains(&b'/') {
        return Err(Errno::XDEV);
    }
    retry_on_intr(|| openat(&dir, name, flags, Mode::empty()))
}

fn or_dot(path: &[u8]) -> &[u8] {
    if path.is_empty() { b"." } else { path }
}
