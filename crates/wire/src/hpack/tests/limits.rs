//! Limits: fields are counted before they are written.

use super::*;

/// An entry of 4,000 bytes as RFC 7541 counts, and references to it.
fn bomb(references: usize) -> Vec<u8> {
    let mut block = b"\x40\x01n".to_vec();
    integer::write(0, 7, 3_967, &mut block);
    block.extend_from_slice(&[b'v'; 3_967]);
    block.extend(std::iter::repeat_n(0xbe, references));
    block
}

#[test]
fn references_to_a_large_entry_cost_no_more_than_the_limit() {
    let mut decoder = Decoder::new(4_096);
    let (mut text, mut given) = (Vec::new(), 0);
    let decoded = decoder.decode(&bomb(15), 16_000, &mut text, |_, _| {
        given += 1;
        true
    });
    assert_eq!(decoded, Ok(Decoded::TooLarge));
    assert_eq!((given, text.len()), (4, 4 * 3_968));
    assert!(text.capacity() <= 2 * 16_000);
    // The 17th is past four times the limit.
    let decoded = decoder.decode(&bomb(16), 16_000, &mut text, |_, _| true);
    assert_eq!(decoded, Err(HpackFault::FieldsTooLong));
}

#[test]
fn each_field_counts_32_bytes_more() {
    for (fields, want) in [(10, Decoded::Whole), (11, Decoded::TooLarge)] {
        let (decoded, given) = decode_within(&mut Decoder::new(4_096), &vec![0x82; fields], 10 * 42).unwrap();
        assert_eq!((decoded, given.len()), (want, 10));
    }
}

#[test]
fn the_limit_is_exact_for_every_kind_of_field() {
    // Each decodes to ten bytes.
    let fields: [&[u8]; 6] = [
        b"\x82",
        b"\x40\x05abcde\x0512345",
        b"\x00\x05abcde\x0512345",
        b"\x04\x05/path",
        // `aaaaa` and `00000`
        b"\x00\x84\x18\xc6\x31\xff\x84\x00\x00\x00\x7f",
        b"\x40\x84\x18\xc6\x31\xff\x0512345",
    ];
    for field in fields {
        let (decoded, given) = decode_within(&mut Decoder::new(4_096), field, 42).unwrap();
        assert_eq!((decoded, given.len()), (Decoded::Whole, 1), "{field:x?}");
        let (decoded, given) = decode_within(&mut Decoder::new(4_096), field, 41).unwrap();
        assert_eq!((decoded, given.len()), (Decoded::TooLarge, 0), "{field:x?}");
    }
}

#[test]
fn past_the_limit_no_field_is_given_even_if_it_fits() {
    let block = b"\x82\x00\x01a\x05bbbbb\x82\x00\x00\x00";
    let (decoded, fields) = decode_within(&mut Decoder::new(4_096), block, 42 + 37).unwrap();
    assert_eq!((decoded, fields), (Decoded::TooLarge, texts(&[(":method", "GET")])));
}

#[test]
fn the_table_stays_in_step_past_the_limit() {
    let mut decoder = Decoder::new(4_096);
    let block = b"\x40\x01a\x01b\x40\x84\x18\xc6\x31\xff\x84\x00\x00\x00\x7f\xbe\xbf";
    let (decoded, fields) = decode_within(&mut decoder, block, 50).unwrap();
    assert_eq!((decoded, fields), (Decoded::TooLarge, texts(&[("a", "b")])));
    assert_eq!(decode(&mut decoder, b"\xbe\xbf"), Ok(texts(&[("aaaaa", "00000"), ("a", "b")])));
}

#[test]
fn a_field_larger_than_the_table_empties_it_past_the_limit_too() {
    let mut decoder = Decoder::new(100);
    assert_eq!(decode(&mut decoder, b"\x40\x01a\x01b"), Ok(texts(&[("a", "b")])));
    let large = [&b"\x40\x01a\x7f\x01"[..], &[b'v'; 128]].concat();
    let (decoded, fields) = decode_within(&mut decoder, &large, 100).unwrap();
    assert_eq!((decoded, fields), (Decoded::TooLarge, vec![]));
    assert_eq!(entries(&decoder), []);
}

#[test]
fn strings_past_the_limit_are_checked() {
    // 319 codes, and then bits that are no padding.
    let block = [&b"\x00\x01a\xff\x49"[..], &[0; 199], b"\xfe"].concat();
    let decoded = Decoder::new(4_096).decode(&block, 100, &mut Vec::new(), |_, _| true);
    assert_eq!(decoded, Err(HpackFault::HuffmanPaddingInvalid));
}

#[test]
fn the_text_grows_by_the_limit_at_most() {
    // 1,000 bytes of code are 1,600 zeros.
    let code = [&b"\x00\x01a"[..], b"\xff\xe9\x06", &[0; 1_000]].concat();
    for bytes_max in [0, 100, 1_600, 1_633] {
        let mut text = Vec::new();
        let decoded = Decoder::new(4_096).decode(&code, bytes_max, &mut text, |_, _| true);
        let is_whole = bytes_max == 1_633;
        let past = 4 * bytes_max < 1_633;
        assert_eq!(
            decoded,
            match (is_whole, past) {
                (true, _) => Ok(Decoded::Whole),
                (_, true) => Err(HpackFault::FieldsTooLong),
                _ => Ok(Decoded::TooLarge),
            }
        );
        assert_eq!(text.len(), if is_whole { 1_601 } else { 0 });
        assert!(is_whole || text.capacity() == 0);
    }
}

#[test]
fn a_limit_of_all_bits_does_not_overflow() {
    let (decoded, fields) = decode_within(&mut Decoder::new(4_096), b"\x82", usize::MAX).unwrap();
    assert_eq!((decoded, fields.len()), (Decoded::Whole, 1));
}
