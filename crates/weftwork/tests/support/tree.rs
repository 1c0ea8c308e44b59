//! A directory for each test, removed with all its files at the end.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

/// The time of the last change of its files.
pub(crate) const CHANGED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

pub(crate) struct Tree(PathBuf);

impl Tree {
    pub(crate) fn new() -> Tree {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weftwork-tree-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Tree(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file with the modification time [`CHANGED`], and creates its directories.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        // With a fraction, as files have that were not written by a tool that sets times.
        let changed = SystemTime::UNIX_EPOCH + Duration::new(784_111_777, 1);
        File::options().write(true).open(&path).unwrap().set_modified(changed).unwrap();
        path
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // Files that a failed test leaves behind are not worth a second failure.
        let _ = fs::remove_dir_all(&self.0);
    }
}
