//! Errors of file requests and their responses.

use http::{HeaderValue, Method, StatusCode, header};
use rustix::io::Errno;

use super::served_dir::GONE;
use super::target::PathError;
use crate::app::path_form::canonical;
use crate::error::Error;
use crate::message::{IntoResponse, Problem, Request, Response};

/// The reason why no file is sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FileError {
    NotFound,
    Malformed,
    /// The file exists under the canonical spelling of the path.
    NonCanonical,
    Forbidden,
    /// There is no directory at the path of the root.
    RootGone,
    /// The process or the system has no file descriptor left.
    NoDescriptor(Errno),
    Failed(Errno),
}

impl From<PathError> for FileError {
    fn from(refused: PathError) -> FileError {
        match refused {
            PathError::Malformed => FileError::Malformed,
            PathError::Unreachable => FileError::NotFound,
        }
    }
}

impl From<Errno> for FileError {
    fn from(error: Errno) -> FileError {
        match error {
            // LOOP: a symbolic link. XDEV: a path that leaves the root. NXIO: a socket, or a missing device.
            // ILSEQ, INVAL: not a valid name on this file system.
            Errno::NOENT
            | Errno::NOTDIR
            | Errno::LOOP
            | Errno::XDEV
            | Errno::NXIO
            | Errno::NAMETOOLONG
            | Errno::ILSEQ
            | Errno::INVAL => FileError::NotFound,
            Errno::ACCESS | Errno::PERM => FileError::Forbidden,
            GONE => FileError::RootGone,
            error @ (Errno::MFILE | Errno::NFILE) => FileError::NoDescriptor(error),
            error => FileError::Failed(error),
        }
    }
}

impl FileError {
    pub(super) fn respond(self, req: &Request<'_>) -> Response {
        match self {
            FileError::NotFound => problem(StatusCode::NOT_FOUND, "there is no such file"),
            FileError::Malformed => problem(StatusCode::BAD_REQUEST, "the path is not encoded correctly"),
            FileError::NonCanonical => moved(req, &canonical(req.whole_path())),
            FileError::Forbidden => {
                problem(StatusCode::FORBIDDEN, "the server is not permitted to read this file")
            }
            // The log has a line from the time when the directory was missed first.
            FileError::RootGone => unavailable("the files are not available at the moment, try again later"),
            FileError::NoDescriptor(error) => {
                // Clients that download many files slowly can cause this, so the rate of the log line is
                // limited.
                req.log_client(format_args!("cannot open {}: {error}", req.whole_path()));
                unavailable("too many open files, try again later")
            }
            FileError::Failed(error) => {
                Error::io(format!("cannot open {}", req.whole_path()), error.into()).into_response()
            }
        }
    }
}

/// Redirects from `/docs` to `/docs/`, so that relative links in the page work.
pub(super) fn redirect_to_slash(req: &Request<'_>) -> Response {
    moved(req, &format!("{}/", req.whole_path()))
}

/// 301. Returns a 301. A path that gets here has no empty segment, so it cannot name another host.
fn moved(req: &Request<'_>, path: &str) -> Response {
    let query = req.query().map(|query| format!("?{query}")).unwrap_or_default();
    match HeaderValue::try_from(format!("{path}{query}")) {
        Ok(location) => Response::new(StatusCode::MOVED_PERMANENTLY).with_header(header::LOCATION, location),
        Err(_) => FileError::NotFound.respond(req),
    }
}

/// Returns whether files have this method.
pub(super) fn is_get_or_head(req: &Request<'_>) -> bool {
    matches!(*req.method(), Method::GET | Method::HEAD)
}

/// Returns a 405.
pub(super) fn method_not_allowed() -> Response {
    problem(StatusCode::METHOD_NOT_ALLOWED, "files allow only GET and HEAD")
        .with_header(header::ALLOW, HeaderValue::from_static("GET, HEAD"))
}

fn unavailable(detail: &str) -> Response {
    problem(StatusCode::SERVICE_UNAVAILABLE, detail)
        .with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
}

pub(super) fn problem(status: StatusCode, detail: &str) -> Response {
    Problem::new(status).detail(detail).into_response()
}
