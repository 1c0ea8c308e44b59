//! Finds the end of a response, and compares its body. Enough of RFC 9112 §6.3: status, Content-Length, chunked, or until the connection
//! closes. No request is a HEAD, so nothing else matters.

use std::rc::Rc;

use memchr::memchr;

/// A head longer than this is not one.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// More fields than any server here sends.
const FIELDS_MAX: usize = 64;
/// 16 digits fill a 64-bit size. The rest is space for chunk extensions.
const CHUNK_LINE_BYTES_MAX: usize = 1024;

/// A response that has been received to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The server will close the connection after it.
    pub close: bool,
    /// Its body is the one that was expected, or none was.
    pub right: bool,
}

/// The bytes are no HTTP/1.1 response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    Body(u64),
    UntilClose,
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    Trailers,
}

/// What happens to the bytes of a body.
#[derive(Debug, Default)]
enum Bodies {
    #[default]
    Skip,
    Compare(Rc<[u8]>),
    Keep(Vec<u8>),
}

/// Finds the ends of the responses on one connection, in whatever pieces they come.
#[derive(Debug)]
pub struct ResponseParser {
    state: State,
    answer: Answer,
    /// The part of a head or line that came without its end.
    partial: Vec<u8>,
    bodies: Bodies,
    /// Bytes of the body so far.
    body_bytes: usize,
}

impl Default for ResponseParser {
    fn default() -> Self {
        ResponseParser::with(Bodies::Skip)
    }
}

impl ResponseParser {
    /// A parser that compares each body with `expected`.
    pub fn expecting(expected: Option<Rc<[u8]>>) -> Self {
        ResponseParser::with(expected.map_or(Bodies::Skip, Bodies::Compare))
    }

    /// A parser that keeps the body of the last answer.
    pub(crate) fn keeping() -> Self {
        ResponseParser::with(Bodies::Keep(Vec::new()))
    }

    fn with(bodies: Bodies) -> Self {
        let answer = Answer { status: 0, close: false, right: true };
        ResponseParser { state: State::Head, answer, partial: Vec::new(), bodies, body_bytes: 0 }
    }

    /// The last answer's body, where it was kept.
    pub(crate) fn into_body(self) -> Vec<u8> {
        if let Bodies::Keep(body) = self.bodies { body } else { Vec::new() }
    }

    /// Length of the body so far, or of the last one.
    pub fn body_bytes(&self) -> usize {
        self.body_bytes
    }

    /// Takes bytes up to the end of one response: how many, and the response if it ended.
    pub fn feed(&mut self, input: &[u8]) -> Result<(usize, Option<Answer>), Malformed> {
        let mut used = 0;
        loop {
            let rest = &input[used..];
            match self.state {
                State::Body(0) => return Ok((used, Some(self.finish()))),
                State::UntilClose => {
                    self.take(rest);
                    return Ok((input.len(), None));
                }
                _ if rest.is_empty() => return Ok((used, None)),
                State::Head => used += self.head(rest)?,
                State::Body(left) => {
                    let taken = left.min(rest.len() as u64);
                    self.take(&rest[..taken as usize]);
                    self.state = State::Body(left - taken);
                    used += taken as usize;
                }
                State::Chunk(left) => {
                    let taken = left.min(rest.len() as u64);
                    self.take(&rest[..taken as usize]);
                    self.state = if taken == left { State::ChunkEnd } else { State::Chunk(left - taken) };
                    used += taken as usize;
                }
                State::ChunkSize | State::ChunkEnd | State::Trailers => used += self.chunk_line(rest)?,
            }
        }
    }

    /// The connection ended: a body that lasts until then is whole now (RFC 9112 §6.3, rule 8).
    pub(crate) fn end(&mut self) -> Option<Answer> {
        (self.state == State::UntilClose).then(|| self.finish())
    }

    fn take(&mut self, part: &[u8]) {
        let from = self.body_bytes;
        self.body_bytes += part.len();
        match &mut self.bodies {
            Bodies::Skip => {}
            Bodies::Compare(expected) => {
                self.answer.right &= expected.get(from..self.body_bytes) == Some(part);
            }
            Bodies::Keep(body) => body.extend_from_slice(part),
        }
    }

    fn finish(&mut self) -> Answer {
        self.state = State::Head;
        if let Bodies::Compare(expected) = &self.bodies {
            self.answer.right &= expected.len() == self.body_bytes;
        }
        self.answer
    }

    fn head(&mut self, rest: &[u8]) -> Result<usize, Malformed> {
        let before = self.partial.len();
        let parsed = if before == 0 {
            parse_head(rest)?
        } else {
            self.partial.extend_from_slice(rest);
            parse_head(&self.partial)?
        };
        if let Some((used, head)) = parsed {
            self.partial.clear();
            self.enter(head);
            return Ok(used - before);
        }
        if before == 0 {
            self.partial.extend_from_slice(rest);
        }
        if self.partial.len() > HEAD_BYTES_MAX { Err(Malformed) } else { Ok(rest.len()) }
    }

    fn enter(&mut self, head: Head) {
        self.answer = Answer { status: head.status, close: head.close, right: true };
        self.body_bytes = 0;
        if let Bodies::Keep(body) = &mut self.bodies {
            body.clear();
        }
        self.state = match head {
            // An interim response: the real one follows.
            Head { status: 100..=199, .. } => State::Head,
            Head { status: 204 | 304, .. } => State::Body(0),
            Head { chunked: true, .. } => State::ChunkSize,
            Head { length: Some(length), .. } => State::Body(length),
            Head { .. } => State::UntilClose,
        };
        self.answer.close |= self.state == State::UntilClose;
    }

    fn chunk_line(&mut self, rest: &[u8]) -> Result<usize, Malformed> {
        let Some(end) = memchr(b'\n', rest) else {
            self.partial.extend_from_slice(rest);
            let too_long = self.partial.len() > CHUNK_LINE_BYTES_MAX;
            return if too_long { Err(Malformed) } else { Ok(rest.len()) };
        };
        self.partial.extend_from_slice(&rest[..end]);
        let line = self.partial.strip_suffix(b"\r").ok_or(Malformed)?;
        self.state = match (self.state, line.is_empty()) {
            (State::ChunkSize, false) => match chunk_size(line)? {
                0 => State::Trailers,
                size => State::Chunk(size),
            },
            (State::ChunkEnd, true) => State::ChunkSize,
            (State::Trailers, true) => State::Body(0),
            (State::Trailers, false) => State::Trailers,
            _ => return Err(Malformed),
        };
        self.partial.clear();
        Ok(end + 1)
    }
}

struct Head {
    status: u16,
    length: Option<u64>,
    chunked: bool,
    close: bool,
}

/// Returns a head and its length. `None`: its end is missing.
fn parse_head(bytes: &[u8]) -> Result<Option<(usize, Head)>, Malformed> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(used) = response.parse(bytes).map_err(|_| Malformed)? else {
        return Ok(None);
    };
    // httparse takes lines that end with LF alone.
    let is_whole = bytes[..used].ends_with(b"\r\n\r\n");
    let (Some(status @ 100..), Some(version), true) = (response.code, response.version, is_whole) else {
        return Err(Malformed);
    };
    let mut head = Head { status, length: None, chunked: false, close: version == 0 };
    for field in response.headers.iter() {
        head.read(field)?;
    }
    Ok(Some((used, head)))
}

impl Head {
    fn read(&mut self, field: &httparse::Header<'_>) -> Result<(), Malformed> {
        let value = field.value.trim_ascii();
        // By length first: most names need no comparison then.
        match field.name.len() {
            14 if field.name.eq_ignore_ascii_case("content-length") => self.length = Some(number(value, 10)?),
            17 if field.name.eq_ignore_ascii_case("transfer-encoding") => {
                self.chunked = value.eq_ignore_ascii_case(b"chunked");
            }
            10 if field.name.eq_ignore_ascii_case("connection") => {
                self.close |= value.eq_ignore_ascii_case(b"close");
                self.close &= !value.eq_ignore_ascii_case(b"keep-alive");
            }
            _ => {}
        }
        Ok(())
    }
}

fn chunk_size(line: &[u8]) -> Result<u64, Malformed> {
    let digits = line.split(|&byte| byte == b';').next().unwrap_or(line);
    number(digits.trim_ascii_end(), 16)
}

fn number(digits: &[u8], radix: u32) -> Result<u64, Malformed> {
    let digits = str::from_utf8(digits).map_err(|_| Malformed)?;
    // from_str_radix takes a sign.
    let is_signed = digits.starts_with(['+', '-']);
    u64::from_str_radix(digits, radix).ok().filter(|_| !is_signed).ok_or(Malformed)
}

#[cfg(test)]
mod tests;
