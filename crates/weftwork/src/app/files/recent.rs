//! Which files were opened a moment ago: who asks for them again is spared the look-up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::io::Result;

use super::kept::Memory;
use super::place::{Content, Found, Opened, Place, Source};

/// So long the outcome of a look-up holds. What is in the file, and whether it still has its names, is asked each time:
/// only a file that was moved, or one of whose directories or links was, is found for that much longer.
const HOLDS: Duration = Duration::from_secs(1);
/// Each keeps a descriptor open.
const NAMES_MAX: usize = 128;

/// Opening and closing a file takes the kernel 1.5 us; a request for a file of 1 KiB takes 8.
pub(super) struct Recent {
    names: Mutex<Names>,
    memory: Arc<Memory>,
}

struct Names {
    known: HashMap<Vec<u8>, Known>,
    swept: SystemTime,
}

struct Known {
    since: SystemTime,
    opened: Arc<Opened>,
}

impl Recent {
    pub(super) fn new() -> Recent {
        Recent {
            names: Mutex::new(Names { known: HashMap::new(), swept: SystemTime::now() }),
            memory: Arc::default(),
        }
    }

    /// What `name` stands for in `place`. That there is nothing is never remembered: somebody may be waiting for it.
    pub(super) fn find(&self, place: &Place, name: &[u8]) -> Result<Found> {
        self.find_at(place, name, SystemTime::now())
    }

    pub(super) fn find_at(&self, place: &Place, name: &[u8], now: SystemTime) -> Result<Found> {
        if let Some(opened) = self.recall(name, now) {
            if let Some(content) = Content::named(opened, &self.memory, now) {
                return Ok(Found::Content(content));
            }
            self.names().known.remove(name);
        }
        let found = place.find(name)?;
        // One file alone is opened anew for each request: it may be behind a link that is switched.
        if let Found::Content(Content { source: Source::File(opened), .. }) = &found
            && matches!(place, Place::Directory { .. })
        {
            self.note(name, opened.clone(), now);
        }
        Ok(found)
    }

    #[cfg(test)]
    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }

    fn recall(&self, name: &[u8], now: SystemTime) -> Option<Arc<Opened>> {
        let mut names = self.names();
        // Here, for where nothing new is asked for nothing is noted either.
        if !holds(names.swept, now) {
            names.swept = now;
            names.known.retain(|_, known| holds(known.since, now));
        }
        let known = names.known.get(name)?;
        holds(known.since, now).then(|| known.opened.clone())
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, name: &[u8], opened: Arc<Opened>, now: SystemTime) {
        let mut names = self.names();
        if names.known.len() < NAMES_MAX || names.known.contains_key(name) {
            names.known.insert(name.to_vec(), Known { since: now, opened });
        }
    }
}

/// By the clock that the times of files are compared with, so that it is read once a request. Where it was set back,
/// nothing holds.
fn holds(since: SystemTime, now: SystemTime) -> bool {
    now.duration_since(since).is_ok_and(|age| age < HOLDS)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use rustix::io::Errno;

    use super::super::variants::siblings;
    use super::*;

    struct Tree {
        root: PathBuf,
        place: Place,
        recent: Recent,
    }

    impl Tree {
        fn new(name: &str) -> Tree {
            let root = std::env::temp_dir().join(format!("weftwork-recent-{}-{name}", std::process::id()));
            fs::create_dir_all(&root).unwrap();
            Tree { place: Place::directory(&root).unwrap(), root, recent: Recent::new() }
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.root.join(name), text).unwrap();
        }

        fn rename(&self, from: &str, to: &str) {
            fs::rename(self.root.join(from), self.root.join(to)).unwrap();
        }

        /// The length of what is found.
        fn find(&self, name: &str, now: SystemTime) -> Result<u64> {
            match self.recent.find_at(&self.place, name.as_bytes(), now)? {
                Found::Content(content) => Ok(content.length),
                Found::Directory(_) | Found::Other => Err(Errno::ISDIR),
            }
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.root).unwrap();
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
        fs::remove_file(tree.root.join("page")).unwrap();
        assert_eq!(tree.find("page", now), Err(Errno::NOENT));
        std::os::unix::fs::symlink("/etc/passwd", tree.root.join("page")).unwrap();
        assert_eq!(tree.find("page", now), Err(Errno::LOOP));
    }

    #[test]
    fn a_file_that_was_moved_is_found_for_as_long_as_the_look_up_holds() {
        let tree = Tree::new("moved");
        let now = SystemTime::now();
        tree.write("page", "1");
        assert_eq!(tree.find("page", now), Ok(1));
        tree.rename("page", "elsewhere");
        assert_eq!(tree.find("page", now + HOLDS / 2), Ok(1));
        assert_eq!(tree.find("page", now + HOLDS), Err(Errno::NOENT));
    }

    #[test]
    fn a_sibling_that_is_new_is_found_when_the_look_up_holds_no_longer() {
        let tree = Tree::new("sibling");
        let now = SystemTime::now();
        let siblings = |now| match tree.recent.find_at(&tree.place, b"page", now) {
            Ok(Found::Content(page)) => siblings(&tree.place, b"page", &page),
            _ => panic!("the page is there"),
        };
        tree.write("page", "1");
        assert_eq!(siblings(now), [false; 3]);
        tree.write("page.gz", "1");
        assert_eq!(siblings(now + HOLDS / 2), [false; 3]);
        assert_eq!(tree.find("page.gz", now + HOLDS / 2), Ok(1), "asked for by its own name");
        assert_eq!(siblings(now + HOLDS), [false, false, true]);
    }

    #[test]
    fn a_file_with_further_links_that_is_replaced_is_seen_at_once() {
        let tree = Tree::new("linked");
        let now = SystemTime::now();
        tree.write("page", "1");
        fs::hard_link(tree.root.join("page"), tree.root.join("backup")).unwrap();
        assert_eq!(tree.find("page", now), Ok(1));
        tree.write("other", "123");
        tree.rename("other", "page");
        assert_eq!(tree.find("page", now), Ok(3));
    }

    /// By hand, so that it may lead elsewhere at any time.
    #[test]
    fn one_file_alone_is_opened_anew_each_time() {
        let tree = Tree::new("single");
        tree.write("old", "1");
        tree.write("new", "12");
        let switch = |to: &str| {
            std::os::unix::fs::symlink(to, tree.root.join("next")).unwrap();
            tree.rename("next", "current");
        };
        switch("old");
        let (single, now) = (Place::single(&tree.root.join("current")).unwrap(), SystemTime::now());
        let length = || match tree.recent.find_at(&single, b"current", now) {
            Ok(Found::Content(content)) => content.length,
            _ => panic!("it is there"),
        };
        assert_eq!(length(), 1);
        switch("new");
        assert_eq!(length(), 2);
    }

    #[test]
    fn what_nobody_asked_for_is_closed_with_the_next_look_up() {
        let tree = Tree::new("closed");
        let now = SystemTime::now();
        let open = || tree.recent.names.lock().unwrap().known.len();
        let find_all = |now| {
            for name in ["a", "b", "c"] {
                tree.write(name, "1");
                assert_eq!(tree.find(name, now), Ok(1));
            }
        };
        find_all(now);
        assert_eq!(open(), 3);
        fs::remove_file(tree.root.join("c")).unwrap();
        assert_eq!(tree.find("c", now), Err(Errno::NOENT));
        assert_eq!(open(), 2, "it has no name any more");
        assert_eq!(tree.find("missing", now + HOLDS), Err(Errno::NOENT));
        assert_eq!(open(), 0, "also when nothing is found");
        find_all(now + HOLDS);
        assert_eq!(tree.find("d", now + HOLDS * 3 / 2), Err(Errno::NOENT));
        tree.write("d", "1");
        assert_eq!(tree.find("d", now + HOLDS * 3 / 2), Ok(1));
        assert_eq!(tree.find("d", now + HOLDS * 2), Ok(1));
        assert_eq!(open(), 1, "also when what is found is open already");
    }

    #[test]
    fn a_bounded_number_of_files_stays_open() {
        let tree = Tree::new("bounded");
        let now = SystemTime::now();
        for number in 0..NAMES_MAX + 10 {
            tree.write(&number.to_string(), "1");
            assert_eq!(tree.find(&number.to_string(), now), Ok(1));
        }
        let open = || tree.recent.names.lock().unwrap().known.len();
        assert_eq!(open(), NAMES_MAX);
        assert_eq!(tree.find("0", now + 2 * HOLDS), Ok(1));
        assert_eq!(open(), 1, "those that nobody asked for are closed");
    }
}
