//! Keeps recently opened files open to save the look-up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::io::Result;

use super::content_cache::CacheMemory;
use super::content_hash::ContentHashes;
use super::precompressed::SkippedSiblings;
use super::root::{Content, ContentSource, Found, OpenFile, Root};

/// Time for which a look-up stays valid. The content and the number of names are checked at each request. Only
/// a file that was moved, or whose directory or link was moved, is still found for this long. The same holds for all files
/// of a root that was replaced.
const VALID_FOR: Duration = Duration::from_secs(1);
/// Maximum number of open files. Each one uses a descriptor.
const FILES_MAX: usize = 128;

/// Keeps files open. To open and close a file took 1.5 us in the kernel, of 8 us for a request for a file of 1 KiB.
pub(super) struct OpenFileCache {
    entries: Mutex<Entries>,
    memory: Arc<CacheMemory>,
    pub(super) hashes: ContentHashes,
    pub(super) skipped: SkippedSiblings,
}

struct Entries {
    files: HashMap<Vec<u8>, CachedFile>,
    swept: SystemTime,
}

struct CachedFile {
    since: SystemTime,
    /// Root in which the file was looked up.
    generation: u64,
    opened: Arc<OpenFile>,
}

impl OpenFileCache {
    pub(super) fn new() -> OpenFileCache {
        OpenFileCache {
            entries: Mutex::new(Entries { files: HashMap::new(), swept: SystemTime::now() }),
            memory: Arc::default(),
            hashes: ContentHashes::default(),
            skipped: SkippedSiblings::default(),
        }
    }

    /// Looks up `name` in `root`. A missing file is never remembered, because it may be created at any time.
    pub(super) fn find(&self, root: &Root, name: &[u8]) -> Result<Found> {
        self.find_at(root, name, SystemTime::now())
    }

    pub(super) fn find_at(&self, root: &Root, name: &[u8], now: SystemTime) -> Result<Found> {
        let generation = root.generation_at(now);
        if let Some(opened) = self.lookup(name, now, generation) {
            if let Some(content) = Content::named(opened, &self.memory, now) {
                return Ok(Found::Content(content));
            }
            self.entries().files.remove(name);
        }
        let found = root.find(name)?;
        // A single file is opened for each request, because it may be a link whose target changes.
        if let Found::Content(Content { source: ContentSource::File(opened), .. }) = &found
            && matches!(root, Root::Directory { .. })
        {
            self.insert(name, CachedFile { since: now, generation, opened: opened.clone() });
        }
        Ok(found)
    }

    #[cfg(test)]
    pub(super) fn memory(&self) -> &CacheMemory {
        &self.memory
    }

    fn lookup(&self, name: &[u8], now: SystemTime, generation: u64) -> Option<Arc<OpenFile>> {
        let mut entries = self.entries();
        // The sweep is here because a server that gets no new names inserts nothing.
        if !is_valid(entries.swept, now) {
            entries.swept = now;
            entries.files.retain(|_, files| is_valid(files.since, now));
        }
        let files = entries.files.get(name)?;
        (is_valid(files.since, now) && files.generation == generation).then(|| files.opened.clone())
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, name: &[u8], cached: CachedFile) {
        let mut entries = self.entries();
        if entries.files.len() < FILES_MAX || entries.files.contains_key(name) {
            entries.files.insert(name.to_vec(), cached);
        }
    }
}

/// Uses the clock of file times, so that it is read once per request. If the clock was set back, nothing is
/// valid.
fn is_valid(since: SystemTime, now: SystemTime) -> bool {
    now.duration_since(since).is_ok_and(|age| age < VALID_FOR)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use rustix::io::Errno;

    use super::super::precompressed::siblings;
    use super::*;

    struct Tree {
        dir: PathBuf,
        root: Root,
        open_files: OpenFileCache,
    }

    impl Tree {
        fn new(name: &str) -> Tree {
            let dir = std::env::temp_dir().join(format!("weftwork-recent-{}-{name}", std::process::id()));
            fs::create_dir_all(&dir).unwrap();
            Tree { root: Root::directory(&dir).unwrap(), dir, open_files: OpenFileCache::new() }
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.dir.join(name), text).unwrap();
        }

        fn rename(&self, from: &str, to: &str) {
            fs::rename(self.dir.join(from), self.dir.join(to)).unwrap();
        }

        /// Returns the length of the file that is found.
        fn find(&self, name: &str, now: SystemTime) -> Result<u64> {
            match self.open_files.find_at(&self.root, name.as_bytes(), now)? {
                Found::Content(content) => Ok(content.length),
                Found::Directory(_) | Found::Other => Err(Errno::ISDIR),
            }
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.dir).unwrap();
        }
    }

    #[test]
    fn changes_under_the_same_name_are_seen_at_once() {
        let tree = Tree::new("changes");
        let now = SystemTime::now();
        assert_eq!(tree.find("page", now), Err(Errno::NOENT));
        tree.write("page", "1");
        assert_eq!(tree.find("page", now), Ok(1), "that it was missing is not remembered");
        tree.write("page", "12");
        assert_eq!(tree.find("page", now), Ok(2), "written again in place");
        tree.write("other", "123");
        tree.rename("other", "page");
        assert_eq!(tree.find("page", now), Ok(3), "another file took its name");
        fs::remove_file(tree.dir.join("page")).unwrap();
        assert_eq!(tree.find("page", now), Err(Errno::NOENT));
        std::os::unix::fs::symlink("/etc/passwd", tree.dir.join("page")).unwrap();
        assert_eq!(tree.find("page", now), Err(Errno::LOOP));
    }

    #[test]
    fn a_file_that_was_moved_is_found_for_as_long_as_the_look_up_holds() {
        let tree = Tree::new("moved");
        let now = SystemTime::now();
        tree.write("page", "1");
        assert_eq!(tree.find("page", now), Ok(1));
        tree.rename("page", "elsewhere");
        assert_eq!(tree.find("page", now + VALID_FOR / 2), Ok(1));
        assert_eq!(tree.find("page", now + VALID_FOR), Err(Errno::NOENT));
    }

    #[test]
    fn a_sibling_that_is_new_is_found_when_the_look_up_holds_no_longer() {
        let tree = Tree::new("sibling");
        let now = SystemTime::now();
        let siblings = |now| match tree.open_files.find_at(&tree.root, b"page", now) {
            Ok(Found::Content(page)) => siblings(&tree.root, &tree.open_files, b"page", &page),
            _ => panic!("the page is there"),
        };
        tree.write("page", "1");
        assert_eq!(siblings(now), [false; 3]);
        tree.write("page.gz", "1");
        assert_eq!(siblings(now + VALID_FOR / 2), [false; 3]);
        assert_eq!(tree.find("page.gz", now + VALID_FOR / 2), Ok(1), "asked for by its own name");
        assert_eq!(siblings(now + VALID_FOR), [false, false, true]);
    }

    #[test]
    fn a_file_with_further_links_that_is_replaced_is_seen_at_once() {
        let tree = Tree::new("linked");
        let now = SystemTime::now();
        tree.write("page", "1");
        fs::hard_link(tree.dir.join("page"), tree.dir.join("backup")).unwrap();
        assert_eq!(tree.find("page", now), Ok(1));
        tree.write("other", "123");
        tree.rename("other", "page");
        assert_eq!(tree.find("page", now), Ok(3));
    }

    /// Opens the path step by step, so that it may lead elsewhere at any time.
    #[test]
    fn a_single_file_mount_opens_its_file_for_each_request() {
        let tree = Tree::new("single");
        tree.write("old", "1");
        tree.write("new", "12");
        let switch = |to: &str| {
            std::os::unix::fs::symlink(to, tree.dir.join("next")).unwrap();
            tree.rename("next", "current");
        };
        switch("old");
        let (single, now) = (Root::single(&tree.dir.join("current")).unwrap(), SystemTime::now());
        let length = || match tree.open_files.find_at(&single, b"current", now) {
            Ok(Found::Content(content)) => content.length,
            _ => panic!("it is there"),
        };
        assert_eq!(length(), 1);
        switch("new");
        assert_eq!(length(), 2);
    }

    #[test]
    fn an_unused_file_is_closed_at_the_next_lookup() {
        let tree = Tree::new("closed");
        let now = SystemTime::now();
        let open = || tree.open_files.entries.lock().unwrap().files.len();
        let find_all = |now| {
            for name in ["a", "b", "c"] {
                tree.write(name, "1");
                assert_eq!(tree.find(name, now), Ok(1));
            }
        };
        find_all(now);
        assert_eq!(open(), 3);
        fs::remove_file(tree.dir.join("c")).unwrap();
        assert_eq!(tree.find("c", now), Err(Errno::NOENT));
        assert_eq!(open(), 2, "it has no name any more");
        assert_eq!(tree.find("missing", now + VALID_FOR), Err(Errno::NOENT));
        assert_eq!(open(), 0, "also when nothing is found");
        find_all(now + VALID_FOR);
        assert_eq!(tree.find("d", now + VALID_FOR * 3 / 2), Err(Errno::NOENT));
        tree.write("d", "1");
        assert_eq!(tree.find("d", now + VALID_FOR * 3 / 2), Ok(1));
        assert_eq!(tree.find("d", now + VALID_FOR * 2), Ok(1));
        assert_eq!(open(), 1, "also when what is found is open already");
    }

    #[test]
    fn a_bounded_number_of_files_stays_open() {
        let tree = Tree::new("bounded");
        let now = SystemTime::now();
        for number in 0..FILES_MAX + 10 {
            tree.write(&number.to_string(), "1");
            assert_eq!(tree.find(&number.to_string(), now), Ok(1));
        }
        let open = || tree.open_files.entries.lock().unwrap().files.len();
        assert_eq!(open(), FILES_MAX);
        assert_eq!(tree.find("0", now + 2 * VALID_FOR), Ok(1));
        assert_eq!(open(), 1, "those that nobody asked for are closed");
    }
}
