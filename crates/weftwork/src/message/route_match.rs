//! The route of a request: mounts, captures, and states of the routers.

use std::any::Any;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use percent_encoding::percent_decode_str;

use super::request::Request;

/// A value that handlers share.
pub(crate) type Shared = Arc<dyn Any + Send + Sync>;

/// Results of routing a request.
#[derive(Default)]
pub(crate) struct RouteMatch {
    /// Length of the prefix of a mount in the path.
    pub(crate) prefix: usize,
    /// Names, and the positions of their values in the whole path.
    pub(crate) captures: Vec<(Arc<str>, Range<usize>)>,
    /// The states of the innermost router come last.
    pub(crate) states: Vec<Shared>,
}

impl Request<'_> {
    /// Returns the prefix of the path at which a router has mounted this handler. Empty without a mount.
    pub fn mounted_at(&self) -> &str {
        self.whole_path().get(..self.prefix()).unwrap_or_default()
    }

    /// Returns whether the path is exactly that prefix, without a slash after it.
    pub(crate) fn is_at_mount(&self) -> bool {
        let prefix = self.prefix();
        prefix > 0 && prefix == self.whole_path().len()
    }

    pub(super) fn prefix(&self) -> usize {
        self.route_match().map_or(0, |found| found.prefix)
    }

    /// Returns what a router captured as `name` in the path, decoded. Returns None if it is not UTF-8.
    ///
    /// ```
    /// use weftwork::prelude::*;
    /// let router = Router::new().get("/hello/{name}", |req: &mut Request| {
    ///     format!("hello, {}", req.param("name").unwrap_or_default())
    /// });
    /// # let mut client = weftwork::TestClient::new(router);
    /// # assert_eq!(client.get("/hello/Ada%20B").send().text(), "hello, Ada B");
    /// ```
    pub fn param(&self, name: &str) -> Option<Cow<'_, str>> {
        let (_, value) = self.params().find(|(known, _)| *known == name)?;
        percent_decode_str(value).decode_utf8().ok()
    }

    /// Returns all captures, still encoded, in the order of the path.
    pub(crate) fn params(&self) -> impl Iterator<Item = (&str, &str)> {
        let path = self.whole_path();
        let captures = self.route_match().into_iter().flat_map(|found| &found.captures);
        captures.map(move |(name, place)| (&**name, path.get(place.clone()).unwrap_or_default()))
    }

    pub(crate) fn route_match(&self) -> Option<&RouteMatch> {
        self.data.get().map(|data| &data.route_match)
    }

    pub(crate) fn route_match_mut(&mut self) -> &mut RouteMatch {
        &mut self.data_mut().route_match
    }
}
