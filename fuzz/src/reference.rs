//! A second reader of requests. It is simple and slow, was written from RFC 9112 alone, and shares no code with the
//! codec. It splits a complete head at CRLF, and refuses a head that two readers could read differently.

use weftwork_wire::{Framing, Version};

use crate::Request;

/// A head, split into its lines.
struct Lines<'a> {
    request_line: &'a [u8],
    /// Names in lower case, values trimmed.
    fields: Vec<(String, &'a [u8])>,
    bytes: usize,
}

/// Checks that the reference reads the request at the start of `bytes` as the codec did.
pub fn agrees(bytes: &[u8], request: &Request) {
    let lines = lines(bytes).expect("the codec took a head that cannot be cut into lines");
    assert_eq!(lines.bytes, request.head_bytes);
    let minor = lines.request_line.last().copied();
    assert_eq!(minor, Some(if request.version == Version::Http11 { b'1' } else { b'0' }));
    let is_11 = minor == Some(b'1');
    assert_eq!(framing(&lines, is_11), Ok(request.framing));
    assert_eq!(persists(&lines, is_11), request.keep_alive);
    let hosts = lines.fields.iter().filter(|(name, _)| name == "host").count();
    assert!(hosts == 1 || hosts == 0 && !is_11);
    if let Some(end) = request.end {
        let (body, used) =
            body(&bytes[lines.bytes..], request.framing).expect("the codec took a broken body");
        assert_eq!(body, request.body);
        assert_eq!(lines.bytes + used, end - request.at);
    }
}

fn lines(bytes: &[u8]) -> Option<Lines<'_>> {
    let skipped = if bytes.starts_with(b"\r\n") { 2 } else { 0 };
    let end = find(&bytes[skipped..], b"\r\n\r\n")? + skipped;
    let mut lines = Vec::new();
    let mut rest = &bytes[skipped..end];
    while let Some(at) = find(rest, b"\r\n") {
        lines.push(&rest[..at]);
        rest = &rest[at + 2..];
    }
    lines.push(rest);
    if lines.iter().any(|line| line.iter().any(|byte| b"\r\n\0".contains(byte))) {
        return None;
    }
    let fields = lines[1..].iter().map(|line| field(line)).collect::<Option<Vec<_>>>()?;
    Some(Lines { request_line: lines[0], fields, bytes: end + 4 })
}

fn field(line: &[u8]) -> Option<(String, &[u8])> {
    let colon = find(line, b":")?;
    let name = str::from_utf8(&line[..colon]).ok()?;
    let is_clean = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
    is_clean.then(|| (name.to_ascii_lowercase(), strip(&line[colon + 1..])))
}

fn strip(value: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
    let start = value.iter().position(|byte| !is_blank(byte)).unwrap_or(value.len());
    let end = value.iter().rposition(|byte| !is_blank(byte)).map_or(start, |last| last + 1);
    &value[start..end]
}

/// Returns all elements of all fields of that name, in lower case.
fn listed(lines: &Lines<'_>, name: &str) -> Vec<String> {
    let values = lines.fields.iter().filter(|(field, _)| field == name).map(|(_, value)| *value);
    values
        .flat_map(|value| value.split(|&byte| byte == b','))
        .map(|element| String::from_utf8_lossy(strip(element)).to_ascii_lowercase())
        .collect()
}

/// Applies RFC 9112 §6.3 as a recipient that must read the same as all other recipients.
fn framing(lines: &Lines<'_>, is_11: bool) -> Result<Framing, &'static str> {
    let (lengths, codings) = (listed(lines, "content-length"), listed(lines, "transfer-encoding"));
    if !codings.is_empty() {
        if !lengths.is_empty() {
            return Err("two framings");
        }
        if codings != ["chunked"] || !is_11 {
            return Err("a coding that not everyone undoes");
        }
        return Ok(Framing::Chunked);
    }
    match lengths.as_slice() {
        [] => Ok(Framing::None),
        [length] if length.bytes().all(|byte| byte.is_ascii_digit()) => {
            length.parse().map(Framing::Length).map_err(|_| "no length")
        }
        _ => Err("more or less than a length"),
    }
}

fn persists(lines: &Lines<'_>, is_11: bool) -> bool {
    let options = listed(lines, "connection");
    let says = |option: &str| options.iter().any(|given| given == option);
    if is_11 { !says("close") } else { says("keep-alive") && !says("close") }
}

/// Returns the body at the start of `bytes`, and the number of bytes it occupies there.
pub fn body(bytes: &[u8], framing: Framing) -> Option<(Vec<u8>, usize)> {
    match framing {
        Framing::None => Some((Vec::new(), 0)),
        Framing::Length(length) => {
            let length = usize::try_from(length).ok()?;
            Some((bytes.get(..length)?.to_vec(), length))
        }
        Framing::Chunked => chunked(bytes),
    }
}

fn chunked(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let line = line(bytes, &mut at)?;
        let digits = line.split(|&byte| byte == b';').next()?;
        let digits = str::from_utf8(digits)
            .ok()
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        let size = usize::from_str_radix(digits, 16).ok()?;
        if size == 0 {
            break;
        }
        let end = at.checked_add(size)?;
        body.extend_from_slice(bytes.get(at..end)?);
        at = end;
        if !self::line(bytes, &mut at)?.is_empty() {
            return None;
        }
    }
    while !line(bytes, &mut at)?.is_empty() {}
    Some((body, at))
}

/// Returns the next line, which ends in CRLF and contains no other CR or LF.
fn line<'a>(bytes: &'a [u8], at: &mut usize) -> Option<&'a [u8]> {
    let line = &bytes[*at..][..find(&bytes[*at..], b"\r\n")?];
    *at += line.len() + 2;
    (!line.contains(&b'\r') && !line.contains(&b'\n')).then_some(line)
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
