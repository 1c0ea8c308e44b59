//! Entity tag and modification date of a file.

use std::time::{Duration, SystemTime};

use http::HeaderValue;
use weftwork_wire::Date;
use weftwork_wire::fields::{EntityTag, Validators};

use super::content_hash::ContentHashes;
use super::root::{Content, ContentSource};

/// Clocks of file systems tick every few milliseconds, some every two seconds. A file that changed more
/// recently may change again and keep its time.
const STABLE_AFTER: Duration = Duration::from_secs(2);

/// Builds of software write no files before this time, 1990-01-01, but reproducible builds, zip archives and package
/// managers set such times (1970, 1980, 1985). The time is then the same for all versions of a file.
const ARTIFICIAL_BEFORE: Duration = Duration::from_secs(631_152_000);
/// Later times of that kind, from the build tool Bazel: the begin of 2000 and of 2010.
const ARTIFICIAL: [Duration; 2] = [Duration::from_secs(946_684_800), Duration::from_secs(1_262_304_000)];

/// Values of the fields `ETag` and `Last-Modified`.
#[derive(Clone, Debug)]
pub(super) struct FileMetadata {
    pub(super) tag: Option<HeaderValue>,
    pub(super) modified: Option<HeaderValue>,
    weak: bool,
    /// State of the file that the values were computed from.
    state: u64,
    changed: Option<SystemTime>,
    length: u64,
    coding: Option<&'static str>,
}

/// A number that is another one for another content of the same length.
struct ContentVersion {
    number: u64,
    /// Time after which a change leads to another number. `None` if every change does.
    since: Option<SystemTime>,
}

impl Content {
    /// Returns the metadata of the file when sent with `coding`.
    ///
    /// For a stable file, the metadata is computed once while the file stays open, which saves 1,400
    /// instructions a request. If the file changes, or is also sent with another coding, the metadata is
    /// computed each time until the file is opened again.
    pub(super) fn metadata(&self, coding: Option<&'static str>, hashes: &ContentHashes) -> FileMetadata {
        let made = || FileMetadata::of(self, coding, hashes);
        let since = if self.is_time_set() { self.changed } else { self.modified };
        match &self.source {
            ContentSource::File(opened) if since.is_none_or(|at| self.is_stable_since(at)) => {
                let cached = opened.metadata.get_or_init(made);
                if cached.is_of(self, coding) { cached.clone() } else { made() }
            }
            ContentSource::File(_) | ContentSource::Bytes(_) => made(),
        }
    }

    fn version(&self, hashes: &ContentHashes) -> ContentVersion {
        if !self.is_time_set() {
            return ContentVersion { number: self.state, since: self.modified };
        }
        match (hashes.of(self), self.changed) {
            (Some(hash), _) => ContentVersion { number: hash, since: None },
            (None, Some(changed)) if self.is_artificial() || self.is_ahead() => {
                // The same file has another number on another machine, so it may be sent once more.
                let nanos = changed.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
                ContentVersion { number: nanos as u64, since: Some(changed) }
            }
            _ => ContentVersion { number: self.state, since: self.modified },
        }
    }

    /// Returns whether a tool has set the modification time, in whole seconds or to a time to come. Another version of the
    /// file may have the same one. A write would have set the change time too.
    fn is_time_set(&self) -> bool {
        let (Some(modified), Some(changed)) = (self.modified, self.changed) else { return false };
        let is_whole = modified.duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|at| at.subsec_nanos() == 0);
        self.is_ahead()
            || is_whole && changed.duration_since(modified).is_ok_and(|later| later > STABLE_AFTER)
    }

    /// Returns whether the file was changed before its modification time.
    fn is_ahead(&self) -> bool {
        self.changed.is_some_and(|changed| self.modified.is_some_and(|modified| modified > changed))
    }

    fn is_artificial(&self) -> bool {
        let since = self.modified.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
        since.is_some_and(|since| since < ARTIFICIAL_BEFORE || ARTIFICIAL.contains(&since))
    }

    /// Returns whether a change now would give the file another time than `at`.
    pub(super) fn is_stable_since(&self, at: SystemTime) -> bool {
        at.checked_add(STABLE_AFTER).is_some_and(|settled| settled <= self.seen)
    }

    /// Returns the date of the last change, if it is known. RFC 9110 section 8.8.2.1: it is never later than the
    /// response.
    fn dated(&self) -> Option<SystemTime> {
        self.modified.filter(|_| !self.is_artificial()).map(|at| at.min(self.seen))
    }
}

impl FileMetadata {
    fn of(content: &Content, coding: Option<&'static str>, hashes: &ContentHashes) -> FileMetadata {
        let Content { state, length, changed, .. } = *content;
        let ContentVersion { number, since } = content.version(hashes);
        let weak = since.is_some_and(|at| !content.is_stable_since(at));
        let start = if weak { "W/" } else { "" };
        let (dash, name) = coding.map_or(("", ""), |name| ("-", name));
        let tag = format!("{start}\"{number:x}-{length:x}{dash}{name}\"");
        let date = |at| HeaderValue::from_bytes(Date::at(at).as_bytes()).ok();
        FileMetadata {
            // Cannot fail: both values are ASCII.
            tag: HeaderValue::try_from(tag).ok(),
            modified: content.dated().and_then(date),
            weak,
            state,
            changed,
            length,
            coding,
        }
    }

    fn is_of(&self, content: &Content, coding: Option<&'static str>) -> bool {
        (self.state, self.changed, self.length, self.coding)
            == (content.state, content.changed, content.length, coding)
    }

    /// Returns the validators that conditions of requests are compared with. `content` is the file that this
    /// metadata describes.
    pub(super) fn validators(&self, content: &Content) -> Validators<'_> {
        let tag = self.tag.as_ref().and_then(|tag| {
            let quoted = tag.as_bytes().strip_prefix(b"W/").unwrap_or(tag.as_bytes());
            let opaque = quoted.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
            Some(EntityTag { weak: self.weak, opaque })
        });
        Validators { tag, modified: content.dated() }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use super::super::root::OpenFile;
    use super::*;

    /// A time after that of reproducible builds.
    fn changed() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777)
    }

    fn opened() -> Arc<OpenFile> {
        OpenFile::new(File::open("/dev/null").unwrap(), 1)
    }

    /// Returns the metadata of `opened`, which changed in 1994 and was read `age` later.
    fn content(opened: &Arc<OpenFile>, state: u64, length: u64, age: Duration) -> Content {
        let source = ContentSource::File(opened.clone());
        Content { source, length, modified: Some(changed()), changed: None, state, seen: changed() + age }
    }

    #[test]
    fn a_tag_is_strong_when_the_file_has_settled_and_only_then() {
        let opened = opened();
        // Before the last one, the clock was set back.
        for (age, want) in
            [(0, "W/\"a-3\""), (1999, "W/\"a-3\""), (2000, "\"a-3\""), (9000, "\"a-3\""), (1000, "W/\"a-3\"")]
        {
            let content = content(&opened, 10, 3, Duration::from_millis(age));
            let metadata = content.metadata(None, &ContentHashes::default());
            assert_eq!(metadata.tag.as_ref().unwrap(), want, "after {age} ms");
            let EntityTag { weak, opaque } = metadata.validators(&content).tag.unwrap();
            assert_eq!((weak, opaque), (want.starts_with('W'), &b"a-3"[..]), "after {age} ms");
        }
    }

    #[test]
    fn a_file_has_not_changed_later_than_it_was_looked_at() {
        let content = Content {
            seen: changed(),
            modified: Some(changed() + STABLE_AFTER),
            ..content(&opened(), 1, 1, STABLE_AFTER)
        };
        let metadata = content.metadata(None, &ContentHashes::default());
        assert_eq!(metadata.modified.as_ref().unwrap(), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(metadata.validators(&content).modified, Some(changed()));
    }

    #[test]
    fn what_is_kept_is_sent_for_the_same_bytes_alone() {
        let opened = opened();
        let describe = |state, length, coding| {
            content(&opened, state, length, STABLE_AFTER)
                .metadata(coding, &ContentHashes::default())
                .tag
                .unwrap()
        };
        let first = describe(1, 1, None);
        assert_eq!(first, "\"1-1\"");
        assert_eq!(describe(1, 1, None).as_bytes().as_ptr(), first.as_bytes().as_ptr(), "made once");
        assert_eq!(describe(2, 1, None), "\"2-1\"");
        assert_eq!(describe(1, 2, None), "\"1-2\"");
        assert_eq!(describe(1, 1, Some("gzip")), "\"1-1-gzip\"");
        assert_eq!(describe(u64::MAX, u64::MAX, Some("zstd")), "\"ffffffffffffffff-ffffffffffffffff-zstd\"");
        assert_eq!(describe(1, 1, None), "\"1-1\"");
    }
}
