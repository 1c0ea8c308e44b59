//! The load: a generator that counts every error.

pub(crate) mod connection;
pub(crate) mod generator;
pub(crate) mod idle;
mod paced;
pub(crate) mod probe;
pub(crate) mod response;
pub(crate) mod tally;
pub(crate) mod wire;

use wire::Tls;

/// Connections that all ask for the same thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) path: &'static str,
    pub(crate) connections: usize,
    /// Requests that a connection sends at once. The next batch follows when all are answered.
    pub(crate) depth: u32,
    /// Ask for `Connection: close`, and open a new connection for each request.
    pub(crate) close: bool,
    /// Number of bytes to POST. 0 sends GET.
    pub(crate) body_bytes: usize,
    /// Send what a browser sends, twenty fields in all.
    pub(crate) browser: bool,
    /// Number of batches after which a connection requests its close and is replaced. 0 means never.
    pub(crate) lots_max: u32,
    /// Ask for these bytes alone, the first and the last.
    pub(crate) range: Option<(usize, usize)>,
    /// None: in clear.
    pub(crate) tls: Option<Tls>,
}

impl Group {
    /// GET, keep-alive, one request at a time.
    pub(crate) const fn get(path: &'static str, connections: usize) -> Self {
        let (depth, close, body_bytes, browser, lots_max, range, tls) = (1, false, 0, false, 0, None, None);
        Group { path, connections, depth, close, body_bytes, browser, lots_max, range, tls }
    }

    /// One request, as sent. With `close` the connection is to end after it.
    pub(crate) fn request(&self, port: u16, close: bool) -> Vec<u8> {
        let method = if self.body_bytes > 0 { "POST" } else { "GET" };
        let mut head = format!("{method} {} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n", self.path);
        if self.browser {
            head.push_str(&browser_fields());
        }
        if let Some((first, last)) = self.range {
            head.push_str(&format!("Range: bytes={first}-{last}\r\n"));
        }
        if close {
            head.push_str("Connection: close\r\n");
        }
        if self.body_bytes > 0 {
            head.push_str(&format!("Content-Type: text/plain\r\nContent-Length: {}\r\n", self.body_bytes));
        }
        head.push_str("\r\n");
        [head.into_bytes(), self.body()].concat()
    }

    /// The body that is sent, and must come back from /echo: no two of its lines are alike.
    pub(crate) fn body(&self) -> Vec<u8> {
        let mut body: Vec<u8> =
            (0..self.body_bytes.div_ceil(16)).flat_map(|line| format!("{line:015}\n").into_bytes()).collect();
        body.truncate(self.body_bytes);
        body
    }
}

/// Returns the header fields that a browser sends: nineteen, and Host before them.
pub(crate) fn browser_fields() -> String {
    include_str!("load/browser.txt").replace('\n', "\r\n")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_browser_sends_twenty_fields_with_host() {
        assert_eq!(1 + super::browser_fields().matches("\r\n").count(), 20);
    }
}
