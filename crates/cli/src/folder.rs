//! What `weft serve` serves, and how: its flags, and the files that they make.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use lexopt::{Parser, ValueExt};
use weftwork::http::{HeaderValue, StatusCode};
use weftwork::{Files, Next, Request, Response};

use crate::args::Usage;

/// Flags of `weft serve` alone.
pub(crate) const FOLDER_OPTIONS: [&str; 6] =
    ["no-listing", "hidden", "symlinks", "index", "spa", "cache-control"];

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
    /// The first flag that was given: other commands have none of them.
    given: Option<String>,
}

impl Folder {
    /// The same flags, for what is at `path`.
    pub(crate) fn at(self, path: impl Into<PathBuf>) -> Folder {
        Folder { path: path.into(), ..self }
    }

    /// Takes the flag `name`, if it is one of these.
    pub(crate) fn read(&mut self, name: &str, parser: &mut Parser) -> Result<bool, Usage> {
        match name {
            "no-listing" => self.no_listing = true,
            "hidden" => self.hidden = true,
            "symlinks" => self.symlinks = true,
            "index" => self.index = Some(parser.value()?.string()?),
            "spa" => self.single_page = Some(parser.value()?.string()?),
            "cache-control" => self.cache_control = Some(cache_control(&parser.value()?.string()?)?),
            _ => return Ok(false),
        }
        self.given.get_or_insert_with(|| name.to_owned());
        Ok(true)
    }

    /// For commands that serve no files.
    pub(crate) fn check_unused(&self) -> Result<(), Usage> {
        match &self.given {
            None => Ok(()),
            Some(name) => Err(Usage(format!("--{name} goes with weft serve DIR"))),
        }
    }

    /// `--spa` with the name of the file itself does something: browsers ask for it again each time.
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
            Some((name, _)) => {
                Err(Usage(format!("--{name} goes with a directory, and {} is one file", self.path.display())))
            }
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
                return Err(Usage(format!(
                    "--index is {name:?}, but has to be a name, such as \"index.html\""
                )));
            }
            files = files.index(name);
        }
        if let Some(name) = &self.single_page {
            let found = is_beneath(name) && self.is_file(&self.path.join(name));
            if !one && !found {
                return Err(Usage(format!(
                    "--spa is {name:?}, but {} has no such file",
                    self.path.display()
                )));
            }
            files = files.single_page(name);
        }
        if let Some(value) = &self.cache_control {
            files = files.cache_control(value.clone());
        }
        Ok(files)
    }
}

/// Who asks for files is a person with a browser or curl: errors are a line of text.
pub(crate) fn for_people(req: &mut Request<'_>, next: Next<'_>) -> Response {
    let response = next.run(req);
    if response.content_type().is_none_or(|value| value != "application/problem+json") {
        return response;
    }
    let line = match response.status() {
        StatusCode::NOT_FOUND => "there is no such file\n".to_owned(),
        status => format!("{status}\n"),
    };
    response.with_body(line).with_content_type(HeaderValue::from_static("text/plain; charset=utf-8"))
}

impl Folder {
    /// Whether `path` is a file that will be served.
    fn is_file(&self, path: &Path) -> bool {
        let metadata = if self.symlinks { path.metadata() } else { path.symlink_metadata() };
        metadata.is_ok_and(|metadata| metadata.is_file())
    }
}

/// `name` does not lead out of the directory that it is looked up in.
fn is_beneath(name: &str) -> bool {
    Path::new(name).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

fn cache_control(text: &str) -> Result<HeaderValue, Usage> {
    let wanted = "what a field may hold, such as \"max-age=3600\"";
    HeaderValue::try_from(text)
        .map_err(|_| Usage(format!("--cache-control is {text:?}, but has to be {wanted}")))
}
