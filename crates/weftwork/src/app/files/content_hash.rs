//! Hashes of the content of files. They make tags if the modification time cannot tell two versions apart.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::root::{Content, ContentSource, OpenFile};

/// Maximum size of a file that is hashed. This takes about a millisecond.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of hashes that are kept, about 100 KiB.
const HASHES_MAX: usize = 1024;
/// Size of one read.
const READ_BYTES: usize = 64 << 10;

/// FNV-1a. The bytes are trusted, so collisions on purpose are not a concern.
#[derive(Clone, Copy, Debug)]
pub(super) struct ContentHash(u64);

impl ContentHash {
    pub(super) fn new() -> ContentHash {
        ContentHash(0xcbf2_9ce4_8422_2325)
    }

    pub(super) fn push(self, bytes: &[u8]) -> ContentHash {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        ContentHash(bytes.iter().fold(self.0, step))
    }

    pub(super) fn value(self) -> u64 {
        self.0
    }
}

/// Hashes of files by device and inode.
#[derive(Debug, Default)]
pub(super) struct ContentHashes(Mutex<HashMap<(u64, u64), Hashed>>);

/// A hash and the state of the file that it was computed from.
#[derive(Clone, Copy, Debug)]
struct Hashed {
    state: u64,
    changed: SystemTime,
    length: u64,
    hash: u64,
}

impl ContentHashes {
    /// Returns the hash of a file. `None` if the file is too long, or cannot be read whole.
    pub(super) fn of(&self, content: &Content) -> Option<u64> {
        let ContentSource::File(opened) = &content.source else { return None };
        let Content { state, length, .. } = *content;
        let changed = content.changed?;
        if length > FILE_BYTES_MAX {
            return None;
        }
        let metadata = opened.file.metadata().ok()?;
        let id = (metadata.dev(), metadata.ino());
        let known = self.hashes().get(&id).copied();
        if let Some(known) = known
            && (known.state, known.changed, known.length) == (state, changed, length)
        {
            return Some(known.hash);
        }
        let hash = hash(opened, length).ok()?;
        // A file that changed a moment ago may change again and keep its times.
        if content.is_stable_since(changed) {
            let mut hashes = self.hashes();
            if hashes.len() >= HASHES_MAX {
                hashes.clear();
            }
            hashes.insert(id, Hashed { state, changed, length, hash });
        }
        Some(hash)
    }

    fn hashes(&self) -> MutexGuard<'_, HashMap<(u64, u64), Hashed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn hash(opened: &OpenFile, length: u64) -> io::Result<u64> {
    let (mut hash, mut at) = (ContentHash::new(), 0);
    // Not on the stack: that of a fiber is small.
    let mut part = vec![0; READ_BYTES.min(length as usize)];
    while at < length {
        let count = part.len().min((length - at) as usize);
        opened.file.read_exact_at(&mut part[..count], at)?;
        hash = hash.push(&part[..count]);
        at += count as u64;
    }
    Ok(hash.value())
}
