//! The file of a Unix socket: who may bind there, and who removes it.

use std::fs::{remove_file, symlink_metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

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
        match net::bind(&fd, &address) {
            Err(Errno::ADDRINUSE) if is_socket(path) && is_stale(&address) => {
                // Left behind by a server that was killed: nobody answers there.
                rustix::fs::unlink(path)?;
                net::bind(&fd, &address)?;
            }
            done => done?,
        }
        // At once, and not only when the server starts: a socket that does not listen looks like one left behind.
        net::listen(&fd, 1)?;
        let identity = identity(path).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        Ok((fd, SocketFile { path: path.into(), identity }))
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

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

fn is_stale(address: &SocketAddrUnix) -> bool {
    let probe = socket(AddressFamily::UNIX);
    probe.is_ok_and(|probe| net::connect(&probe, address) == Err(Errno::CONNREFUSED))
}
