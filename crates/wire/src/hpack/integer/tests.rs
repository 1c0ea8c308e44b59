//! Bounds, and the examples of RFC 7541, appendix C.1.

use super::*;

fn written(prefix_bits: u32, value: usize) -> Vec<u8> {
    let mut out = Vec::new();
    write(0, prefix_bits, value, &mut out);
    out
}

fn read_all(prefix_bits: u32, bytes: &[u8]) -> Result<usize, HpackFault> {
    read(bytes[0], prefix_bits, &bytes[1..]).map(|(value, rest)| {
        assert_eq!(rest, b"");
        value
    })
}

#[test]
fn rfc7541_c_1_integers() {
    for (prefix_bits, value, bytes) in [(5, 10, &b"\x0a"[..]), (5, 1_337, b"\x1f\x9a\x0a"), (8, 42, b"\x2a")]
    {
        assert_eq!(written(prefix_bits, value), bytes);
        assert_eq!(read_all(prefix_bits, bytes), Ok(value));
    }
}

#[test]
fn every_prefix_and_every_bound() {
    for prefix_bits in 1..=8 {
        let prefix_max = (1 << prefix_bits) - 1;
        let bounds = [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 268_435_455, 268_435_456];
        let bounds = bounds.into_iter().flat_map(|bound| [bound, bound + prefix_max, bound + prefix_max + 1]);
        for value in bounds.chain([prefix_max - 1, prefix_max, u32::MAX as usize - 1, u32::MAX as usize]) {
            let bytes = written(prefix_bits, value);
            assert_eq!(read_all(prefix_bits, &bytes), Ok(value), "{prefix_bits} bits: {value}");
            // Bits above the prefix are not part of the integer, and what follows is left.
            let first = bytes[0] | ((1u32 << prefix_bits) ^ 0xff) as u8 & !prefix_max as u8;
            let longer = [&bytes[1..], b"\xff\xff"].concat();
            assert_eq!(read(first, prefix_bits, &longer), Ok((value, &b"\xff\xff"[..])));
            for cut in 1..bytes.len() {
                assert_eq!(read_all(prefix_bits, &bytes[..cut]), Err(HpackFault::Incomplete));
            }
        }
    }
}

#[test]
fn zeros_at_the_end_are_legal_up_to_five_bytes() {
    assert_eq!(read_all(5, b"\x1f\x00"), Ok(31));
    assert_eq!(read_all(5, b"\x1f\x81\x00"), Ok(32));
    assert_eq!(read_all(5, b"\x1f\x81\x80\x80\x80\x00"), Ok(32));
    assert_eq!(read_all(5, b"\x1f\x81\x80\x80\x80\x80\x00"), Err(HpackFault::IntegerTooLarge));
}

#[test]
fn more_than_32_bits_are_too_large() {
    // 2^32 - 1, and one more.
    assert_eq!(read_all(5, b"\x1f\xe0\xff\xff\xff\x0f"), Ok(u32::MAX as usize));
    assert_eq!(read_all(5, b"\x1f\xe1\xff\xff\xff\x0f"), Err(HpackFault::IntegerTooLarge));
    assert_eq!(read_all(5, b"\x1f\xff\xff\xff\xff\x7f"), Err(HpackFault::IntegerTooLarge));
    // It needs no end to be too large.
    assert_eq!(read_all(5, &[0xff; 6]), Err(HpackFault::IntegerTooLarge));
    assert_eq!(read_all(5, &[0xff; 100]), Err(HpackFault::IntegerTooLarge));
    assert_eq!(read_all(5, &[0xff; 5]), Err(HpackFault::Incomplete));
}
