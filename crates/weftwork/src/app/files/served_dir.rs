//! The directory that files are served from. It is opened again when its path leads to another directory.

use crate::transport::log_queue::log_line;
use std::fs::{self, File, Metadata};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result};

/// Interval at which the path is looked at while files are found.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Returned for every name while there is no directory at the path. The same error of a network file system means
/// the same.
pub(super) const GONE: Errno = Errno::STALE;

/// An open directory and its path. A deployment replaces the directory at the path: it switches a symbolic link, or
/// removes the directory and builds a new one.
#[derive(Debug)]
pub(super) struct ServedDir {
    path: PathBuf,
    /// `None` while there is no directory at the path.
    current: Mutex<Option<OpenDir>>,
    /// Number of changes of `current`. A file that was opened before the last change is not served.
    generation: AtomicU64,
    /// Time of the last look, in milliseconds since 1970.
    looked: AtomicU64,
}

#[derive(Clone, Debug)]
struct OpenDir {
    fd: Arc<OwnedFd>,
    id: DirId,
}

/// Device and inode.
type DirId = (u64, u64);

impl ServedDir {
    pub(super) fn open(path: &Path) -> Result<ServedDir> {
        let dir = open(path)?;
        // The process may change its working directory.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let looked = AtomicU64::new(millis(SystemTime::now()));
        Ok(ServedDir { path, current: Mutex::new(Some(dir)), generation: AtomicU64::new(0), looked })
    }

    /// Returns the directory in which names are looked up.
    ///
    /// # Errors
    /// [`GONE`] if there was no directory at the path.
    pub(super) fn dir(&self) -> Result<Arc<OwnedFd>> {
        self.current().as_ref().map(|dir| dir.fd.clone()).ok_or(GONE)
    }

    /// Returns the number of the current directory, after a look at the path if the last one was a second ago.
    pub(super) fn generation_at(&self, now: SystemTime) -> u64 {
        let (now, looked) = (millis(now), self.looked.load(Ordering::Relaxed));
        // If the clock was set back, the wrapped difference is large.
        let is_due = u128::from(now.wrapping_sub(looked)) >= LOOK_INTERVAL.as_millis();
        // One thread looks, because the file system may be slow.
        if is_due && self.looked.compare_exchange(looked, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.look();
        }
        self.generation.load(Ordering::Acquire)
    }

    /// Looks at the path. Returns whether the current directory has changed.
    pub(super) fn look(&self) -> bool {
        let known = self.current().as_ref().map(|dir| dir.id);
        match fs::metadata(&self.path).map(|found| id(&found)) {
            Ok(found) if Some(found) == known => return false,
            Ok(_) => {}
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | GONE) => {}
                // A process that has given up its privileges may not see the path any more.
                _ => return false,
            },
        }
        match open(&self.path) {
            Ok(dir) => self.replace(Some(dir), None),
            // The new directory is opened at the next look.
            Err(Errno::MFILE | Errno::NFILE) => false,
            Err(error) => self.replace(None, Some(error)),
        }
    }

    fn replace(&self, dir: Option<OpenDir>, error: Option<Errno>) -> bool {
        let mut current = self.current();
        if current.as_ref().map(|dir| dir.id) == dir.as_ref().map(|dir| dir.id) {
            return false;
        }
        // Closed after the lock is released.
        let before = std::mem::replace(&mut *current, dir);
        self.generation.fetch_add(1, Ordering::Release);
        drop(current);
        drop(before);
        let path = self.path.display();
        match error {
            Some(error) => log_line!(
                Error,
                "cannot serve files from {path}: {error}. Requests get 503 until the directory is there again"
            ),
            None => log_line!(Info, "serving files from the directory that is at {path} now"),
        }
        true
    }

    fn current(&self) -> MutexGuard<'_, Option<OpenDir>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open(path: &Path) -> Result<OpenDir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let found = file.metadata().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(OpenDir { id: id(&found), fd: Arc::new(file.into()) })
}

fn id(found: &Metadata) -> DirId {
    (found.dev(), found.ino())
}

fn millis(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
