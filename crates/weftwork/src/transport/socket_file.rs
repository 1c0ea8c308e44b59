//! The file of a Unix socket: who may bind there, and who removes it.

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

/// Removes the file when it is dropped, unless somebody else has put another one in its place.
///
/// That has to come before the socket is closed: until then nobody takes the file for one left behind, and its inode
/// does not get to another one.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl SocketFile {
    /// A socket that is bound to `path`, and its file there.
    pub(super) fn bind(path: &Path) -> rustix::io::Result<(OwnedFd, SocketFile)> {
        let address = SocketAddrUnix::new(path)?;
        let fd = socket(AddressFamily::UNIX)?;
        let _lock = lock_directory_of(path);
        match net::bind(&fd, &address) {
            Err(Errno::ADDRINUSE) if is_socket(path) && is_stale(&address) => {
                // Left behind by a server that was killed: nobody answers there.
                fs::unlink(path)?;
                net::bind(&fd, &address)?;
            }
            done => done?,
        }
        // At once, and not only when the server starts: a socket that does not listen looks like one left behind.
        net::listen(&fd, 1)?;
        let known = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let identity = identity(path).map_err(known)?;
        // The program may go to another directory before it ends.
        Ok((fd, SocketFile { path: std::path::absolute(path).map_err(known)?, identity }))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            // Somebody may have removed it before us, which is as good.
            let _ = remove_file(&self.path);
        }
    }
}

/// Not what a link leads to: the link is what would be removed.
pub(super) fn is_socket(path: &Path) -> bool {
    symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

/// Held while a file is looked at and taken: of two servers that start at once, both would find out that nobody answers there,
/// and the second would remove the socket of the first. It is the directory that is locked, so no further file is left behind.
///
/// It is done without where that cannot be locked, and where somebody else holds it for long (`flock /run/app weft ..`).
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

    /// Each of them finds out that nobody answers there, and one of them is the first to.
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
