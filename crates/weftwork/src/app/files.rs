//! How files are served: those of a directory, one alone, or those that the program carries in itself.

mod beneath;
mod byteranges;
mod content_cache;
mod embedded;
mod error;
mod listing;
mod metadata;
mod open_file_cache;
mod precompressed;
mod representation;
mod root;
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

use http::{HeaderName, HeaderValue, header};
use rustix::io::Errno;
use weftwork_wire::fields::names_media_type;

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

/// Browsers must not make a page of what the table of types does not call one.
const NOSNIFF: (HeaderName, HeaderValue) =
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
/// A page that stands in for others is asked for again each time; its tag makes that cheap.
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");

/// Serves files: a [`Handler`] made by [`files`], [`file()`] or [`embedded`].
///
/// # What is answered
/// - GET and HEAD; other methods of what is there are 405 (RFC 9110 section 15.5.6). Only regular files are sent.
/// - A path in which a letter, a digit or one of `-._~` is encoded is 301 to the one where it is not, so that a route or
///   a guard in front, which compares paths as they were sent, sees each that leads to a file, if it is of such characters
///   alone. Where it has others, there are more spellings, and none is redirected, for proxies in between write one for another:
///   `/c%2B%2B` leads where `/c++` does, `/%c3%bc` where `/ü` does; and so there are where the file system takes `A` for `a`.
///   Guard those with middleware around these files.
/// - A path is decoded once, and looked up beneath the directory. What is not there is 404, and so is all that
///   is not to be served: `..`, empty segments, hidden names, symbolic links, devices. The kernel refuses to leave
///   the directory while it opens (`openat2` on Linux, elsewhere segment by segment), so that changing the tree at
///   the right moment wins nothing.
/// - That 404 [declines](Response::decline): a [`Router`](crate::Router) in which the files are mounted asks the next
///   mount, another directory say, and then its fallback. Where there is none it is a [`Problem`](crate::Problem), as are the
///   other errors.
/// - A directory's address ends with a slash; the one without is 301 to it. It is its [`index`](Files::index), else
///   a [`listing`](Files::listing), if that is switched on, else 404.
///
/// # Fields that are sent
/// - `ETag` is made of the time of change, in nanoseconds, and the size: the same on all machines that hold the
///   same files. Tools that give all files one time let two versions of the same size look alike. A file that changed
///   in the last two seconds gets a weak tag, for it may change again within the same moment.
/// - `Last-Modified`, `Accept-Ranges`, `Content-Type` by the name's extension, and `nosniff` beside it.
///
/// # Fields that are heeded
/// - `If-Match`, `If-Unmodified-Since`, `If-None-Match`, `If-Modified-Since`, in the order of RFC 9110 section
///   13.2.2: 304 where the client has the file already, 412 where it thinks of another one.
/// - `Range` (section 14.2), also with `If-Range`: 206 with the part, or with up to 16 parts as
///   `multipart/byteranges`; parts that overlap, or have less between them than another head takes, are joined. 416 where
///   all of it is behind the end. More ranges, what is no range, and several of a compressed sibling are answered with the
///   whole file.
/// - `Accept-Encoding`, where a file has a compressed sibling: see [`precompressed`](Files::precompressed).
///
/// # What it costs
/// The handler opens the file and returns. The engine sends it, by `sendfile` where the system has that, as the
/// client takes it: a slow download holds no thread but in the engines `workers` and `pool`, and no copy of a file of more
/// than 32 KiB. Files that the system has to fetch from a slow disk hold up the loop that sends them for as long as that takes.
///
/// A file of up to 128 KiB of which up to 32 KiB are asked for again while it is open is then in memory, with others of these files up to
/// 4 MiB: at best 0.82 of the CPU. What it is now is asked of the system for each request all the same, so a change is seen at once.
/// Within a second is seen what a program writes through a shared mapping (`mmap`), for systems may note that late; and what is written
/// over it with the same length and its old time, where file systems have no time of change beside it (FAT, `sshfs`).
///
/// Up to 128 files stay open for a second after they were looked up, and then until the next request: on a quiet server a
/// deleted file may keep its place on the disk until somebody asks for something. Changes of their content are seen at
/// once, as is that one was deleted or that another took its name; one that was moved away, or whose
/// [symbolic link](Files::symlinks) leads elsewhere now, is still sent for that second, and a compressed sibling that is
/// new is missed.
pub struct Files {
    root: Root,
    open_files: OpenFileCache,
    prefix: String,
    index: Option<Vec<u8>>,
    listing: bool,
    hidden: bool,
    precompressed: bool,
    cache_control: Option<HeaderValue>,
    single_page: Option<Vec<u8>>,
    types: Vec<(String, Type)>,
}

/// Serves the files in `dir`. The directory is opened once; a link to it may be given, and may change later.
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
/// `dir` is missing, is not a directory, or may not be read.
pub fn files(dir: impl AsRef<Path>) -> Result<Files> {
    let dir = dir.as_ref();
    let root = Root::directory(dir);
    Ok(Files::at(root.map_err(|error| cannot_serve("files from", dir, error))?))
}

/// Serves one file, whatever path is asked for: a download, an icon, the one page of an application. It is opened
/// anew for each request, and symbolic links to it are followed.
///
/// ```no_run
/// let manual = weftwork::file("manual.pdf")?;
/// # Ok::<(), weftwork::Error>(())
/// ```
///
/// # Errors
/// `path` is missing, is not a regular file, or may not be read.
pub fn file(path: impl AsRef<Path>) -> Result<Files> {
    let path = path.as_ref();
    let root = Root::single(path);
    Ok(Files::at(root.map_err(|error| cannot_serve("the file", path, error))?))
}

/// Serves files that are part of the program: names relative to the root, and what is in them. They are found
/// and described as those of a directory are, but have no `Last-Modified`; their tag is made of what is in them.
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
            index: Some(b"index.html".to_vec()),
            listing: false,
            hidden: false,
            precompressed: true,
            cache_control: None,
            single_page: None,
            types: Vec::new(),
        }
    }

    /// The path that the files are under, as in `/static`: it is taken off before a file is looked up. Default:
    /// none.
    #[must_use]
    pub fn under(self, prefix: &str) -> Files {
        Files { prefix: encoded(prefix.trim_end_matches('/')), ..self }
    }

    /// The file that a directory stands for; an empty name is none. Default: `index.html`.
    #[must_use]
    pub fn index(self, name: &str) -> Files {
        Files { index: (!name.is_empty()).then(|| name.into()), ..self }
    }

    /// Whether a directory without an index is a page that lists what is in it, up to 10,000 names and 2 MB. Default: no,
    /// as names can be secrets. What is [`embedded`] is never listed.
    #[must_use]
    pub fn listing(self, on: bool) -> Files {
        Files { listing: on, ..self }
    }

    /// Whether names that begin with a dot are served. Default: no, for `.git` and `.env` hold secrets.
    /// `.well-known` is always served, if it is there (RFC 8615).
    #[must_use]
    pub fn hidden(self, on: bool) -> Files {
        Files { hidden: on, ..self }
    }

    /// Whether symbolic links are followed, as far as they stay beneath the directory: links with an absolute
    /// target do not. Default: no.
    #[must_use]
    pub fn symlinks(mut self, on: bool) -> Files {
        if let Root::Directory { links, .. } = &mut self.root {
            *links = if on { Links::Follow } else { Links::Refuse };
        }
        self
    }

    /// Whether `app.js.br`, `app.js.zst` or `app.js.gz` is sent in place of `app.js` to clients that take it, by
    /// the weights of their `Accept-Encoding`; in this order where these are equal. A sibling that is older than the
    /// file is left alone. Default: yes, for types that are worth compressing; their answers say
    /// `Vary: Accept-Encoding`.
    #[must_use]
    pub fn precompressed(self, on: bool) -> Files {
        Files { precompressed: on, ..self }
    }

    /// The `Cache-Control` of every file that is sent, and of 304, but for the page of [`single_page`](Files::single_page), which names
    /// the others. Default: none; browsers then guess by `Last-Modified`, and often ask.
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

    /// The page of an application that has addresses of its own: sent, with 200, where there is no file, if the last segment of
    /// the path has no dot in it or the client names `text/html` in `Accept`. So a missing script stays 404. Where it is for
    /// `Accept` to decide, the response says so in `Vary`. It has `Cache-Control: no-cache`, at its own address, too: a browser that
    /// kept it would ask for the scripts of an older one. Default: none.
    #[must_use]
    pub fn single_page(self, name: &str) -> Files {
        Files { single_page: Some(name.into()), ..self }
    }

    /// The content type of files with `extension` (without its dot, in any case), before the table that is built
    /// in. That one has what the web is made of, media, and source code as text; all else is
    /// `application/octet-stream`.
    #[must_use]
    pub fn content_type(mut self, extension: &str, value: HeaderValue) -> Files {
        self.types.insert(0, (extension.to_owned(), value.into()));
        self
    }

    /// Answers with the file `name`, which the caller has chosen: a relative path, not encoded. All rules hold but
    /// those that need the request's own path: a directory is 404, and a 404 is final. Of one [`file()`] only its own name
    /// is there. One that is kept under another name than it has for clients is sent by [`send_as`](Files::send_as).
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

    /// As [`send`](Files::send), and a browser saves it as `file_name`, in place of the `name` that it is kept under: an upload, say,
    /// that is kept by its hash or number. Its content type is that of `file_name`, by the extension. Conditions, ranges and
    /// errors are as ever.
    ///
    /// `file_name` may be what a client has called it: see [`Response::with_attachment`]. It is saved, and never shown, so that
    /// no upload is a page of yours.
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

    /// As [`send`](Files::send), with this content type, whatever `name` says: for what is shown, as pictures are, and for
    /// types that no extension stands for. [`Response::with_content_type`] behind `send` would call errors and several ranges so, too.
    ///
    /// A type that a client has given makes a page of yours of its upload, if it is `text/html`, `image/svg+xml` or another that
    /// may have scripts: take those that you know.
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
        // What is beside one file is there for its compressed siblings alone.
        if matches!(&self.root, Root::Single { name: own, .. } if own != name.as_bytes()) {
            return Err(FileError::NotFound);
        }
        match self.find(&Target::named(name, self.hidden)?.path)? {
            Found::Content(content) => Ok(self.represent_as(req, content, name.as_bytes(), kind)),
            Found::Directory(_) | Found::Other => Err(FileError::NotFound),
        }
    }

    /// The answer to the request's own path.
    fn at_path(&self, req: &Request<'_>) -> std::result::Result<Response, FileError> {
        if let Root::Single { name, .. } = &self.root {
            return match self.find(name)? {
                Found::Content(content) => Ok(self.represent(req, content, name)),
                Found::Directory(_) | Found::Other => Err(FileError::NotFound),
            };
        }
        let rest = req.path_bytes().strip_prefix(self.prefix.as_bytes()).ok_or(FileError::NotFound)?;
        // The place of a mount is seen as `/`, whether or not a slash was sent.
        if rest.is_empty() || req.is_at_mount() {
            return Ok(redirect_to_slash(req));
        }
        let target = Target::parse(rest, self.hidden)?;
        let response = self.at_target(req, &target)?;
        // Only where there is something: of what is not there, another handler may have links that are spelt so.
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

    /// Its index is tried first: most requests for a directory are for that.
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
                let page = listing::page(&directory, path, self.hidden, |name| self.root.find(name).ok())?;
                Ok(Response::html(page).with_header(NOSNIFF.0, NOSNIFF.1))
            }
            _ => Err(FileError::NotFound),
        }
    }

    /// The page that stands in for what is not there, if this request is one that it can stand in for.
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

    /// Whether the page stands in for what this request asks for is a question of what the client takes.
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
        Representation { content, content_type, coding, varies, cache_control }.respond(req)
    }
}

impl Handler for Files {
    fn call(&self, req: &mut Request<'_>) -> Response {
        let req = &*req;
        let response = match self.at_path(req) {
            Ok(response) => response,
            // Another handler may have it: a router goes on to that, or to its fallback.
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
