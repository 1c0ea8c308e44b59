//! The root that names are looked up in.

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
use super::content_cache::{CacheMemory, CachedContent};
use super::embedded::Embedded;
use super::metadata::FileMetadata;
use super::precompressed::Siblings;
use super::served_dir::{GONE, ServedDir};

/// The source of the files.
#[derive(Debug)]
pub(super) enum Root {
    Directory { dir: ServedDir, links: Links },
    Single { parent: PathBuf, name: Vec<u8> },
    Embedded(Embedded),
}

/// Result of a look-up.
pub(super) enum Found {
    Content(Content),
    /// A directory. `None` if it cannot be listed.
    Directory(Option<OwnedFd>),
    /// A pipe, a device or a socket.
    Other,
}

/// Content of a file, and the state by which a change is noticed.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) source: ContentSource,
    pub(super) length: u64,
    pub(super) modified: Option<SystemTime>,
    /// Number that changes if the bytes change and `length` does not.
    pub(super) state: u64,
    /// Change time. Most file systems do not let programs set it.
    pub(super) changed: Option<SystemTime>,
    /// Time at which this state was read.
    pub(super) seen: SystemTime,
}

#[derive(Debug)]
pub(super) enum ContentSource {
    File(Arc<OpenFile>),
    Bytes(Bytes),
}

/// An open file, and values that are computed once while it is open.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) file: Arc<File>,
    /// Number of hard links at the time of opening. If it changes, the name may stand for another file. The
    /// type differs between systems, and `u128` holds all of them.
    pub(super) names: u128,
    pub(super) metadata: OnceLock<FileMetadata>,
    pub(super) siblings: OnceLock<Siblings>,
    /// Set from the second request on.
    pub(super) memory: OnceLock<Arc<CacheMemory>>,
    pub(super) cached: OnceLock<Option<CachedContent>>,
}

impl Root {
    pub(super) fn directory(dir: &Path) -> Result<Root> {
        Ok(Root::Directory { dir: ServedDir::open(dir)?, links: Links::Refuse })
    }

    pub(super) fn single(path: &Path) -> Result<Root> {
        let name = path.file_name().ok_or(Errno::ISDIR)?.to_owned().into_vec();
        let root = Root::Single { parent: path.parent().map(Path::to_owned).unwrap_or_default(), name };
        let Root::Single { name, .. } = &root else { return Err(Errno::INVAL) };
        match root.find(name)? {
            Found::Content(_) => Ok(root),
            Found::Directory(_) => Err(Errno::ISDIR),
            Found::Other => Err(Errno::INVAL),
        }
    }

    /// Looks up `name`, which consists of segments joined by `/`. An empty name is the root.
    pub(super) fn find(&self, name: &[u8]) -> Result<Found> {
        let found = self.find_in_current(name);
        // A directory that was removed is found empty, and so is everything in it.
        let may_be_gone = matches!(&found, Ok(Found::Directory(_)) | Err(Errno::NOENT | GONE));
        match self {
            Root::Directory { dir, .. } if may_be_gone && dir.look() => self.find_in_current(name),
            _ => found,
        }
    }

    /// Looks up `name` without a look at the path of the root.
    pub(super) fn find_in_current(&self, name: &[u8]) -> Result<Found> {
        match self {
            Root::Directory { dir, links } => Found::at(beneath::open(dir.dir()?, name, *links)?),
            Root::Single { parent, .. } => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
                let path = parent.join(OsStr::from_bytes(name));
                Found::at(rustix::fs::open(path, flags, Mode::empty())?)
            }
            Root::Embedded(assets) => assets.find(name).ok_or(Errno::NOENT),
        }
    }

    /// Returns the number of the root in which names are looked up now. Files of another one are not served.
    pub(super) fn generation_at(&self, now: SystemTime) -> u64 {
        match self {
            Root::Directory { dir, .. } => dir.generation_at(now),
            Root::Single { .. } | Root::Embedded(_) => 0,
        }
    }
}

impl Found {
    fn at(fd: OwnedFd) -> Result<Found> {
        let stat = rustix::fs::fstat(&fd)?;
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let opened = OpenFile::new(File::from(fd), u128::from(stat.st_nlink));
                Found::Content(Content::of(opened, &stat, SystemTime::now()))
            }
            FileType::Directory => Found::Directory(Some(fd)),
            _ => Found::Other,
        })
    }
}

impl OpenFile {
    pub(super) fn new(file: File, names: u128) -> Arc<OpenFile> {
        Arc::new(OpenFile {
            file: Arc::new(file),
            names,
            metadata: OnceLock::new(),
            siblings: OnceLock::new(),
            memory: OnceLock::new(),
            cached: OnceLock::new(),
        })
    }
}

impl Content {
    /// Returns the current content of an open file. `None` if the file was deleted, or another file may have
    /// its name.
    pub(super) fn named(
        opened: Arc<OpenFile>,
        memory: &Arc<CacheMemory>,
        now: SystemTime,
    ) -> Option<Content> {
        let stat = rustix::fs::fstat(&opened.file).ok()?;
        let is_named = stat.st_nlink > 0 && u128::from(stat.st_nlink) == opened.names;
        if !is_named {
            return None;
        }
        opened.memory.get_or_init(|| memory.clone());
        Some(Content::of(opened, &stat, now))
    }

    fn of(opened: Arc<OpenFile>, stat: &Stat, now: SystemTime) -> Content {
        let (seconds, nanos) = (stat.st_mtime, stat.st_mtime_nsec as u32);
        Content {
            source: ContentSource::File(opened),
            length: u64::try_from(stat.st_size).unwrap_or(0),
            modified: Some(time(seconds, nanos)),
            state: (seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(u64::from(nanos)),
            changed: Some(time(stat.st_ctime, stat.st_ctime_nsec as u32)),
            seen: now,
        }
    }
}

/// HTTP has no dates before 1970. Such a time becomes the first date.
pub(super) fn time(seconds: i64, nanos: u32) -> SystemTime {
    let since = u64::try_from(seconds).map_or(Duration::ZERO, |seconds| Duration::new(seconds, nanos));
    SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH)
}
