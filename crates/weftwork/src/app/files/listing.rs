//! Directory listings.

use std::cmp::Ordering;
use std::fmt::{self, Write};
use std::os::fd::OwnedFd;
use std::time::SystemTime;

use rustix::fs::{AtFlags, Dir, FileType, statat};
use rustix::io::{Errno, Result};
use weftwork_wire::Date;

use super::root::{Found, time};
use super::target::{is_servable, joined};
use crate::message::{Request, escaped};

/// Maximum number of names on a page, about 2 MB. The limit bounds the memory.
const ENTRIES_MAX: usize = 10_000;
/// Maximum size of all rows. A name of 255 quotes takes 2 KB.
const ROWS_BYTES_MAX: usize = 2 << 20;

const STYLE: &str = "\
:root{color-scheme:light dark;--soft:#5b636e;--edge:#e4e4df;--link:#1d5fd1;--page:#fafaf8}
@media(prefers-color-scheme:dark){:root{--soft:#9da5b0;--edge:#2b3037;--link:#79b0ff;--page:#101214}}
body{font:16px/1.55 system-ui,sans-serif;max-width:56rem;margin:clamp(1rem,5vw,3rem) auto;padding:0 1rem;background:var(--page)}
h1{margin:0 0 1rem;font-size:1.35rem;line-height:1.3;overflow-wrap:anywhere}
a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}
input,button{font:inherit;font-size:.9rem;padding:.35rem .6rem;border:1px solid var(--edge);border-radius:.4rem}
input{width:min(16rem,60%)}
table{width:100%;margin-top:1rem;border-collapse:collapse}
th{padding:.3rem 0;font-size:.85rem;font-weight:500;text-align:left}
td{padding:.35rem 0;border-top:1px solid var(--edge);overflow-wrap:anywhere}
td+td,th+th{text-align:right;white-space:nowrap;padding-left:1rem}
td+td,p{color:var(--soft);font-size:.9rem;font-variant-numeric:tabular-nums}
@media(max-width:32rem){td+td+td,th+th+th{display:none}}
";

struct Entry {
    name: Vec<u8>,
    /// `None` for a directory.
    bytes: Option<u64>,
    modified: SystemTime,
}

/// Column that the entries are sorted by.
#[derive(Clone, Copy, PartialEq)]
enum Sort {
    Name,
    Size,
    Date,
}

/// What the query of a page asks for.
pub(super) struct ListingQuery {
    sort: Sort,
    is_descending: bool,
    /// Only names that contain this text are listed. Case does not matter.
    filter: String,
}

impl ListingQuery {
    /// Reads `?sort=size&order=desc&filter=text`. Other values have no effect.
    pub(super) fn of(req: &Request<'_>) -> ListingQuery {
        let sort = match req.query_value("sort").as_deref() {
            Some("size") => Sort::Size,
            Some("date") => Sort::Date,
            _ => Sort::Name,
        };
        let is_descending = req.query_value("order").as_deref() == Some("desc");
        let filter = req.query_value("filter").unwrap_or_default().into_owned();
        ListingQuery { sort, is_descending, filter }
    }

    /// Orders the entries, directories first. Names are the last criterion.
    fn sort(&self, entries: &mut [Entry]) {
        entries.sort_by(|a, b| {
            let order = match self.sort {
                Sort::Name => Ordering::Equal,
                Sort::Size => a.bytes.cmp(&b.bytes),
                Sort::Date => a.modified.cmp(&b.modified),
            };
            let order = order.then_with(|| a.name.cmp(&b.name));
            let order = if self.is_descending { order.reverse() } else { order };
            a.bytes.is_some().cmp(&b.bytes.is_some()).then(order)
        });
    }

    fn has(&self, name: &[u8]) -> bool {
        let name = String::from_utf8_lossy(name).to_lowercase();
        self.filter.is_empty() || name.contains(&self.filter.to_lowercase())
    }

    /// Writes the form of the filter, and the heads of the columns, which are links that sort.
    fn write_head(&self, page: &mut String) -> fmt::Result {
        let filter = escaped(&self.filter);
        write!(
            page,
            "<form><input name=\"filter\" type=\"search\" value=\"{filter}\" aria-label=\"Part of a name\"> \
             <button>Filter</button></form>\n<table>\n<tr>"
        )?;
        let columns = [(Sort::Name, "name"), (Sort::Size, "size"), (Sort::Date, "date")];
        for (sort, name) in columns {
            let is_shown = sort == self.sort;
            let order = if is_shown && !self.is_descending { "&amp;order=desc" } else { "" };
            let filter = match self.filter.as_str() {
                "" => String::new(),
                filter => format!("&amp;filter={}", encoded(filter.as_bytes())),
            };
            let mark = match (is_shown, self.is_descending) {
                (false, _) => "",
                (true, false) => " \u{2191}",
                (true, true) => " \u{2193}",
            };
            write!(page, "<th><a href=\"?sort={name}{order}{filter}\">{name}{mark}</a>")?;
        }
        page.push('\n');
        Ok(())
    }
}

/// Returns the page that lists `directory`, whose path under the root is `path`. `find` resolves links.
pub(super) fn page(
    directory: &OwnedFd,
    path: &[u8],
    hidden: bool,
    view: &ListingQuery,
    find: impl Fn(&[u8]) -> Option<Found>,
) -> Result<String> {
    let linked = |name: &[u8]| match find(&joined(path, name))? {
        Found::Content(content) => Some((Some(content.length), content.modified)),
        Found::Directory(_) => Some((None, None)),
        Found::Other => None,
    };
    let (mut entries, mut whole) = entries(directory, hidden, linked)?;
    entries.retain(|entry| view.has(&entry.name));
    view.sort(&mut entries);
    let mut page = String::with_capacity(8 << 10);
    // Cannot fail: writing to a `String` does not fail.
    let _ = write_top(&mut page, path).and_then(|()| view.write_head(&mut page));
    let start = page.len();
    for Entry { name, bytes, modified } in &entries {
        if page.len() - start > ROWS_BYTES_MAX {
            whole = false;
            break;
        }
        let slash = if bytes.is_none() { "/" } else { "" };
        let name_text = String::from_utf8_lossy(name);
        let shown = escaped(&name_text);
        let size = bytes.map(size).unwrap_or_default();
        let date = date(*modified);
        // Cannot fail: writing to a `String` does not fail.
        let _ = writeln!(
            page,
            "<tr><td><a href=\"{}{slash}\">{shown}{slash}</a><td>{size}<td>{date}",
            encoded(name)
        );
    }
    page.push_str("</table>\n");
    if entries.is_empty() {
        page.push_str("<p>No names to list.\n");
    }
    if !whole {
        page.push_str("<p>The list is incomplete.\n");
    }
    Ok(page)
}

/// Writes the start of the page, with a link to each directory above.
fn write_top(page: &mut String, path: &[u8]) -> fmt::Result {
    let segments: Vec<&[u8]> =
        path.split(|byte| *byte == b'/').filter(|segment| !segment.is_empty()).collect();
    let title = match path {
        [] => "/".to_owned(),
        path => escaped(&format!("/{}/", String::from_utf8_lossy(path))).to_string(),
    };
    write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n<h1>"
    )?;
    let above = |count: usize| "../".repeat(count);
    match segments.len() {
        0 => page.push('/'),
        count => write!(page, "<a href=\"{}\">/</a>", above(count))?,
    }
    for (index, segment) in segments.iter().enumerate() {
        let name = String::from_utf8_lossy(segment);
        match segments.len() - index - 1 {
            0 => write!(page, " {}/", escaped(&name))?,
            count => write!(page, " <a href=\"{}\">{}/</a>", above(count), escaped(&name))?,
        }
    }
    page.push_str("</h1>\n");
    Ok(())
}

/// Formats a time in UTC, to the minute.
fn date(at: SystemTime) -> String {
    // `Sun, 06 Nov 1994 08:49:37 GMT`
    let date = Date::at(at);
    String::from_utf8_lossy(date.as_bytes().get(5..22).unwrap_or_default()).into_owned()
}

/// Size and time of what a link leads to. The size of a directory is `None`.
type Target = (Option<u64>, Option<SystemTime>);

/// Returns the entries that are served. The second value is false if entries were left out.
fn entries(
    directory: &OwnedFd,
    hidden: bool,
    linked: impl Fn(&[u8]) -> Option<Target>,
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
        let own = time(stat.st_mtime, 0);
        let (bytes, modified) = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => (None, None),
            FileType::RegularFile => (Some(u64::try_from(stat.st_size).unwrap_or(0)), None),
            FileType::Symlink => match linked(name.to_bytes()) {
                Some(target) => target,
                None => continue,
            },
            _ => continue,
        };
        if found.len() == ENTRIES_MAX {
            whole = false;
            break;
        }
        found.push(Entry { name: name.to_bytes().to_vec(), bytes, modified: modified.unwrap_or(own) });
    }
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
