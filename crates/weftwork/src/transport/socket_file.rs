//! The file of a Unix socket: safe creation and removal.

use std::fs::{remove_file, symlink_metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{self, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix};

use super::system::socket;

/// Removes the file when it is dropped, unless another process has replaced the file.
///
/// The drop must come before the socket is closed. Until then, no process takes the file for a leftover, and its inode
/// is not reused.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and inode of the file.
    identity: (u64, u64),
}

impl SocketFile {
    /// Binds a socket to `path`, and returns it with its file.
    pub(super) fn bind(path: &Path) -> rustix::io::Result<(OwnedFd, SocketFile)> {
        let address = SocketAddrUnix::new(path)?;
        let fd = socket(AddressFamily::UNIX)?;
        let _lock = lock_directory_of(path);
        match net::bind(&fd, &address) {
            Err(Errno::ADDRINUSE) if is_socket(path) && is_stale(&address) => {
                // A killed server has left the file, because nothing answers there.
                fs::unlink(path)?;
                net::bind(&fd, &address)?;
            }
            done => done?,
        }
        // The socket listens at once, because a socket that does not listen looks like a leftover.
        net::listen(&fd, 1)?;
        let known = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let identity = identity(path).map_err(known)?;
        // The program may change its working directory before it ends.
        Ok((fd, SocketFile { path: std::path::absolute(path).map_err(known)?, identity }))
    }
}

impl SocketFile {
    /// Takes over the file of a socket that another process has bound.
    pub(super) fn adopt(path: &Path) -> io::Result<SocketFile> {
        Ok(SocketFile { path: std::path::absolute(path)?, identity: identity(path)? })
    }

    /// Leaves the file to another process that holds its socket.
    pub(super) fn leave(mut self) {
        // No file has an empty path.
        self.path = PathBuf::new();
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            // Another process may have removed the file, which has the same effect.
            let _ = remove_file(&self.path);
        }
    }
}

/// A symbolic link is not followed, because the link itself would be removed.
pub(super) fn is_socket(path: &Path) -> bool {
    symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

/// Lock that is held while a file is checked and taken. Without it, two servers that start at once could both see that
/// nothing answers there, and the second would remove the socket of the first. The directory is locked, so no other
/// file is left behind.
///
/// The lock is skipped if the directory cannot be locked, or if another process holds the lock for long (`flock
/// /run/app weft ..`).
fn lock_directory_of(path: &Path) -> Option<OwnedFd> {
    const TRIES: u32 = 50;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = fs::open(parent, flags, Mode::empty()).ok()?;
    for _ in 0..TRIES {
        match fs::flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(dir),
            Err(Errno::WOULDBLOCK | Errno::INTR) => sleep(Duration::from_millis(5)),
            Err(_) => return None,
        }
    }
    None
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

fn is_stale(address: &SocketAddrUnix) -> bool {
    let probe = socket(AddressFamily::UNIX);
    probe.is_ok_and(|probe| net::connect(&probe, address) == Err(Errno::CONNREFUSED))
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread::scope;

    use super::*;

    #[test]
    fn a_file_is_known_from_every_directory() {
        let name = format!("weftwork-socket-{}", std::process::id());
        let up: PathBuf = std::env::current_dir().unwrap().components().skip(1).map(|_| "..").collect();
        let path = up.join(std::env::temp_dir().strip_prefix("/").unwrap()).join(name);
        let (_fd, file) = SocketFile::bind(&path).unwrap();
        assert!(path.is_relative() && file.path.is_absolute(), "{file:?}");
        drop(file);
        assert!(!path.exists());
    }

    /// Each thread sees that nothing answers there, and one thread is the first to bind.
    #[test]
    fn of_many_servers_one_takes_the_place_of_a_dead_one() {
        const SERVERS: usize = 6;
        let name = format!("weftwork-servers-{}", std::process::id());
        let path = &std::env::temp_dir().join(name);
        for round in 0..100 {
            let dead = socket(AddressFamily::UNIX).unwrap();
            net::bind(&dead, &SocketAddrUnix::new(path).unwrap()).unwrap();
            drop(dead);
            let begin = &Barrier::new(SERVERS);
            let files: Vec<_> = scope(|scope| {
                let bind = |_| {
                    scope.spawn(|| {
                        begin.wait();
                        SocketFile::bind(path)
                    })
                };
                let threads: Vec<_> = (0..SERVERS).map(bind).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let bound = files.iter().filter(|file| file.is_ok()).count();
            assert_eq!(bound, 1, "in round {round}: {files:?}");
            assert!(
                files.iter().flatten().all(|(_, file)| identity(path).is_ok_and(|it| it == file.identity))
            );
        }
    }
}
