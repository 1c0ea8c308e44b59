//! Entries of the dynamic table that were found valid.

use super::*;

/// Decodes a block. Values with `!` are not valid. Returns the values of the fields that come as checked.
#[track_caller]
fn checked(decoder: &mut Decoder, block: &[u8]) -> Vec<String> {
    let mut checked = Vec::new();
    let decoded = decoder.decode(block, 80, &mut Vec::new(), |text, field| {
        let value = crate::testing::text(field.value.of(text));
        let is_valid = !value.contains('!');
        if field.is_checked {
            checked.push(value);
        }
        is_valid
    });
    assert!(decoded.is_ok());
    checked
}

#[test]
fn an_entry_that_was_valid_comes_as_checked() {
    let mut decoder = Decoder::new(4_096);
    assert_eq!(checked(&mut decoder, b"\x40\x01a\x01b\xbe"), ["b"]);
    assert_eq!(checked(&mut decoder, b"\xbe\xbe"), ["b", "b"]);
}

#[test]
fn an_entry_that_was_not_valid_never_does() {
    let mut decoder = Decoder::new(4_096);
    assert_eq!(checked(&mut decoder, b"\x40\x01a\x01!\xbe"), [""; 0]);
    assert_eq!(checked(&mut decoder, b"\xbe"), [""; 0]);
    // Neither does a field that has only its name, nor a literal that is the same.
    assert_eq!(checked(&mut decoder, b"\x40\x01a\x01b\x7e\x01!"), [""; 0]);
    assert_eq!(checked(&mut decoder, b"\xbe\x0f\x2f\x01b"), [""; 0]);
    assert_eq!(checked(&mut decoder, b"\xbf\xbe"), ["b"]);
}

#[test]
fn fields_without_an_entry_leave_the_newest_alone() {
    let mut decoder = Decoder::new(4_096);
    assert_eq!(checked(&mut decoder, b"\x40\x01a\x01!\x00\x01a\x01b"), [""; 0]);
    assert_eq!(checked(&mut decoder, b"\x82\xbe"), [""; 0]);
    // Too large for the table.
    let mut decoder = Decoder::new(34);
    assert_eq!(checked(&mut decoder, b"\x40\x01a\x01!"), [""; 0]);
    assert_eq!(checked(&mut decoder, b"\x40\x02aa\x01b"), [""; 0]);
    assert_eq!(checked(&mut decoder, b"\x40\x01a\x01!\xbe"), [""; 0]);
}

#[test]
fn an_entry_past_the_limit_is_not_checked() {
    let mut decoder = Decoder::new(4_096);
    // The third is past the limit.
    assert_eq!(checked(&mut decoder, b"\x40\x01a\x01b\x40\x01a\x01c\x40\x01a\x01d"), [""; 0]);
    assert_eq!(checked(&mut decoder, b"\xbe\xbf"), ["c"]);
}

#[test]
fn static_entries_are_not_checked() {
    assert_eq!(checked(&mut Decoder::new(4_096), b"\x81\x82"), [""; 0]);
}
