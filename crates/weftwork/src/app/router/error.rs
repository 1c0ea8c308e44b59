//! Errors in the routes of a router.

use std::fmt;

use super::pattern::Pattern;

/// An error in a [`Router`](super::Router). Starting a server reports it. [`check`](crate::Handler::check)
/// reports it earlier, except for missing states.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RouteError {
    /// Two routes match the same paths, or have captures at one position that the router cannot tell apart. See
    /// [`Router`](super::Router).
    Conflict {
        /// Method of the routes, or `any`.
        method: String,
        /// Path of the route that was added later.
        path: String,
        /// Path of the route that was added first.
        with: String,
    },
    /// The path of a route is malformed.
    Pattern {
        /// Path as it was given.
        path: String,
        /// Fault in the path.
        why: PatternFault,
    },
    /// A route for CONNECT. Requests with this method have an authority instead of a path and go to the
    /// fallback.
    Connect {
        /// Path as it was given.
        path: String,
    },
    /// A handler takes [`State`](crate::State) of a type that no [`state`](super::Router::state) provides. A
    /// router around this one may provide it. If none does, the server does not start.
    MissingState {
        /// Path of the route with the prefixes of its mounts, or `the fallback`.
        path: String,
        /// Name of the missing type.
        state: &'static str,
    },
    /// A router has two [states](super::Router::state) of one type.
    TwoStates {
        /// Name of the type.
        state: &'static str,
    },
    /// Two routers that were [merged](super::Router::merge) both have a fallback.
    TwoFallbacks,
    /// The handler of a route is itself a router, and that router has errors.
    Inner {
        /// Path of the route, or `the fallback`.
        path: String,
        /// Error of that handler.
        why: String,
    },
    /// A mounted handler has errors.
    Mounted {
        /// Prefix of the mount.
        path: String,
        /// Error of that handler.
        why: String,
    },
}

/// A fault in the path of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PatternFault {
    /// The path does not start with `/`.
    NoSlash,
    /// The path has a query or a fragment.
    Query,
    /// A segment is a capture in the syntax of another library (`:id`, `*rest`, `<id>`), which is plain text
    /// here.
    OtherSyntax(String),
    /// A segment has a `%` without two hexadecimal digits, so no client can request it.
    Percent(String),
    /// The name of a capture has other characters than letters, digits, `_` and `-`, as in `{rest...}` or
    /// `{id:[0-9]+}`.
    Name(String),
    /// Braces are not of the form `{name}` or `{*name}`, or one segment has two captures.
    Braces,
    /// `{*name}` is not the whole last segment.
    RestNotLast,
    /// A capture name occurs twice.
    Twice(String),
    /// The prefix of a mount has a capture. The same holds for the prefix of a nested router with a fallback or
    /// mounts.
    CaptureInMount,
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RouteError::Conflict { method, path, with } => {
                let why = if are_alike(path, with) {
                    "both match the same paths"
                } else {
                    "the router cannot tell them apart (use a mount or the fallback for one of them)"
                };
                write!(f, "the route {method} {path} conflicts with {with}: {why}")
            }
            RouteError::Pattern { path, why } => write!(f, "invalid route {path:?}: {why}"),
            RouteError::Connect { path } => {
                write!(
                    f,
                    "the route CONNECT {path} matches nothing: CONNECT has no path, answer it in the fallback"
                )
            }
            RouteError::MissingState { path, state } => {
                write!(f, "the handler of {path} takes State<{state}>: add it to the router with .state(...)")
            }
            RouteError::TwoStates { state } => {
                write!(
                    f,
                    "two states of the type {state}: a router has one of each type, wrap one in a type of its own"
                )
            }
            RouteError::TwoFallbacks => {
                f.write_str("two merged routers have a fallback: remove one, or nest one router")
            }
            RouteError::Inner { path, why } => write!(f, "the handler of {path}: {why}"),
            RouteError::Mounted { path, why } => write!(f, "the mount at {path}: {why}"),
        }
    }
}

fn are_alike(one: &str, other: &str) -> bool {
    let (one, other) = (Pattern::parse(one), Pattern::parse(other));
    one.is_ok_and(|one| other.is_ok_and(|other| one.is_like(&other)))
}

impl fmt::Display for PatternFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PatternFault::NoSlash => f.write_str("a path must start with a slash"),
            PatternFault::Query => f.write_str("a path cannot have a query or a fragment, read the query with Query<T>"),
            PatternFault::OtherSyntax(segment) => {
                write!(f, "{segment} is plain text, write a capture as {{name}}, or {{*name}} for the rest")
            }
            PatternFault::Percent(segment) => {
                write!(f, "{segment} has a % without two hexadecimal digits, write the sign itself as %25")
            }
            PatternFault::Name(name) => write!(
                f,
                "{{{name}}} needs a name of letters, digits, _ and -; write {{*name}} for the rest, and check values by \
                 their type"
            ),
            PatternFault::Braces => f.write_str("write a capture as {name} or {*name}, at most one per segment"),
            PatternFault::RestNotLast => {
                f.write_str("{*name} matches the rest, so it must be the last segment")
            }
            PatternFault::Twice(name) => write!(f, "duplicate {{{name}}}"),
            PatternFault::CaptureInMount => f.write_str(
                "the prefix of a mount, or of a nest with a fallback or mounts, must not have captures; nest routes \
                 only",
            ),
        }
    }
}

impl std::error::Error for RouteError {}
