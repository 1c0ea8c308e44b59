//! Static files: from a directory, a single file, or embedded in the program.

mod beneath;
mod byteranges;
mod content_cache;
mod content_hash;
mod embedded;
mod error;
mod listing;
mod metadata;
mod open_file_cache;
mod precompressed;
mod representation;
mod root;
mod served_dir;
mod target;
mod types;

#[cfg(test)]
mod mount_tests;
#[cfg(test)]
mod send_tests;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;
use std::sync::Once;

use http::{HeaderName, HeaderValue, header};
use rustix::io::Errno;
use weftwork_wire::fields::names_media_type;

use super::removed_prefix::warn_if_removed;
use super::router::encoded;
use crate::error::{Error, Result};
use crate::message::{Handler, Request, Response};
use beneath::Links;
use embedded::Embedded;
use error::{FileError, is_get_or_head, method_not_allowed, redirect_to_slash};
use open_file_cache::OpenFileCache;
use representation::Representation;
use root::{Content, Found, Root};
use target::{Target, joined};
use types::Type;

/// Stops browsers from guessing a page from the content of other types.
const NOSNIFF: (HeaderName, HeaderValue) =
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
/// A single page is revalidated each time. The tag makes that cheap.
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");

/// Serves files. [`files`], [`file()`] and [`embedded`] create this [`Handler`].
///
/// # What is answered
/// - GET and HEAD are answered. Other methods of an existing file get 405 (RFC 9110 section 15.5.6). Only
///   regular files are sent.
/// - If a letter, a digit or one of `-._~` is encoded in the path, the answer is a 301 to the path with the
///   character decoded. A route or guard in front compares paths as they were sent. After the redirect it sees
///   every path of a file with only such characters. Other characters have several spellings. They are not
///   redirected, because proxies may rewrite one spelling to another. `/c%2B%2B` leads to the same file as
///   `/c++`, and `/%c3%bc` to the same file as `/ü`. The same holds for file systems that ignore case. Guard
///   such files with middleware around this handler.
/// - A path is decoded once and looked up in the directory. A missing file gets 404. So does everything that
///   must not be served: `..`, empty segments, hidden names, symbolic links, devices. The kernel enforces that
///   an open stays in the directory (`openat2` on Linux, segment by segment elsewhere). An attacker who changes
///   the tree during the open gains nothing.
/// - That 404 [declines](Response::decline): a [`Router`](crate::Router) tries the next mount, for example
///   another directory, and then its fallback. Without a fallback, the answer is a [`Problem`](crate::Problem),
///   as for other errors.
/// - The address of a directory ends with a slash. The address without a slash gets a 301. A directory shows
///   its [`index`](Files::index), or a [`listing`](Files::listing) if enabled, or 404.
///
/// # Fields that are sent
/// - `ETag` is computed from the modification time in nanoseconds and from the size, so it is the same on all
///   machines with the same files. A file that changed within the last two seconds gets a weak tag, because it
///   may change again within the same clock tick.
/// - A modification time in whole seconds was often set by a tool, and all versions of a file may have it. The tag
///   is then computed from the content of a file of up to 1 MiB. The same holds for a time that is still to come. A
///   longer file gets its tag from its change time, which differs between machines, if its time is still to come, or one
///   that build tools set: before 1990, or the begin of 2000 or 2010.
/// - `Last-Modified`, unless a build tool has set the time. It is never later than the response.
/// - `Accept-Ranges`, `Content-Type` by the extension, and `nosniff`.
///
/// # Fields that are heeded
/// - `If-Match`, `If-Unmodified-Since`, `If-None-Match` and `If-Modified-Since` are evaluated in the order of
///   RFC 9110 section 13.2.2. The answer is 304 if the client has the current file, and 412 if the client
///   expects another one.
/// - `Range` (section 14.2), also with `If-Range`, gets 206 with one part, or with up to 16 parts as
///   `multipart/byteranges`. Parts that overlap, or whose gap is shorter than another part head, are joined. If
///   all ranges start after the end, the answer is 416. More ranges, invalid ranges, and several ranges of a
///   precompressed file get the whole file.
/// - `Accept-Encoding` selects a precompressed file if there is one. See
///   [`precompressed`](Files::precompressed).
///
/// # What it costs
/// The handler opens the file and returns. The engine then sends the file, with `sendfile` if the system has
/// it, as fast as the client reads. Except in the engines `workers` and `pool`, a slow download holds no
/// thread. It holds no copy of a file of more than 32 KiB. If the system reads the file from a slow disk,
/// `adaptive` and `pool` lead the loop with another thread meanwhile. In `reactor` and `fibers`, and over HTTP/2, the
/// loop that sends the file waits.
///
/// Small parts are cached. If at most 32 KiB of a file of at most 128 KiB are requested again while the file is
/// open, the content is kept in memory. All such files together take up to 4 MiB. In the best case this needs
/// 0.82 of the CPU. The handler still asks the system for the state of the file at each request, so it sees
/// changes at once. Two changes are seen only after a second. Systems may report a write through a shared mapping
/// (`mmap`) late. On file systems without a change time (FAT, `sshfs`), a write may keep the length and restore
/// the old time.
///
/// Up to 128 files stay open for a second after a look-up, and then until the next request. On a quiet server,
/// a deleted file may therefore occupy disk space until the next request. Changes of the content, deletion, and
/// replacement by another file are seen at once. For that second, three changes are missed: a file was moved
/// away, its [symbolic link](Files::symlinks) has a new target, or a precompressed file was added.
pub struct Files {
    root: Root,
    open_files: OpenFileCache,
    prefix: String,
    prefix_warning: Once,
    index: Option<Vec<u8>>,
    listing: bool,
    hidden: bool,
    precompressed: bool,
    cache_control: Option<HeaderValue>,
    single_page: Option<Vec<u8>>,
    types: Vec<(String, Type)>,
}

/// Serves the files in `dir`. `dir` may be replaced while the server runs, or may be a symbolic link whose target
/// changes. The path is looked at once a second, and when a name is not found. While there is no directory at the
/// path, the answer is 503, and the log has one line.
///
/// ```no_run
/// use weftwork::prelude::*;
///
/// fn main() -> weftwork::Result<()> {
///     Server::bind("127.0.0.1:8080")?.run(weftwork::files("public")?.listing(true))
/// }
/// ```
///
/// # Errors
/// Fails if `dir` is missing, is not a directory, or cannot be read.
pub fn files(dir: impl AsRef<Path>) -> Result<Files> {
    let dir = dir.as_ref();
    let root = Root::directory(dir);
    Ok(Files::at(root.map_err(|error| cannot_serve("files from", dir, error))?))
}

/// Serves one file for every path, for example a download, an icon or a single-page application. The file is
/// opened for each request, and symbolic links to it are followed.
///
/// ```no_run
/// let manual = weftwork::file("manual.pdf")?;
/// # Ok::<(), weftwork::Error>(())
/// ```
///
/// # Errors
/// Fails if `path` is missing, is not a regular file, or cannot be read.
pub fn file(path: impl AsRef<Path>) -> Result<Files> {
    let path = path.as_ref();
    let root = Root::single(path);
    Ok(Files::at(root.map_err(|error| cannot_serve("the file", path, error))?))
}

/// Serves files that are part of the program, given as relative names and contents. They are found and
/// described like the files of a directory, but have no `Last-Modified`. The tag is computed from the content.
///
/// ```
/// static SITE: &[(&str, &[u8])] = &[
///     ("index.html", b"<!doctype html><link rel=stylesheet href=style.css><h1>Hello</h1>"),
///     ("style.css", b"h1 { color: teal }"), // or include_bytes!("../site/style.css")
/// ];
/// let site = weftwork::embedded(SITE);
/// ```
pub fn embedded(assets: &'static [(&'static str, &'static [u8])]) -> Files {
    Files::at(Root::Embedded(Embedded::new(assets)))
}

fn cannot_serve(what: &str, path: &Path, error: Errno) -> Error {
    Error::io(format!("cannot serve {what} {}", path.display()), error.into())
}

impl Files {
    fn at(root: Root) -> Files {
        Files {
            root,
            open_files: OpenFileCache::new(),
            prefix: String::new(),
            prefix_warning: Once::new(),
            index: Some(b"index.html".to_vec()),
            listing: false,
            hidden: false,
            precompressed: true,
            cache_control: None,
            single_page: None,
            types: Vec::new(),
        }
    }

    /// Sets the path of the files, such as `/static`. It is removed from the request path before the look-up.
    /// Default: none.
    #[must_use]
    pub fn under(self, prefix: &str) -> Files {
        Files { prefix: encoded(prefix.trim_end_matches('/')), ..self }
    }

    /// Sets the file that is served for a directory. An empty name disables it. Default: `index.html`.
    #[must_use]
    pub fn index(self, name: &str) -> Files {
        Files { index: (!name.is_empty()).then(|| name.into()), ..self }
    }

    /// Lists the content of a directory without an index, up to 10,000 names and 2 MB. Default: `false`,
    /// because names can be secrets. [`embedded`] files are never listed. The page has sizes and dates (UTC), links to the
    /// directories above, and a filter. Its query is `?sort=name`, `size` or `date`, `order=desc`, and `filter=TEXT`.
    #[must_use]
    pub fn listing(self, on: bool) -> Files {
        Files { listing: on, ..self }
    }

    /// Serves names that start with a dot. Default: `false`, because `.git` and `.env` hold secrets. An
    /// existing `.well-known` is always served (RFC 8615).
    #[must_use]
    pub fn hidden(self, on: bool) -> Files {
        Files { hidden: on, ..self }
    }

    /// Follows symbolic links that stay inside the directory. Links with an absolute target are not followed.
    /// Default: `false`.
    #[must_use]
    pub fn symlinks(mut self, on: bool) -> Files {
        if let Root::Directory { links, .. } = &mut self.root {
            *links = if on { Links::Follow } else { Links::Refuse };
        }
        self
    }

    /// Sends `app.js.br`, `app.js.zst` or `app.js.gz` instead of `app.js` to clients that accept the coding.
    /// The weights of `Accept-Encoding` decide. Equal weights are resolved in this order. A precompressed file
    /// that is empty, or more than two seconds older than the original, is not sent, and the log says so once. Default:
    /// `true`, for types that compress well. Their responses have `Vary: Accept-Encoding`.
    #[must_use]
    pub fn precompressed(self, on: bool) -> Files {
        Files { precompressed: on, ..self }
    }

    /// Sets `Cache-Control` for every file and for 304. The exception is the page of
    /// [`single_page`](Files::single_page), which refers to the other files. Default: none. Browsers then guess
    /// by `Last-Modified` and often revalidate.
    ///
    /// ```no_run
    /// use weftwork::http::HeaderValue;
    /// let day = HeaderValue::from_static("public, max-age=86400");
    /// let files = weftwork::files("public")?.cache_control(day);
    /// # Ok::<(), weftwork::Error>(())
    /// ```
    #[must_use]
    pub fn cache_control(self, value: HeaderValue) -> Files {
        Files { cache_control: Some(value), ..self }
    }

    /// Sets the page of a single-page application. It is sent with 200 if no file matches, and the last segment
    /// of the path has no dot or the client lists `text/html` in `Accept`. A missing script thus stays 404. If
    /// `Accept` decides, the response has `Vary: Accept`. The page always has `Cache-Control: no-cache`,
    /// because a cached page would refer to the scripts of an older version. Default: none.
    #[must_use]
    pub fn single_page(self, name: &str) -> Files {
        Files { single_page: Some(name.into()), ..self }
    }

    /// Sets the content type of files with `extension` (without the dot, in any case). It takes precedence over
    /// the built-in table. That table has web types, media, and source code as text. Every other type is
    /// `application/octet-stream`.
    #[must_use]
    pub fn content_type(mut self, extension: &str, value: HeaderValue) -> Files {
        self.types.insert(0, (extension.to_owned(), value.into()));
        self
    }

    /// Answers with the file `name`, which the caller chooses. `name` is a relative path and is not encoded.
    /// The rules of this type apply, except those about the request path: a directory is 404, and a 404 does
    /// not decline. For [`file()`], only the name of that file is found. If the file has another name for
    /// clients, use [`send_as`](Files::send_as).
    ///
    /// ```no_run
    /// use weftwork::{Files, Request, Response};
    /// fn report(reports: &Files, req: &mut Request) -> Response {
    ///     reports.send(req, "2026/summary.pdf")
    /// }
    /// ```
    pub fn send(&self, req: &Request<'_>, name: &str) -> Response {
        self.send_of_type(req, name, types::of(name.as_bytes(), &self.types))
    }

    /// Answers like [`send`](Files::send), and the browser saves the file as `file_name`. Use it for uploads
    /// that are stored by hash or number. The extension of `file_name` determines the content type. Conditions,
    /// ranges and errors work as in `send`.
    ///
    /// `file_name` may come from a client: see [`Response::with_attachment`]. The browser saves the file and
    /// never shows it, so an upload cannot act as a page of your site.
    ///
    /// ```
    /// use weftwork::prelude::*;
    ///
    /// static KEPT: &[(&str, &[u8])] = &[("9f86d081", b"%PDF-1.7")];
    /// let uploads = weftwork::embedded(KEPT); // or files("/var/lib/notes")?
    /// let site = Router::new().get("/reports/7", move |req: &mut Request| {
    ///     // Both from a database: where it is, and what it is called.
    ///     uploads.send_as(req, "9f86d081", "report.pdf")
    /// });
    /// let mut client = weftwork::TestClient::new(site);
    /// let answer = client.get("/reports/7").header("range", "bytes=0-3").send();
    /// assert_eq!((answer.status, answer.text()), (StatusCode::PARTIAL_CONTENT, "%PDF"));
    /// assert_eq!(answer.header("content-type"), Some("application/pdf"));
    /// assert_eq!(answer.header("content-disposition"), Some("attachment; filename=\"report.pdf\""));
    /// ```
    pub fn send_as(&self, req: &Request<'_>, name: &str, file_name: &str) -> Response {
        let kind = types::of(file_name.as_bytes(), &self.types);
        self.send_of_type(req, name, kind).with_attachment(file_name)
    }

    /// Answers like [`send`](Files::send), with this content type for any `name`. Use it for content that is
    /// shown, such as pictures, and for types without an extension. If you call [`Response::with_content_type`]
    /// after `send` instead, errors and multiple ranges also get that type.
    ///
    /// Do not pass a type from a client unchecked. With `text/html`, `image/svg+xml` or another type that
    /// allows scripts, an upload becomes a page of your site. Accept only types that you know.
    ///
    /// ```
    /// use weftwork::prelude::*;
    /// use weftwork::Files;
    ///
    /// fn avatar(kept: &Files, req: &mut Request) -> Response {
    ///     kept.send_typed(req, "2c26b46b", HeaderValue::from_static("image/webp"))
    /// }
    /// ```
    pub fn send_typed(&self, req: &Request<'_>, name: &str, content_type: HeaderValue) -> Response {
        self.send_of_type(req, name, &content_type.into())
    }

    fn send_of_type(&self, req: &Request<'_>, name: &str, kind: &Type) -> Response {
        if !is_get_or_head(req) {
            return method_not_allowed();
        }
        self.named(req, name, kind).unwrap_or_else(|error| error.respond(req))
    }

    fn named(&self, req: &Request<'_>, name: &str, kind: &Type) -> std::result::Result<Response, FileError> {
        // For a single file, other names in its directory are used only for precompressed files.
        if matches!(&self.root, Root::Single { name: own, .. } if own != name.as_bytes()) {
            return Err(FileError::NotFound);
        }
        match self.find(&Target::named(name, self.hidden)?.path)? {
            Found::Content(content) => Ok(self.represent_as(req, content, name.as_bytes(), kind)),
            Found::Directory(_) | Found::Other => Err(FileError::NotFound),
        }
    }

    /// Answers the path of the request.
    fn at_path(&self, req: &Request<'_>) -> std::result::Result<Response, FileError> {
        if let Root::Single { name, .. } = &self.root {
            return match self.find(name)? {
                Found::Content(content) => Ok(self.represent(req, content, name)),
                Found::Directory(_) | Found::Other => Err(FileError::NotFound),
            };
        }
        let rest = req.path_bytes().strip_prefix(self.prefix.as_bytes()).ok_or_else(|| {
            warn_if_removed(req, "under", &self.prefix, &self.prefix_warning);
            FileError::NotFound
        })?;
        // The root of a mount is seen as `/`, with or without a slash in the request.
        if rest.is_empty() || req.is_at_mount() {
            return Ok(redirect_to_slash(req));
        }
        let target = Target::parse(rest, self.hidden)?;
        let response = self.at_target(req, &target)?;
        // Redirects only to existing files. For a missing file, another handler may have links in that
        // spelling.
        if target.is_non_canonical { Err(FileError::NonCanonical) } else { Ok(response) }
    }

    fn at_target(&self, req: &Request<'_>, target: &Target<'_>) -> std::result::Result<Response, FileError> {
        if target.slash {
            return self.directory(req, &target.path);
        }
        match self.find(&target.path)? {
            Found::Content(content) => Ok(self.represent(req, content, &target.path)),
            Found::Directory(_) => Ok(redirect_to_slash(req)),
            Found::Other => Err(FileError::NotFound),
        }
    }

    /// Tries the index first, because most requests for a directory want it.
    fn directory(&self, req: &Request<'_>, path: &[u8]) -> std::result::Result<Response, FileError> {
        if let Some(index) = &self.index {
            let name = joined(path, index);
            match self.find(&name).map_err(FileError::from) {
                Ok(Found::Content(content)) => return Ok(self.represent(req, content, &name)),
                Ok(Found::Directory(_) | Found::Other) | Err(FileError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        match self.root.find(path)? {
            Found::Directory(Some(directory)) if self.listing => {
                let page =
                    listing::page(&directory, path, self.hidden, &listing::ListingQuery::of(req), |name| {
                        self.root.find(name).ok()
                    })?;
                Ok(Response::html(page).with_header(NOSNIFF.0, NOSNIFF.1))
            }
            _ => Err(FileError::NotFound),
        }
    }

    /// Returns the single page if it may answer this request.
    fn single_page_response(&self, req: &Request<'_>) -> Option<Response> {
        let page = self.single_page.as_ref()?;
        let depends = self.depends_on_accept(req);
        if depends && !names_media_type(&req.header_values("accept").collect::<Vec<_>>(), "text/html") {
            return None;
        }
        match self.find(page) {
            Ok(Found::Content(content)) => {
                let kind = types::of(page, &self.types);
                let response = self.represent_as(req, content, page, kind);
                Some(if depends { vary_by_accept(response) } else { response })
            }
            _ => None,
        }
    }

    /// Returns whether `Accept` decides if the single page is sent.
    fn depends_on_accept(&self, req: &Request<'_>) -> bool {
        let last = req.path().rsplit('/').next().unwrap_or_default();
        self.single_page.is_some() && last.contains('.')
    }

    fn missing(&self, req: &Request<'_>) -> Response {
        let response = Response { declined: true, ..FileError::NotFound.respond(req) };
        if self.depends_on_accept(req) { vary_by_accept(response) } else { response }
    }

    fn find(&self, name: &[u8]) -> rustix::io::Result<Found> {
        self.open_files.find(&self.root, name)
    }

    fn represent(&self, req: &Request<'_>, content: Content, path: &[u8]) -> Response {
        self.represent_as(req, content, path, types::of(path, &self.types))
    }

    fn represent_as(&self, req: &Request<'_>, content: Content, path: &[u8], kind: &Type) -> Response {
        let is_page = self.single_page.as_deref().is_some_and(|page| page == path);
        let no_cache = is_page.then_some(NO_CACHE);
        let cache_control = no_cache.as_ref().or(self.cache_control.as_ref());
        let Type { value: content_type, is_compressible } = kind;
        let varies = self.precompressed && *is_compressible;
        let (content, coding) = if varies {
            precompressed::choose(&self.root, &self.open_files, req, path, content)
        } else {
            (content, None)
        };
        let hashes = &self.open_files.hashes;
        Representation { content, content_type, coding, varies, cache_control, hashes }.respond(req)
    }
}

impl Handler for Files {
    fn call(&self, req: &mut Request<'_>) -> Response {
        let req = &*req;
        let response = match self.at_path(req) {
            Ok(response) => response,
            // Another handler may have the file: a router then tries the next mount or its fallback.
            Err(FileError::NotFound) => self.single_page_response(req).unwrap_or_else(|| self.missing(req)),
            Err(error) => error.respond(req),
        };
        if is_get_or_head(req) || response.is_declined() { response } else { method_not_allowed() }
    }
}

/// RFC 9110 section 12.5.5
fn vary_by_accept(mut response: Response) -> Response {
    response.append_header(header::VARY, HeaderValue::from_static("Accept"));
    response
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("place", &self.root).finish_non_exhaustive()
    }
}
