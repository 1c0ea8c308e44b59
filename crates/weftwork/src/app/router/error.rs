//! What can be wrong with the routes of a router?

use std::fmt;

use super::pattern::Pattern;

/// A mistake in a [`Router`](super::Router): the start of a server tells of it, and [`check`](crate::Handler::check)
/// before that, but for states.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RouteError {
    /// Two routes take the same paths, or have captures at one place that the router cannot tell apart: see
    /// [`Router`](super::Router).
    Conflict {
        /// Its method; `any` for all.
        method: String,
        /// The later route.
        path: String,
        /// The earlier one.
        with: String,
    },
    /// The text of a path is none.
    Pattern {
        /// What was given.
        path: String,
        /// What is wrong with it.
        why: PatternFault,
    },
    /// A route for CONNECT, whose requests have an authority in place of a path: they are for the fallback.
    Connect {
        /// What was given.
        path: String,
    },
    /// A handler takes [`State`](crate::State) of a type that no [`state`](super::Router::state) brings. A router in
    /// which this one is mounted may; where none does, the server does not start.
    MissingState {
        /// The route, mounts included; or `the fallback`.
        path: String,
        /// The type.
        state: &'static str,
    },
    /// The handler of a route cannot answer: it is a router that has mistakes of its own.
    Inner {
        /// The route; or `the fallback`.
        path: String,
        /// What it says itself.
        why: String,
    },
    /// What is mounted there cannot answer.
    Mounted {
        /// Where.
        path: String,
        /// What it says itself.
        why: String,
    },
}

/// What is wrong with a path.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PatternFault {
    /// It does not begin with `/`.
    NoSlash,
    /// It has a query or a fragment.
    Query,
    /// A segment that captures in another library, and would be text here: `:id`, `*rest`, `<id>`.
    OtherSyntax(String),
    /// A segment with a `%` that encodes nothing, which no client can ask for.
    Percent(String),
    /// The name of a capture, as `{rest...}` or `{id:[0-9]+}` have it, is not made of letters, digits, `_` and `-`.
    Name(String),
    /// Braces that are not `{name}` or `{*name}`, or two captures in one segment.
    Braces,
    /// `{*name}` is not the whole last segment.
    RestNotLast,
    /// A name is there twice.
    Twice(String),
    /// The prefix of a mount has a capture; or that of a nested router, which has a fallback or mounts.
    CaptureInMount,
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RouteError::Conflict { method, path, with } => {
                let why = if are_alike(path, with) {
                    "both take the same paths"
                } else {
                    "the router cannot tell them apart (a mount, or the fallback, takes what no route does)"
                };
                write!(f, "the route {method} {path} conflicts with {with}: {why}")
            }
            RouteError::Pattern { path, why } => write!(f, "the route {path:?} cannot be one: {why}"),
            RouteError::Connect { path } => {
                write!(
                    f,
                    "the route CONNECT {path} takes nothing: CONNECT has no path; answer it in the fallback"
                )
            }
            RouteError::MissingState { path, state } => {
                write!(f, "the handler of {path} takes State<{state}>: give the router one, with .state(...)")
            }
            RouteError::Inner { path, why } => write!(f, "the handler of {path}: {why}"),
            RouteError::Mounted { path, why } => write!(f, "what is mounted at {path}: {why}"),
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
            PatternFault::NoSlash => f.write_str("a path begins with a slash"),
            PatternFault::Query => f.write_str("a query is no part of it; Query<T> reads one"),
            PatternFault::OtherSyntax(segment) => {
                write!(f, "{segment} would be text; a capture is written {{name}}, or {{*name}} for all that is left")
            }
            PatternFault::Percent(segment) => {
                write!(f, "{segment} has a % without two hexadecimal digits; the sign itself is sent as %25")
            }
            PatternFault::Name(name) => write!(
                f,
                "{{{name}}} has no name of letters, digits, _ and -; {{*name}} takes all that is left, and what a value \
                 may be is the matter of its type"
            ),
            PatternFault::Braces => f.write_str("a capture is written {name} or {*name}, one in a segment"),
            PatternFault::RestNotLast => {
                f.write_str("{*name} takes the whole rest, so it is the last segment")
            }
            PatternFault::Twice(name) => write!(f, "{{{name}}} is in it twice"),
            PatternFault::CaptureInMount => f.write_str(
                "what is mounted, or nested with a fallback or mounts of its own, has no captures in its prefix; \
                 nest routes alone",
            ),
        }
    }
}

impl std::error::Error for RouteError {}
