//! Extractors for captures, the query, header fields and cookies.

use std::borrow::Cow;

use http::{StatusCode, header};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;

use super::Extract;
use super::pairs::{PairError, Pairs, form_pairs};
use crate::app::cookie_header::parse_cookies;
use crate::error::Result;
use crate::message::Request;

/// Reads the captures of the path: one value (`Path<u64>`), a tuple in the order of the path, or a struct by
/// name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path<T>(pub T);

/// Reads the query into a struct:
///
/// - An optional parameter is an `Option`. It is also `None` for `?page=`, because forms send empty inputs like
///   that. If there are several, the first one that is not empty counts.
/// - A repeated parameter is a `Vec`.
/// - A checkbox is a `bool` with `#[serde(default)]`. Browsers send `on`, or nothing.
/// - `Vec<(String, String)>` takes all pairs in their order.
///
/// Within `#[serde(flatten)]` and enums with a `tag`, serde does not tell the expected type. Values are then
/// text, and a number is rejected. The same holds for [`Form`](crate::Form), [`Header`] and [`Cookies`]. Instead
/// of a flattened struct, take two arguments. Each one reads the parameters that it knows:
///
/// ```
/// use weftwork::prelude::*;
///
/// #[derive(serde::Deserialize)]
/// struct Page { page: Option<u32> }
///
/// #[derive(serde::Deserialize)]
/// struct Search { q: String, #[serde(default)] exact: bool }
///
/// fn search(Query(page): Query<Page>, Query(search): Query<Search>) -> String {
///     format!("{}, {}, page {}", search.q, search.exact, page.page.unwrap_or(1))
/// }
/// # let mut client = weftwork::TestClient::new(Router::new().get("/", search));
/// # assert_eq!(client.get("/?q=tea&exact=on&page=").send().text(), "tea, true, page 1");
/// # assert_eq!(client.get("/?q=tea&page=2").send().text(), "tea, false, page 2");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Query<T>(pub T);

/// Reads header fields into a struct. `user_agent` is `User-Agent`, and never `User_Agent`. Values are text.
/// Values that are not ASCII are left out.
///
/// ```
/// use weftwork::prelude::*;
/// use weftwork::Header;
///
/// #[derive(serde::Deserialize)]
/// struct Cached { if_none_match: Option<String>, x_count: u8 }
///
/// let site = Router::new().get("/", |Header(cached): Header<Cached>| {
///     format!("{:?}, {}", cached.if_none_match, cached.x_count)
/// });
/// # let mut client = weftwork::TestClient::new(site);
/// # assert_eq!(client.get("/").header("x-count", "7").send().text(), "None, 7");
/// # assert_eq!(client.get("/").send().status, 400);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header<T>(pub T);

/// Reads cookies into a struct: `Cookies<Session>` with `struct Session { id: String, theme: Option<String> }`.
/// Values are percent-decoded and have no quotes around them. A name with two different values counts as
/// missing, because one of them may come from a neighbouring site.
///
/// The user of the browser can forge any value. `Request::cookies` (feature `cookies`) reads encrypted cookies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cookies<T>(pub T);

impl<T: DeserializeOwned> Extract for Path<T> {
    fn extract(req: &mut Request<'_>) -> Result<Self> {
        let decoded = |(name, value)| match percent_decode_str(value).decode_utf8() {
            Ok(value) => Ok((Cow::Borrowed(name), value)),
            Err(_) => Err(PairError::not_utf8(Some(name))),
        };
        let pairs = Pairs::of("path parameter", req.params().map(decoded));
        Ok(Path(pairs.read_of_route()?))
    }

    fn is_missing(req: &Request<'_>) -> bool {
        req.params().next().is_none()
    }
}

impl<T: DeserializeOwned> Extract for Query<T> {
    fn extract(req: &mut Request<'_>) -> Result<Self> {
        let pairs = Pairs::of("query parameter", form_pairs(req.query().unwrap_or_default()));
        Ok(Query(pairs.repeated().read(StatusCode::BAD_REQUEST)?))
    }

    fn is_missing(req: &Request<'_>) -> bool {
        req.query().unwrap_or_default().is_empty()
    }
}

impl<T: DeserializeOwned> Extract for Header<T> {
    fn extract(req: &mut Request<'_>) -> Result<Self> {
        let named = |(name, value): (&str, &[u8])| {
            // A proxy may remove `X-User` from client requests and let `X_User` pass.
            if name.contains('_') {
                return None;
            }
            let value = std::str::from_utf8(value).ok().filter(|value| value.is_ascii())?;
            Some((name.to_ascii_lowercase().replace('-', "_"), value.to_owned()))
        };
        let fields: Vec<(String, String)> = req.header_lines().filter_map(named).collect();
        let pairs = fields.iter().map(|(name, value)| Ok((Cow::from(name), Cow::from(value))));
        let pairs = Pairs::of("field", pairs).repeated().shown_as(|name| name.replace('_', "-"));
        Ok(Header(pairs.read(StatusCode::BAD_REQUEST)?))
    }
}

impl<T: DeserializeOwned> Extract for Cookies<T> {
    fn extract(req: &mut Request<'_>) -> Result<Self> {
        let pairs = parse_cookies(req).into_iter().map(|(name, value)| Ok((Cow::from(name), value)));
        Ok(Cookies(Pairs::of("cookie", pairs).repeated().read(StatusCode::BAD_REQUEST)?))
    }

    fn is_missing(req: &Request<'_>) -> bool {
        req.header_values(header::COOKIE).next().is_none()
    }
}
