//! Parses a response and checks the rules of RFC 9112 that a client can check.

use std::fmt;

/// One response, read by its framing.
#[derive(Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
    /// Over HTTP/2, the server has said behind the response that it takes no more.
    pub(super) is_last: bool,
}

/// How the body is delimited (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    None,
    Length(usize),
    Chunked,
    Close,
}

impl Answer {
    /// Parses a head, without its empty line.
    pub(super) fn head(text: &str) -> Answer {
        let (line, fields) = text.split_once("\r\n").unwrap_or((text, ""));
        let (version, rest) = line.split_at_checked(9).unwrap_or_else(|| panic!("status line {line:?}"));
        assert_eq!(version, "HTTP/1.1 ", "every response has our version: {line:?}");
        let (status, reason) = rest.split_at_checked(3).unwrap_or_else(|| panic!("status line {line:?}"));
        assert!(reason.starts_with(' '), "a space follows the status: {line:?}");
        let status = status.parse().unwrap_or_else(|_| panic!("status line {line:?}"));
        let fields = read_fields(fields);
        let answer = Answer { status, fields, body: Vec::new(), trailers: Vec::new(), is_last: false };
        answer.check();
        answer
    }

    /// Checks a head of HTTP/2, which has no fields of a connection (RFC 9113 section 8.2.2).
    pub(super) fn of_http2(status: u16, fields: Vec<(String, String)>) -> Answer {
        let answer = Answer { status, fields, body: Vec::new(), trailers: Vec::new(), is_last: false };
        for name in ["connection", "keep-alive", "transfer-encoding", "upgrade"] {
            assert_eq!(answer.field(name), None, "{answer:?}");
        }
        answer.check();
        answer
    }

    fn check(&self) {
        for name in ["connection", "content-length", "transfer-encoding", "date", "content-type"] {
            assert!(self.values(name).len() <= 1, "{name} is given more than once: {self:?}");
        }
        let (length, coding) = (self.field("content-length"), self.field("transfer-encoding"));
        assert!(length.is_none() || coding.is_none(), "two framings: {self:?}");
        if self.is_interim() || self.status == 204 {
            assert!(length.is_none() && coding.is_none(), "framing where no body can be: {self:?}");
        }
        if !self.is_interim() {
            let date = self.field("date").unwrap_or_else(|| panic!("no Date: {self:?}"));
            assert!(date.len() == 29 && date.ends_with(" GMT"), "Date is {date:?}");
        }
    }

    pub(super) fn framing(&self, to_head: bool) -> Framing {
        if to_head || self.is_interim() || matches!(self.status, 204 | 304) {
            return Framing::None;
        }
        match (self.field("content-length"), self.field("transfer-encoding")) {
            (Some(length), _) => Framing::Length(length.parse().expect("a decimal Content-Length")),
            (None, Some("chunked")) => Framing::Chunked,
            (None, Some(coding)) => panic!("unexpected transfer coding {coding:?}"),
            (None, None) => Framing::Close,
        }
    }

    pub(crate) fn is_interim(&self) -> bool {
        (100..200).contains(&self.status)
    }

    pub(crate) fn values(&self, name: &str) -> Vec<&str> {
        let named = self.fields.iter().filter(|(field, _)| field.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.values(name).first().copied()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body of text")
    }

    /// Returns true if the response says that the connection ends after it.
    pub(crate) fn closes(&self) -> bool {
        self.is_last || self.field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    /// Like [`closes`](Answer::closes). Over HTTP/2 the connection goes on behind such a response.
    pub(crate) fn closes_over_http1(&self) -> bool {
        self.closes() || super::over_http2::is_on()
    }

    /// Checks status and body at once.
    #[track_caller]
    pub(crate) fn is(&self, status: u16, body: impl AsRef<[u8]>) {
        assert!(self.status == status && self.body == body.as_ref(), "expected {status}, got {self:?}");
    }
}

pub(super) fn read_fields(text: &str) -> Vec<(String, String)> {
    let lines = text.split("\r\n").filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let (name, value) = line.split_once(": ").unwrap_or_else(|| panic!("field line {line:?}"));
            (name.to_owned(), value.to_owned())
        })
        .collect()
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.body[..self.body.len().min(200)];
        write!(f, "{} {:?}, {} bytes: ", self.status, self.fields, self.body.len())?;
        write!(f, "{:?}", String::from_utf8_lossy(shown))
    }
}
