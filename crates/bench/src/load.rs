//! Who asks, and how is it counted? Our own generator counts every error; wrk is there to check it with.

pub(crate) mod connection;
pub(crate) mod generator;
pub(crate) mod idle;
pub(crate) mod response;
pub(crate) mod tally;
pub(crate) mod wrk;

/// Connections that all ask for the same thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) path: &'static str,
    pub(crate) connections: usize,
    /// Requests sent at once on a connection; the next lot goes out when all are answered.
    pub(crate) depth: u32,
    /// Ask for `Connection: close`, and open a new connection for each request.
    pub(crate) close: bool,
}

impl Group {
    /// One request, as sent.
    pub(crate) fn request(&self, port: u16) -> String {
        let close = if self.close { "Connection: close\r\n" } else { "" };
        format!("GET {} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{close}\r\n", self.path)
    }
}
