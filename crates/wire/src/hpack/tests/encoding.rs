//! Samples of written fields.

use http::StatusCode;

use super::*;

fn field(name: &str, value: &str) -> Vec<u8> {
    let mut out = b"before".to_vec();
    encode_field(name, value.as_bytes(), &mut out);
    assert!(out.starts_with(b"before"));
    out.split_off(6)
}

fn status(code: u16) -> Vec<u8> {
    let mut out = Vec::new();
    encode_status(StatusCode::from_u16(code).unwrap(), &mut out);
    out
}

#[test]
fn every_status() {
    for (code, byte) in
        [(200, 0x88), (204, 0x89), (206, 0x8a), (304, 0x8b), (400, 0x8c), (404, 0x8d), (500, 0x8e)]
    {
        assert_eq!(status(code), [byte]);
    }
    assert_eq!(status(302), b"\x08\x03302");
    for code in 100..=999 {
        let want = texts(&[(":status", &code.to_string())]);
        assert_eq!(decode(&mut Decoder::new(0), &status(code)), Ok(want));
    }
}

#[test]
fn whole_fields_of_the_static_table() {
    for entry in &ENTRIES[1..] {
        let (name, value) = (crate::testing::text(entry.name()), crate::testing::text(entry.value()));
        let block = field(&name, &value);
        assert_eq!(decode(&mut Decoder::new(0), &block), Ok(texts(&[(&name, &value)])));
        assert!(value.is_empty() || block.len() == 1);
    }
    assert_eq!(field("accept-encoding", "gzip, deflate"), [0x90]);
    assert_eq!(field(":path", "/index.html"), [0x85]);
}

#[test]
fn names_of_the_static_table() {
    assert_eq!(field("accept-encoding", "gzip"), b"\x0f\x01\x04gzip");
    assert_eq!(field("content-type", "text/plain"), b"\x0f\x10\x0atext/plain");
    assert_eq!(field(":path", "/a"), b"\x04\x02/a");
    assert_eq!(field("www-authenticate", ""), b"\x0f\x2e\x00");
}

#[test]
fn other_names() {
    assert_eq!(field("x", "y"), b"\x00\x01x\x01y");
    assert_eq!(field("", ""), b"\x00\x00\x00");
    assert_eq!(field("content-typo", "t"), b"\x00\x0ccontent-typo\x01t");
}

#[test]
fn rfc7541_7_1_3_secrets_are_never_indexed() {
    assert_eq!(field("authorization", "s"), b"\x1f\x08\x01s");
    assert_eq!(field("cookie", "s"), b"\x1f\x11\x01s");
    assert_eq!(field("proxy-authorization", "s"), b"\x1f\x22\x01s");
    assert_eq!(field("set-cookie", "s"), b"\x1f\x28\x01s");
    assert_eq!(field("set-cookie", ""), b"\x1f\x28\x00");
}

#[test]
fn lengths_around_their_bounds() {
    for len in [0, 1, 126, 127, 128, 129, 254, 255, 256, 16_383, 16_384, 70_000] {
        for name in ["x", ":path", "content-type", "cookie"] {
            let value = "v".repeat(len);
            let (_, fields) = decode_within(&mut Decoder::new(0), &field(name, &value), 100_000).unwrap();
            assert_eq!(fields, texts(&[(name, &value)]));
        }
        let name = "n".repeat(len);
        let (_, fields) = decode_within(&mut Decoder::new(0), &field(&name, "v"), 100_000).unwrap();
        assert_eq!(fields, texts(&[(&name, "v")]));
    }
}
