//! Writes status lines.

use http::StatusCode;

/// The status lines that nearly all responses have, whole: one copy each. The test beside this file compares
/// each with what the others are put together from.
fn common(status: u16) -> Option<&'static [u8]> {
    Some(match status {
        100 => b"HTTP/1.1 100 Continue\r\n",
        101 => b"HTTP/1.1 101 Switching Protocols\r\n",
        201 => b"HTTP/1.1 201 Created\r\n",
        204 => b"HTTP/1.1 204 No Content\r\n",
        206 => b"HTTP/1.1 206 Partial Content\r\n",
        301 => b"HTTP/1.1 301 Moved Permanently\r\n",
        302 => b"HTTP/1.1 302 Found\r\n",
        304 => b"HTTP/1.1 304 Not Modified\r\n",
        400 => b"HTTP/1.1 400 Bad Request\r\n",
        401 => b"HTTP/1.1 401 Unauthorized\r\n",
        403 => b"HTTP/1.1 403 Forbidden\r\n",
        404 => b"HTTP/1.1 404 Not Found\r\n",
        500 => b"HTTP/1.1 500 Internal Server Error\r\n",
        503 => b"HTTP/1.1 503 Service Unavailable\r\n",
        _ => return None,
    })
}

/// The version is ours, whatever the client's (RFC 9110 §2.5). A code without a phrase keeps the space before
/// it (RFC 9112 §4).
#[inline(always)]
pub(super) fn write_status_line(status: StatusCode, out: &mut Vec<u8>) {
    // A copy of known length: a third of the instructions of one from the table.
    if status == StatusCode::OK {
        return out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    }
    write_other(status, out);
}

#[inline(never)]
fn write_other(status: StatusCode, out: &mut Vec<u8>) {
    match common(status.as_u16()) {
        Some(line) => out.extend_from_slice(line),
        None => write_uncommon(status, out),
    }
}

#[cold]
fn write_uncommon(status: StatusCode, out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.extend_from_slice(b" ");
    out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc9112_4_status_lines() {
        for code in 100..=999 {
            let (mut line, mut want) = (Vec::new(), Vec::new());
            let status = StatusCode::from_u16(code).unwrap();
            write_status_line(status, &mut line);
            write_uncommon(status, &mut want);
            assert_eq!(line, want);
        }
    }

    #[test]
    fn rfc9112_4_unknown_code_has_no_phrase() {
        let mut line = Vec::new();
        write_status_line(StatusCode::from_u16(299).unwrap(), &mut line);
        assert_eq!(line, b"HTTP/1.1 299 \r\n");
    }
}
