//! Field lines frame a message in one way, and their order does not matter.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weftwork_fuzz::{Request, every_way, all_parsers_agree};
use weftwork_wire::Limits;

/// Returns the result of the lines in this order, or None if they are refused.
fn read(minor: u8, lines: &[&[u8]]) -> Option<Request> {
    let start = format!("POST / HTTP/1.{}\r\nHost: h\r\n", minor % 2);
    let bytes = [start.as_bytes(), &lines.join(b"\r\n".as_slice()), b"\r\n\r\n"].concat();
    let transcript = every_way(&bytes, &Limits::default());
    all_parsers_agree(&bytes, &transcript);
    transcript.requests.into_iter().next().filter(|request| request.head_bytes == bytes.len())
}

// The first byte chooses the version, the others are lines, separated by line feeds.
fuzz_target!(|bytes: &[u8]| {
    let Some((&minor, lines)) = bytes.split_first() else { return };
    let mut lines: Vec<&[u8]> = lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).collect();
    if lines.is_empty() || lines.iter().any(|line| matches!(line[0], b' ' | b'\t' | b'\r')) {
        return;
    }
    let facts =
        |request: Request| (request.framing, request.keep_alive, request.expect_continue, request.upgrade);
    let forwards = read(minor, &lines).map(facts);
    lines.reverse();
    assert_eq!(read(minor, &lines).map(facts), forwards, "the order of lines matters");
});
