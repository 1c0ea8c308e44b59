//! How files of a directory are served, and nothing that lies outside of it.

mod beneath;
mod listing;
mod target;
mod types;

#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::SystemTime;

use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::message::{Handler, Request, Response};
use target::{Refused, Target};

const INDEX: &[u8] = b"index.html";
/// Browsers must not make a page of what the table of types does not call one.
const NOSNIFF: (HeaderName, HeaderValue) =
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));

/// Serves the files of one directory: a [`Handler`] made by [`files`].
///
/// - The request's path, decoded once, is looked up beneath the directory. `.` and `..`, empty segments,
///   hidden names (those with a leading dot) and symbolic links are 404: the kernel refuses to follow a link
///   while it opens, so that swapping one in at the right moment wins nothing.
/// - A directory is its `index.html`, else a list of what is in it. Its address ends with a slash; the one
///   without is 301 to it.
/// - GET and HEAD; other methods are 405 (RFC 9110 section 15.5.6). `If-Modified-Since` is honoured (section
///   13.1.3). Only regular files are sent.
pub struct Files {
    root: OwnedFd,
}

/// Serves the files in `dir`. The directory is opened once; a link to it may be given, and may change later.
///
/// ```no_run
/// use weftwork::prelude::*;
///
/// fn main() -> weftwork::Result<()> {
///     Server::bind("127.0.0.1:8080")?.run(weftwork::files("public")?)
/// }
/// ```
///
/// # Errors
/// `dir` is missing, is not a directory, or may not be read.
pub fn files(dir: impl AsRef<Path>) -> Result<Files> {
    let dir = dir.as_ref();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(dir, flags, Mode::empty())
        .map_err(|error| Error::io(format!("cannot serve files from {}", dir.display()), error.into()))?;
    Ok(Files { root })
}

impl Handler for Files {
    fn call(&self, req: &mut Request<'_>) -> Response {
        if !matches!(*req.method(), Method::GET | Method::HEAD) {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "files are read with GET or HEAD\n")
                .with_header(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        let target = match Target::parse(req.path()) {
            Ok(target) => target,
            Err(Refused::Malformed) => {
                return plain(StatusCode::BAD_REQUEST, "the path is not well encoded\n");
            }
            Err(Refused::Unreachable) => return not_found(),
        };
        match Found::open(&self.root, &target.path) {
            Ok(Found::Regular(file)) if !target.slash => send(req, file, &target.path),
            Ok(Found::Directory(_)) if !target.slash => with_slash(req),
            Ok(Found::Directory(directory)) => index(req, &directory, &target),
            Ok(Found::Regular(_) | Found::Other) => not_found(),
            Err(error) => failed(req, error),
        }
    }
}

/// What a name beneath the root stands for.
enum Found {
    Regular(File),
    Directory(OwnedFd),
    /// A pipe, a device, a socket.
    Other,
}

impl Found {
    fn open(root: &OwnedFd, path: &[u8]) -> rustix::io::Result<Found> {
        let fd = beneath::open(root, path)?;
        Ok(match FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) {
            FileType::RegularFile => Found::Regular(fd.into()),
            FileType::Directory => Found::Directory(fd),
            _ => Found::Other,
        })
    }
}

fn send(req: &Request<'_>, file: File, path: &[u8]) -> Response {
    // RFC 9110 section 8.8.2.1: never later than the answer itself. Times before 1970 have no HTTP date.
    let modified = file.metadata().and_then(|metadata| metadata.modified());
    let modified =
        modified.map_or(SystemTime::UNIX_EPOCH, |at| at.clamp(SystemTime::UNIX_EPOCH, SystemTime::now()));
    let response = if is_fresh(req, modified) {
        Response::new(StatusCode::NOT_MODIFIED)
    } else {
        match Response::file(file) {
            Ok(response) => response.with_content_type(types::of(path)).with_header(NOSNIFF.0, NOSNIFF.1),
            Err(error) => {
                log::error!("{} could not be sent: {error}", req.path());
                return plain(StatusCode::INTERNAL_SERVER_ERROR, "the file could not be read\n");
            }
        }
    };
    match HeaderValue::try_from(httpdate::fmt_http_date(modified)) {
        Ok(date) => response.with_header(header::LAST_MODIFIED, date),
        Err(_) => response,
    }
}

/// RFC 9110 section 13.1.3. There are no entity tags here, so any `If-None-Match` asks for the file.
fn is_fresh(req: &Request<'_>, modified: SystemTime) -> bool {
    let since = req.header("if-modified-since").and_then(|date| date.parse::<httpdate::HttpDate>().ok());
    req.header("if-none-match").is_none()
        && since.is_some_and(|since| httpdate::HttpDate::from(modified) <= since)
}

/// 301 from `/docs` to `/docs/`, so that relative links in the page mean what they say. The path begins with
/// one slash only, so it cannot name another host.
fn with_slash(req: &Request<'_>) -> Response {
    let query = req.query().map(|query| format!("?{query}")).unwrap_or_default();
    match HeaderValue::try_from(format!("{}/{query}", req.path())) {
        Ok(location) => Response::new(StatusCode::MOVED_PERMANENTLY).with_header(header::LOCATION, location),
        Err(_) => not_found(),
    }
}

fn index(req: &Request<'_>, directory: &OwnedFd, target: &Target) -> Response {
    if let Ok(Found::Regular(file)) = Found::open(directory, INDEX) {
        return send(req, file, INDEX);
    }
    match listing::page(directory, &target.path) {
        Ok(page) => Response::html(page).with_header(NOSNIFF.0, NOSNIFF.1),
        Err(error) => failed(req, error),
    }
}

fn failed(req: &Request<'_>, error: Errno) -> Response {
    match error {
        // LOOP: a symbolic link. XDEV: a way out. NXIO: a socket, or a device that is not there.
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NXIO | Errno::NAMETOOLONG => {
            not_found()
        }
        Errno::ACCESS | Errno::PERM => plain(StatusCode::FORBIDDEN, "the server may not read this\n"),
        error => {
            log::error!("{} could not be opened: {error}", req.path());
            plain(StatusCode::INTERNAL_SERVER_ERROR, "the file could not be opened\n")
        }
    }
}

fn not_found() -> Response {
    plain(StatusCode::NOT_FOUND, "there is no such file\n")
}

fn plain(status: StatusCode, text: &'static str) -> Response {
    Response::text(text).with_status(status)
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("root", &self.root).finish()
    }
}
