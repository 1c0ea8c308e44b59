//! Chooses a precompressed file to send instead of the original.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::io::Errno;
use weftwork_wire::fields::quality;

use super::open_file_cache::OpenFileCache;
use super::root::{Content, ContentSource, Found, Root};
use crate::message::Request;
use crate::transport::log_queue::log_line;

/// Codings and the extensions of their files. With equal weights, the smallest comes first.
const CODINGS: [(&str, &[u8]); 3] = [("br", b".br"), ("zstd", b".zst"), ("gzip", b".gz")];

/// Difference in whole seconds by which a precompressed file may be older. Many tools drop the fraction of a second,
/// and zip archives and FAT have steps of two seconds.
const OLDER_MAX: u64 = 2;

/// Maximum number of log lines about precompressed files that are not sent.
const LINES_MAX: usize = 1000;

/// Tells which of [`CODINGS`] have a file.
pub(super) type Siblings = [bool; CODINGS.len()];

/// Precompressed files that are not sent, each of which has its line in the log: path, and seconds by which the file is
/// too old.
#[derive(Debug, Default)]
pub(super) struct SkippedSiblings(Mutex<HashSet<(Vec<u8>, u64)>>);

impl SkippedSiblings {
    fn note(&self, path: Vec<u8>, older: u64, why: fmt::Arguments<'_>) {
        let mut skipped = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&path).into_owned();
        let is_new = skipped.len() < LINES_MAX && skipped.insert((path, older));
        drop(skipped);
        if is_new {
            log_line!(Warn, "the precompressed file {text:?} is not sent: {why}");
        }
    }
}

/// Returns the precompressed file that the client prefers, or the original.
pub(super) fn choose(
    root: &Root,
    open_files: &OpenFileCache,
    req: &Request<'_>,
    path: &[u8],
    plain: Content,
) -> (Content, Option<&'static str>) {
    let lines: Vec<&[u8]> = req.header_values("accept-encoding").collect();
    if lines.is_empty() {
        return (plain, None);
    }
    let siblings = siblings(root, open_files, path, &plain);
    if !siblings.contains(&true) {
        return (plain, None);
    }
    let least = quality(&lines, "identity");
    let there = CODINGS.iter().zip(siblings).filter(|(_, is_there)| *is_there);
    let mut wanted: Vec<_> = there.map(|(coding, _)| (quality(&lines, coding.0), coding)).collect();
    // The sort is stable, so equal weights stay in the order of the table.
    wanted.sort_by_key(|(quality, _)| Reverse(*quality));
    for (quality, (coding, extension)) in wanted {
        if quality == 0 || quality < least {
            break;
        }
        let name = [path, extension].concat();
        let Ok(Found::Content(sibling)) = open_files.find(root, &name) else { continue };
        if sibling.length == 0 {
            // A full disk leaves such files, and every coding gives at least a byte.
            open_files.skipped.note(name, 0, format_args!("it is empty. Compress the original again"));
            continue;
        }
        match seconds_older(&sibling, &plain) {
            0..=OLDER_MAX => return (sibling, Some(coding)),
            older => open_files.skipped.note(
                name,
                older,
                format_args!("it is {older} s older than the original. Compress the original again"),
            ),
        }
    }
    (plain, None)
}

/// Returns the difference of the modification times in whole seconds. Embedded files have none.
fn seconds_older(sibling: &Content, plain: &Content) -> u64 {
    plain.modified.map_or(0, whole_seconds).saturating_sub(sibling.modified.map_or(0, whole_seconds))
}

fn whole_seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).as_ref().map_or(0, Duration::as_secs)
}

/// Looks for precompressed files once while `plain` is open. Most files have none, and most clients accept
/// them.
pub(super) fn siblings(root: &Root, open_files: &OpenFileCache, path: &[u8], plain: &Content) -> Siblings {
    let is_there = |extension| {
        let name = [path, extension].concat();
        match root.find_in_current(&name) {
            Ok(Found::Content(_)) => true,
            Ok(Found::Directory(_) | Found::Other) | Err(Errno::NOENT | Errno::NAMETOOLONG) => false,
            Err(error) => {
                open_files.skipped.note(name, 0, format_args!("{error}"));
                false
            }
        }
    };
    let look = || CODINGS.map(|(_, extension)| is_there(extension));
    match &plain.source {
        ContentSource::File(opened) => *opened.siblings.get_or_init(look),
        ContentSource::Bytes(_) => look(),
    }
}
