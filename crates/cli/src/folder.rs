//! Files of `weft serve`: its options, and the handler that they configure.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use clap::{Arg, ArgAction};
use weftwork::http::{HeaderValue, StatusCode};
use weftwork::middleware::Cors;
use weftwork::{Files, Middleware, Next, Request, Response};

use crate::args::{Given, Usage, invalid};
use crate::command::option;

/// Page for an error.
const NOT_FOUND: &str = include_str!("error.html");

/// Names of the options that only `weft serve` has.
pub(crate) const IDS: [&str; 9] =
    ["no-listing", "hidden", "symlinks", "index", "spa", "cache-control", "cors", "open", "qr"];

/// Returns these options for clap.
pub(crate) fn args() -> [Arg; 9] {
    let flag = |name| Arg::new(name).long(name).action(ArgAction::SetTrue);
    [
        flag(IDS[0]).help("directories without an index are not found"),
        flag(IDS[1]).help("serve names that begin with a dot (otherwise only .well-known)"),
        flag(IDS[2]).help("follow symbolic links that stay inside DIR"),
        option(IDS[3], "NAME").help("the file to send for a directory [index.html]"),
        option(IDS[4], "FILE")
            .help("the page for paths that name no file, for applications with routes of their own"),
        option(IDS[5], "VALUE")
            .value_parser(cache_control)
            .help("such as \"max-age=3600\": how long browsers may cache files [not set]"),
        flag(IDS[6]).help("let pages of every origin read the files (Access-Control-Allow-Origin: *)"),
        flag(IDS[7]).help("open the page in a browser"),
        flag(IDS[8]).help("show a QR code of the address in the local network, for a phone"),
    ]
    .map(|arg| arg.help_heading("Options of weft serve"))
}

/// A directory, or one file.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    pub(crate) no_listing: bool,
    pub(crate) hidden: bool,
    pub(crate) symlinks: bool,
    pub(crate) index: Option<String>,
    pub(crate) single_page: Option<String>,
    pub(crate) cache_control: Option<HeaderValue>,
    pub(crate) cors: bool,
    pub(crate) open: bool,
    pub(crate) qr: bool,
}

impl From<&Given<'_>> for Folder {
    fn from(given: &Given<'_>) -> Folder {
        Folder {
            path: given.one("dir").unwrap_or_default(),
            no_listing: given.has("no-listing"),
            hidden: given.has("hidden"),
            symlinks: given.has("symlinks"),
            index: given.one("index"),
            single_page: given.one("spa"),
            cache_control: given.one("cache-control"),
            cors: given.has("cors"),
            open: given.has("open"),
            qr: given.has("qr"),
        }
    }
}

impl Folder {
    /// Refuses options that have no effect on one file. `--spa` with the file's own name has an effect: browsers
    /// revalidate the file each time.
    fn check_one_file(&self) -> Result<(), Usage> {
        let is_other = |name: &String| self.path.file_name() != Some(OsStr::new(name));
        let useless = [
            ("no-listing", self.no_listing),
            ("hidden", self.hidden),
            ("symlinks", self.symlinks),
            ("index", self.index.is_some()),
            ("spa", self.single_page.as_ref().is_some_and(is_other)),
        ];
        match useless.into_iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) => Err(Usage(format!(
                "--{name} works only with a directory, and {} is a file",
                self.path.display()
            ))),
            None => Ok(()),
        }
    }

    pub(crate) fn files(&self) -> Result<Files, Usage> {
        let one = self.path.is_file();
        if one {
            self.check_one_file()?;
        }
        let files = if one { weftwork::file(&self.path)? } else { weftwork::files(&self.path)? };
        let mut files = files.listing(!self.no_listing).hidden(self.hidden).symlinks(self.symlinks);
        if let Some(name) = &self.index {
            let is_name =
                |name: &str| matches!(Path::new(name).components().next(), Some(Component::Normal(_)));
            if !is_name(name) || name.contains('/') {
                return Err(invalid("--index", name, "a name such as index.html"));
            }
            files = files.index(name);
        }
        if let Some(name) = &self.single_page {
            let found = is_inside(name) && self.is_file(&self.path.join(name));
            if !one && !found {
                let wanted = format!("a file in {}", self.path.display());
                return Err(invalid("--spa", name, &wanted));
            }
            files = files.single_page(name);
        }
        if let Some(value) = &self.cache_control {
            files = files.cache_control(value.clone());
        }
        Ok(files)
    }
}

/// Replaces errors by a page for browsers, and by a line of text for other clients such as curl.
pub(crate) fn for_people(req: &mut Request<'_>, next: Next<'_>) -> Response {
    let is_browser = req.header("accept").is_some_and(|types| types.contains("text/html"));
    let response = next.run(req);
    if response.content_type().is_none_or(|value| value != "application/problem+json") {
        return response;
    }
    let status = response.status();
    let line = match status {
        StatusCode::NOT_FOUND => "there is no such file".to_owned(),
        status => status.to_string(),
    };
    if is_browser {
        let page = NOT_FOUND.replace("{status}", status.as_str()).replace("{line}", &line);
        return response
            .with_body(page)
            .with_content_type(HeaderValue::from_static("text/html; charset=utf-8"));
    }
    let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
    response.with_body(line + "\n").with_content_type(content_type)
}

/// Runs around the files if `--cors` is given, and does nothing otherwise.
pub(crate) fn for_other_origins(is_on: bool) -> impl Middleware {
    let cors = Cors::any_origin();
    move |req: &mut Request<'_>, next: Next<'_>| match is_on {
        true => cors.handle(req, next),
        false => next.run(req),
    }
}

impl Folder {
    /// Returns whether the directory has something of this name.
    pub(crate) fn has_file(&self, name: &str) -> bool {
        self.path.join(name).symlink_metadata().is_ok()
    }

    /// Returns whether `path` is a file that the server sends.
    fn is_file(&self, path: &Path) -> bool {
        let metadata = if self.symlinks { path.metadata() } else { path.symlink_metadata() };
        metadata.is_ok_and(|metadata| metadata.is_file())
    }
}

/// Returns whether `name` stays inside the directory in which it is looked up.
fn is_inside(name: &str) -> bool {
    Path::new(name).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

fn cache_control(text: &str) -> Result<HeaderValue, Usage> {
    let wanted = "a header value such as max-age=3600";
    HeaderValue::try_from(text).map_err(|_| invalid("--cache-control", text, wanted))
}
