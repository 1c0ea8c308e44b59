//! Files that are embedded in the program.

use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use bytes::Bytes;

use super::content_hash::ContentHash;
use super::root::{Content, ContentSource, Found};

/// Embedded files by name.
pub(super) struct Embedded(BTreeMap<&'static [u8], Asset>);

struct Asset {
    bytes: &'static [u8],
    /// Hash of the bytes, computed once.
    hash: u64,
}

impl Embedded {
    pub(super) fn new(assets: &'static [(&'static str, &'static [u8])]) -> Embedded {
        let named = assets.iter().map(|(name, bytes)| {
            (
                name.trim_start_matches('/').as_bytes(),
                Asset { bytes, hash: ContentHash::new().push(bytes).value() },
            )
        });
        Embedded(named.collect())
    }

    pub(super) fn find(&self, name: &[u8]) -> Option<Found> {
        if let Some(Asset { bytes, hash }) = self.0.get(name) {
            let source = ContentSource::Bytes(Bytes::from_static(bytes));
            return Some(Found::Content(Content {
                source,
                length: bytes.len() as u64,
                modified: None,
                changed: None,
                state: *hash,
                // Embedded files never change, so any time will do.
                seen: SystemTime::UNIX_EPOCH,
            }));
        }
        let inside = if name.is_empty() { Vec::new() } else { [name, b"/"].concat() };
        let next = self.0.range(inside.as_slice()..).next();
        next.filter(|(other, _)| other.starts_with(&inside)).map(|_| Found::Directory(None))
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} embedded files", self.0.len())
    }
}
