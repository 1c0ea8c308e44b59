//! Directory listings.

use std::fmt::Write;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, statat};
use rustix::io::{Errno, Result};

use super::root::Found;
use super::target::{is_servable, joined};
use crate::message::escaped;

/// Maximum number of names on a page, about 2 MB. The limit bounds the memory.
const ENTRIES_MAX: usize = 10_000;
/// Maximum size of all rows. A name of 255 quotes takes 2 KB.
const ROWS_BYTES_MAX: usize = 2 << 20;

const STYLE: &str = "\
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:48rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.25rem;overflow-wrap:anywhere}
table{width:100%;border-collapse:collapse}
td{padding:.2rem 0;border-top:1px solid color-mix(in srgb,currentColor 15%,transparent);overflow-wrap:anywhere}
td+td{text-align:right;white-space:nowrap;padding-left:1rem;opacity:.7}
";

struct Entry {
    name: Vec<u8>,
    /// `None` for a directory.
    bytes: Option<u64>,
}

/// Returns the page that lists `directory`, whose path under the root is `path`. `find` resolves links.
pub(super) fn page(
    directory: &OwnedFd,
    path: &[u8],
    hidden: bool,
    find: impl Fn(&[u8]) -> Option<Found>,
) -> Result<String> {
    let linked = |name: &[u8]| match find(&joined(path, name))? {
        Found::Content(content) => Some(Some(content.length)),
        Found::Directory(_) => Some(None),
        Found::Other => None,
    };
    let (entries, mut whole) = entries(directory, hidden, linked)?;
    let title = match path {
        [] => "/".to_owned(),
        path => escaped(&format!("/{}/", String::from_utf8_lossy(path))).to_string(),
    };
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n<h1>{title}</h1>\n<table>\n"
    );
    if !path.is_empty() {
        page.push_str("<tr><td><a href=\"../\">../</a><td>\n");
    }
    let start = page.len();
    for Entry { name, bytes } in &entries {
        if page.len() - start > ROWS_BYTES_MAX {
            whole = false;
            break;
        }
        let slash = if bytes.is_none() { "/" } else { "" };
        let name_text = String::from_utf8_lossy(name);
        let shown = escaped(&name_text);
        let size = bytes.map(size).unwrap_or_default();
        // Cannot fail: writing to a `String` does not fail.
        let _ = writeln!(page, "<tr><td><a href=\"{}{slash}\">{shown}{slash}</a><td>{size}", encoded(name));
    }
    page.push_str("</table>\n");
    if !whole {
        page.push_str("<p>The list is incomplete.\n");
    }
    Ok(page)
}

/// Returns the entries that are served, directories first, each group sorted by name. The second value is false
/// if entries were left out.
fn entries(
    directory: &OwnedFd,
    hidden: bool,
    linked: impl Fn(&[u8]) -> Option<Option<u64>>,
) -> Result<(Vec<Entry>, bool)> {
    let mut found = Vec::new();
    let mut whole = true;
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if !is_servable(name.to_bytes(), hidden) {
            continue;
        }
        let stat = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // The entry was removed after its name was read, or is not readable.
            Err(Errno::NOENT | Errno::ACCESS) => continue,
            Err(error) => return Err(error),
        };
        let bytes = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => None,
            FileType::RegularFile => Some(u64::try_from(stat.st_size).unwrap_or(0)),
            FileType::Symlink => match linked(name.to_bytes()) {
                Some(bytes) => bytes,
                None => continue,
            },
            _ => continue,
        };
        if found.len() == ENTRIES_MAX {
            whole = false;
            break;
        }
        found.push(Entry { name: name.to_bytes().to_vec(), bytes });
    }
    found.sort_by(|a, b| (a.bytes.is_some(), &a.name).cmp(&(b.bytes.is_some(), &b.name)));
    Ok((found, whole))
}

/// Encodes a name as a relative reference (RFC 3986 section 2.3). Only unreserved characters stay unchanged.
pub(super) fn encoded(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(*byte))
            }
            byte => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

/// Formats a size with one decimal, as in `1.5 KiB`.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let power = bytes.ilog2() / 10;
    let tenths = (bytes >> (10 * (power - 1))) * 10 / 1024;
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[power as usize - 1])
}
