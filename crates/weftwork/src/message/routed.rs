//! Where in its site has a request come to?

use std::any::Any;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use percent_encoding::percent_decode_str;

use super::request::Request;

/// A value that handlers share.
pub(crate) type Shared = Arc<dyn Any + Send + Sync>;

/// What routers have found out about a request.
#[derive(Default)]
pub(crate) struct Routed {
    /// Bytes of the path that are the prefix of a mount.
    pub(crate) prefix: usize,
    /// Names, and the places of their values in the whole path.
    pub(crate) captures: Vec<(Arc<str>, Range<usize>)>,
    /// The innermost router's come last.
    pub(crate) states: Vec<Shared>,
}

impl Request<'_> {
    /// The prefix at which this handler is mounted by a router, as it stands in the path; empty outside of one.
    pub fn mounted_at(&self) -> &str {
        self.whole_path().get(..self.prefix()).unwrap_or_default()
    }

    /// Whether the path is that prefix and nothing more, not even a slash.
    pub(crate) fn is_at_mount(&self) -> bool {
        let prefix = self.prefix();
        prefix > 0 && prefix == self.whole_path().len()
    }

    pub(super) fn prefix(&self) -> usize {
        self.routed().map_or(0, |routed| routed.prefix)
    }

    /// What a router captured as `name` in the path, without its percent-encoding; none where that is not UTF-8.
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

    /// All captures, still encoded, in the order of the path.
    pub(crate) fn params(&self) -> impl Iterator<Item = (&str, &str)> {
        let path = self.whole_path();
        let captures = self.routed().into_iter().flat_map(|routed| &routed.captures);
        captures.map(move |(name, place)| (&**name, path.get(place.clone()).unwrap_or_default()))
    }

    pub(crate) fn routed(&self) -> Option<&Routed> {
        self.notes.get().map(|notes| &notes.routed)
    }

    pub(crate) fn routed_mut(&mut self) -> &mut Routed {
        &mut self.notes_mut().routed
    }
}
