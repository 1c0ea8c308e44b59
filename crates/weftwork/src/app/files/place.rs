//! Where names are looked up, and what they stand for there.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::{Errno, Result};

use super::beneath::{self, Links};
use super::description::Description;
use super::embedded::Embedded;
use super::kept::{Kept, Memory};
use super::variants::Siblings;

/// Where the files are.
#[derive(Debug)]
pub(super) enum Place {
    Directory { root: OwnedFd, links: Links },
    Single { parent: PathBuf, name: Vec<u8> },
    Embedded(Embedded),
}

/// What a name stands for.
pub(super) enum Found {
    Content(Content),
    /// None where there is nothing to list.
    Directory(Option<OwnedFd>),
    /// A pipe, a device, a socket.
    Other,
}

/// What is in a file, and how to tell whether it has changed.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) source: Source,
    pub(super) length: u64,
    pub(super) modified: Option<SystemTime>,
    /// Another number when `length` is the same and the bytes are not.
    pub(super) state: u64,
    /// When any of this was changed last, be it by hand: most file systems let nobody set that time.
    pub(super) changed: Option<SystemTime>,
    /// When all this was so.
    pub(super) seen: SystemTime,
}

#[derive(Debug)]
pub(super) enum Source {
    File(Arc<Opened>),
    Bytes(Bytes),
}

/// A file, and what need not be found out again while it is open.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) file: Arc<File>,
    /// How many names it had: with one more or less, the one that it was found by may stand for another file. The number's
    /// type differs between systems, and this one holds all of them.
    pub(super) names: u128,
    pub(super) description: OnceLock<Description>,
    pub(super) siblings: OnceLock<Siblings>,
    /// From the second time on that it is asked for.
    pub(super) memory: OnceLock<Arc<Memory>>,
    pub(super) kept: OnceLock<Option<Kept>>,
}

impl Place {
    pub(super) fn directory(dir: &Path) -> Result<Place> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(dir, flags, Mode::empty())?;
        Ok(Place::Directory { root, links: Links::Refuse })
    }

    pub(super) fn single(path: &Path) -> Result<Place> {
        let name = path.file_name().ok_or(Errno::ISDIR)?.to_owned().into_vec();
        let place = Place::Single { parent: path.parent().map(Path::to_owned).unwrap_or_default(), name };
        let Place::Single { name, .. } = &place else { return Err(Errno::INVAL) };
        match place.find(name)? {
            Found::Content(_) => Ok(place),
            Found::Directory(_) => Err(Errno::ISDIR),
            Found::Other => Err(Errno::INVAL),
        }
    }

    /// `name` has segments joined by `/`; it is empty for the root.
    pub(super) fn find(&self, name: &[u8]) -> Result<Found> {
        match self {
            Place::Directory { root, links } => Found::at(beneath::open(root, name, *links)?),
            Place::Single { parent, .. } => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
                let path = parent.join(OsStr::from_bytes(name));
                Found::at(rustix::fs::open(path, flags, Mode::empty())?)
            }
            Place::Embedded(assets) => assets.find(name).ok_or(Errno::NOENT),
        }
    }
}

impl Found {
    fn at(fd: OwnedFd) -> Result<Found> {
        let stat = rustix::fs::fstat(&fd)?;
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let opened = Opened::new(File::from(fd), u128::from(stat.st_nlink));
                Found::Content(Content::of(opened, &stat, SystemTime::now()))
            }
            FileType::Directory => Found::Directory(Some(fd)),
            _ => Found::Other,
        })
    }
}

impl Opened {
    pub(super) fn new(file: File, names: u128) -> Arc<Opened> {
        Arc::new(Opened {
            file: Arc::new(file),
            names,
            description: OnceLock::new(),
            siblings: OnceLock::new(),
            memory: OnceLock::new(),
            kept: OnceLock::new(),
        })
    }
}

impl Content {
    /// What is now in a file that was opened before. None: it has been deleted, or another one may have its name.
    pub(super) fn named(opened: Arc<Opened>, memory: &Arc<Memory>, now: SystemTime) -> Option<Content> {
        let stat = rustix::fs::fstat(&opened.file).ok()?;
        let is_named = stat.st_nlink > 0 && u128::from(stat.st_nlink) == opened.names;
        if !is_named {
            return None;
        }
        opened.memory.get_or_init(|| memory.clone());
        Some(Content::of(opened, &stat, now))
    }

    fn of(opened: Arc<Opened>, stat: &Stat, now: SystemTime) -> Content {
        let (seconds, nanos) = (stat.st_mtime, stat.st_mtime_nsec as u32);
        Content {
            source: Source::File(opened),
            length: u64::try_from(stat.st_size).unwrap_or(0),
            modified: Some(time(seconds, nanos)),
            state: (seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(u64::from(nanos)),
            changed: Some(time(stat.st_ctime, stat.st_ctime_nsec as u32)),
            seen: now,
        }
    }
}

/// A time before 1970 has no date in HTTP; the first one that has stands in for it.
fn time(seconds: i64, nanos: u32) -> SystemTime {
    let since = u64::try_from(seconds).map_or(Duration::ZERO, |seconds| Duration::new(seconds, nanos));
    SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH)
}
