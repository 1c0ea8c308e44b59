//! A cookie store that behaves like a browser.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderValue, header};
use weftwork_wire::fields::date;

/// The cookies of one browser (RFC 6265) that visits one host.
#[derive(Clone, Debug, Default)]
pub(super) struct Cookies(Vec<StoredCookie>);

#[derive(Clone, Debug)]
struct StoredCookie {
    name: Vec<u8>,
    value: Vec<u8>,
    path: Vec<u8>,
    /// Expiry on the client's clock.
    until: Option<Duration>,
}

impl Cookies {
    /// Stores or removes the cookies that a response to a request for `target` sets (section 5.3).
    pub(super) fn keep(&mut self, headers: &HeaderMap, target: &str, now: Duration) {
        for line in headers.get_all(header::SET_COOKIE) {
            let Some((cookie, is_over)) = parse(line.as_bytes(), target, now) else { continue };
            let before =
                self.0.iter().position(|known| known.name == cookie.name && known.path == cookie.path);
            match before {
                Some(at) if is_over => drop(self.0.remove(at)),
                // The cookie keeps its position: section 5.3, step 11.
                Some(at) => self.0[at] = cookie,
                None if is_over => {}
                None => self.0.push(cookie),
            }
        }
    }

    /// Returns the `Cookie` field of a request for `target` (section 5.4). Longer paths come first, then older
    /// cookies.
    pub(super) fn field(&self, target: &str, now: Duration) -> Option<HeaderValue> {
        let path = path_of(target).as_bytes();
        let sent = |cookie: &&StoredCookie| {
            cookie.until.is_none_or(|until| now < until) && is_within(path, &cookie.path)
        };
        let mut sent: Vec<&StoredCookie> = self.0.iter().filter(sent).collect();
        sent.sort_by_key(|cookie| std::cmp::Reverse(cookie.path.len()));
        let pairs: Vec<_> =
            sent.iter().map(|cookie| [&cookie.name[..], &cookie.value[..]].join(&b'=')).collect();
        HeaderValue::from_bytes(&pairs.join(&b"; "[..])).ok().filter(|field| !field.is_empty())
    }
}

/// Returns a cookie, and whether it is removed.
fn parse(line: &[u8], target: &str, now: Duration) -> Option<(StoredCookie, bool)> {
    let mut parts = line.split(|&byte| byte == b';').map(split);
    let (name, Some(value)) = parts.next()? else { return None };
    if name.is_empty() {
        return None;
    }
    let mut cookie = StoredCookie {
        name: name.to_vec(),
        value: value.to_vec(),
        path: default_path(path_of(target)).into(),
        until: None,
    };
    let (mut is_past, mut age) = (false, None);
    for (attribute, value) in parts {
        let value = value.unwrap_or_default();
        match attribute.to_ascii_lowercase().as_slice() {
            b"path" if value.starts_with(b"/") => cookie.path = value.to_vec(),
            b"expires" => is_past = date(value).is_some_and(|date| date <= SystemTime::now()),
            b"max-age" => age = std::str::from_utf8(value).ok().and_then(|age| age.parse::<i64>().ok()),
            _ => {}
        }
    }
    // `Max-Age` has precedence (section 5.3, step 3).
    let seconds = age.map(|age| u64::try_from(age).unwrap_or(0));
    cookie.until = seconds.and_then(|seconds| now.checked_add(Duration::from_secs(seconds)));
    let is_over = seconds.map_or(is_past, |seconds| seconds == 0);
    Some((cookie, is_over))
}

fn split(part: &[u8]) -> (&[u8], Option<&[u8]>) {
    match part.iter().position(|&byte| byte == b'=') {
        Some(at) => (part[..at].trim_ascii(), Some(part[at + 1..].trim_ascii())),
        None => (part.trim_ascii(), None),
    }
}

fn path_of(target: &str) -> &str {
    target.split(['?', '#']).next().unwrap_or_default()
}

/// Section 5.1.4.
fn default_path(path: &str) -> &str {
    match path.rfind('/') {
        Some(at @ 1..) => &path[..at],
        _ => "/",
    }
}

fn is_within(path: &[u8], of: &[u8]) -> bool {
    path.strip_prefix(of).is_some_and(|rest| rest.is_empty() || of.ends_with(b"/") || rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    //! Tests that a cookie of one path is sent to the paths below it, until it is removed or expires.

    use super::*;

    fn stored(lines: &[&str], at: &str) -> Cookies {
        let mut cookies = Cookies::default();
        for line in lines {
            let value = HeaderValue::from_str(line).unwrap();
            cookies.keep(&HeaderMap::from_iter([(header::SET_COOKIE, value)]), at, Duration::ZERO);
        }
        cookies
    }

    fn sent(cookies: &Cookies, to: &str, after: u64) -> String {
        let field = cookies.field(to, Duration::from_secs(after));
        field.map_or_else(String::new, |field| field.to_str().unwrap().to_owned())
    }

    #[test]
    fn paths() {
        let cookies = stored(&["a=1; Path=/", "b=2; path=/shop", "c=3", "d=4; Path=shop"], "/shop/in?x=/y/z");
        assert_eq!(sent(&cookies, "/", 0), "a=1");
        assert_eq!(sent(&cookies, "/shopping", 0), "a=1");
        assert_eq!(sent(&cookies, "/shop", 0), "b=2; c=3; d=4; a=1");
        assert_eq!(sent(&cookies, "/shop/cart?q", 0), "b=2; c=3; d=4; a=1");
        assert_eq!(sent(&stored(&["c=3"], "/login"), "/anywhere", 0), "c=3");
    }

    #[test]
    fn times() {
        let past = "a=; Path=/; Expires=Thu, 01 Jan 1970 00:00:00 GMT";
        assert_eq!(sent(&stored(&["a=1; Path=/", past], "/"), "/", 0), "");
        assert_eq!(sent(&stored(&["a=1", "a=2; Max-Age=0"], "/"), "/", 0), "");
        assert_eq!(sent(&stored(&["a=1", "a=2; Max-Age=-5"], "/"), "/", 0), "");
        let minute = stored(&[&(past.to_owned() + "; Max-Age=60")], "/");
        assert_eq!(sent(&minute, "/", 59), "a=");
        assert_eq!(sent(&minute, "/", 60), "");
        let ever = format!("a=1; Max-Age={}", i64::MAX);
        assert_eq!(sent(&stored(&[&ever, "b=2; Max-Age=soon"], "/"), "/", 1 << 40), "a=1; b=2");
    }

    #[test]
    fn the_last_of_one_name_and_path_counts() {
        assert_eq!(
            sent(&stored(&["a=1", "b=1", "a=2", "no cookie", "=nameless", "c = x=y "], "/"), "/", 0),
            "a=2; b=1; c=x=y"
        );
    }
}
