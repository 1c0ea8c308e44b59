//! Reads of TLS records what needs no session: their lengths, and the name that a client asks for.

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;

/// Returns whether these may be the first bytes of a client that speaks TLS.
pub(super) fn is_tls(first: &[u8]) -> bool {
    first.first().is_none_or(|&kind| (20..=24).contains(&kind))
}

/// Returns the length of the first record with its header, if the header is complete.
pub(super) fn record_len(bytes: &[u8]) -> Option<usize> {
    let length = bytes.get(3..5)?;
    Some(5 + usize::from(u16::from_be_bytes([length[0], length[1]])))
}

/// Returns whether the first record is complete.
pub(super) fn has_record(bytes: &[u8]) -> bool {
    record_len(bytes).is_some_and(|length| length > super::session::RECORD_BYTES_MAX || bytes.len() >= length)
}

/// Returns whether the first message of a client is complete, or can no longer become a ClientHello.
pub(super) fn has_hello(bytes: &[u8]) -> bool {
    match hello(bytes) {
        Ok(Some(_)) => true,
        Ok(None) => false,
        Err(NotHello) => has_record(bytes),
    }
}

struct NotHello;

/// Returns the body of the ClientHello, which may be in several records.
fn hello(mut bytes: &[u8]) -> Result<Option<Vec<u8>>, NotHello> {
    let mut message = Vec::new();
    while let Some(length) = record_len(bytes) {
        if bytes[0] != HANDSHAKE || length == 5 || length > super::session::RECORD_BYTES_MAX {
            return Err(NotHello);
        }
        message.extend_from_slice(&bytes[5..length.min(bytes.len())]);
        if let [kind, a, b, c, body @ ..] = &message[..] {
            let wanted = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            if *kind != CLIENT_HELLO {
                return Err(NotHello);
            }
            if let Some(body) = body.get(..wanted) {
                return Ok(Some(body.to_vec()));
            }
        }
        let Some(rest) = bytes.get(length..) else { return Ok(None) };
        bytes = rest;
    }
    Ok(None)
}

/// Returns the name in a complete ClientHello (RFC 6066 section 3), in lower case.
pub(super) fn server_name(records: &[u8]) -> Option<Box<str>> {
    const SERVER_NAME: u16 = 0;
    const HOST_NAME: u8 = 0;
    let body = hello(records).ok()??;
    // Version and random, then the session, the cipher suites and the compression methods.
    let mut rest = body.get(34..)?;
    rest = after(rest, 1)?.1;
    rest = after(rest, 2)?.1;
    rest = after(rest, 1)?.1;
    let mut extensions = after(rest, 2)?.0;
    while let [a, b, rest @ ..] = extensions {
        let (extension, others) = after(rest, 2)?;
        if u16::from_be_bytes([*a, *b]) == SERVER_NAME {
            let [HOST_NAME, name @ ..] = after(extension, 2)?.0 else { return None };
            let name = std::str::from_utf8(after(name, 2)?.0).ok()?;
            let is_plain = name.bytes().all(|byte| byte.is_ascii_graphic()) && name.len() < 256;
            return (is_plain && !name.is_empty()).then(|| name.to_ascii_lowercase().into());
        }
        extensions = others;
    }
    None
}

/// Splits off a part whose length is in front of it, in this many bytes.
fn after(bytes: &[u8], length_bytes: usize) -> Option<(&[u8], &[u8])> {
    let length = bytes.get(..length_bytes)?.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte));
    bytes[length_bytes..].split_at_checked(length)
}
