//! Chooses a precompressed file to send instead of the original.

use std::cmp::Reverse;

use weftwork_wire::fields::quality;

use super::open_file_cache::OpenFileCache;
use super::root::{Content, ContentSource, Found, Root};
use crate::message::Request;

/// Codings and the extensions of their files. With equal weights, the smallest comes first.
const CODINGS: [(&str, &[u8]); 3] = [("br", b".br"), ("zstd", b".zst"), ("gzip", b".gz")];

/// Tells which of [`CODINGS`] have a file.
pub(super) type Siblings = [bool; CODINGS.len()];

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
    let siblings = siblings(root, path, &plain);
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
        if let Ok(Found::Content(sibling)) = open_files.find(root, &[path, extension].concat())
            && sibling.modified >= plain.modified
        {
            return (sibling, Some(coding));
        }
    }
    (plain, None)
}

/// Looks for precompressed files once while `plain` is open. Most files have none, and most clients accept
/// them.
pub(super) fn siblings(root: &Root, path: &[u8], plain: &Content) -> Siblings {
    let is_there = |extension| matches!(root.find(&[path, extension].concat()), Ok(Found::Content(_)));
    let look = || CODINGS.map(|(_, extension)| is_there(extension));
    match &plain.source {
        ContentSource::File(opened) => *opened.siblings.get_or_init(look),
        ContentSource::Bytes(_) => look(),
    }
}
