//! Which compressed sibling of a file is sent in its place.

use weftwork_wire::fields::quality;

use super::place::{Content, Place};
use super::recent::Recent;
use crate::message::Request;

/// Codings and the extensions of their siblings; where clients want them equally, the smallest first.
const CODINGS: [(&str, &[u8]); 3] = [("br", b".br"), ("zstd", b".zst"), ("gzip", b".gz")];

/// The sibling that this client likes best, or the file itself.
pub(super) fn choose(
    place: &Place,
    recent: &Recent,
    req: &Request<'_>,
    path: &[u8],
    plain: Content,
) -> (Content, Option<&'static str>) {
    let lines: Vec<&[u8]> = req.header_values("accept-encoding").collect();
    if lines.is_empty() {
        return (plain, None);
    }
    let least = quality(&lines, "identity");
    let mut wanted = CODINGS.map(|(coding, extension)| (quality(&lines, coding), coding, extension));
    // Stable: equals stay in the order of the table.
    wanted.sort_by_key(|(quality, ..)| std::cmp::Reverse(*quality));
    for (quality, coding, extension) in wanted {
        if quality == 0 || quality < least {
            break;
        }
        if let Some(sibling) = recent.find_sibling(place, &[path, extension].concat())
            && sibling.modified >= plain.modified
        {
            return (sibling, Some(coding));
        }
    }
    (plain, None)
}
