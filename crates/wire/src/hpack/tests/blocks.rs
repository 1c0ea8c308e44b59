//! Blocks that are well-formed or not, field by field.

use super::*;

#[track_caller]
fn fault(block: &[u8], want: HpackFault) {
    assert_eq!(decode(&mut Decoder::new(4_096), block), Err(want));
}

#[track_caller]
fn fields(block: &[u8], want: &[(&str, &str)]) {
    assert_eq!(decode(&mut Decoder::new(4_096), block), Ok(texts(want)));
}

#[test]
fn empty_block_has_no_fields() {
    fields(b"", &[]);
}

#[test]
fn rfc7541_6_1_index_0_is_a_fault() {
    fault(b"\x80", HpackFault::IndexUnknown);
}

#[test]
fn rfc7541_2_3_3_indices_past_the_table_are_faults() {
    for block in [
        &b"\xbe"[..],
        b"\xff\x00",
        b"\xff\xff\xff\xff\xff\x07",
        b"\x7e\x00",
        b"\x0f\x2f\x00",
        b"\x1f\x2f\x00",
    ] {
        fault(block, HpackFault::IndexUnknown);
    }
    let mut decoder = Decoder::new(4_096);
    assert_eq!(decode(&mut decoder, b"\x40\x01a\x01b\xbe"), Ok(texts(&[("a", "b"), ("a", "b")])));
    assert_eq!(decode(&mut decoder.clone(), b"\xbe"), Ok(texts(&[("a", "b")])));
    assert_eq!(decode(&mut decoder, b"\xbf"), Err(HpackFault::IndexUnknown));
}

#[test]
fn rfc7541_6_2_names_from_either_table() {
    let block = b"\x40\x01n\x01v\x7e\x01w\x0f\x2f\x01x\x1f\x30\x01y\x41\x01h\x04\x02/p";
    // Index 62 is the newest entry at each time.
    let want = [("n", "v"), ("n", "w"), ("n", "x"), ("n", "y"), (":authority", "h"), (":path", "/p")];
    fields(block, &want);
}

#[test]
fn names_and_values_may_be_empty() {
    fields(b"\x00\x00\x00\x40\x80\x80\xbe", &[("", ""), ("", ""), ("", "")]);
}

#[test]
fn bytes_are_not_judged() {
    fields(b"\x00\x03A\0\n\x02\xff\xfe", &[("A\0\n", "\u{ff}\u{fe}")]);
}

#[test]
fn incomplete_blocks() {
    for block in [
        &b"\xff"[..],
        b"\xff\x80",
        b"\x40",
        b"\x40\x01",
        b"\x40\x01a",
        b"\x40\x01a\x02b",
        b"\x41",
        b"\x00\x7f",
        b"\x0f",
        b"\x01\x7f\x80",
        b"\x01\x82\xff",
        b"\x01\x7f\xff\xff\xff\xff\x0e",
        b"\x3f",
    ] {
        fault(block, HpackFault::Incomplete);
    }
}

#[test]
fn lengths_above_32_bits_are_faults() {
    fault(b"\x01\x7f\xff\xff\xff\xff\x7f", HpackFault::IntegerTooLarge);
    fault(b"\xff\x80\x80\x80\x80\x80\x00", HpackFault::IntegerTooLarge);
}

#[test]
fn faults_in_huffman_code_reach_the_caller() {
    // In the name and in the value, indexed and not.
    for fields in [&b"\x00\x81\x00\x01v"[..], b"\x01\x81\x00", b"\x40\x81\x00\x01v", b"\x41\x81\x00"] {
        fault(fields, HpackFault::HuffmanPaddingInvalid);
    }
    fault(b"\x01\x84\xff\xff\xff\xff", HpackFault::HuffmanEos);
}

#[test]
fn fields_may_be_changed_as_they_come() {
    let (mut text, mut names) = (Vec::new(), Vec::new());
    let block = b"\x40\x01a\x01b\x82\xbe";
    let decoded = Decoder::new(4_096).decode(block, BYTES_MAX, &mut text, |text, field| {
        names.push(field.name.of(text).to_vec());
        text.truncate(field.name.start as usize);
        text.push(b'.');
        true
    });
    assert_eq!(decoded, Ok(Decoded::Whole));
    assert_eq!(names, [&b"a"[..], b":method", b"a"]);
    assert_eq!(text, b"...");
}

#[test]
fn every_fault_has_a_rule_and_a_text() {
    for fault in [
        HpackFault::Incomplete,
        HpackFault::IntegerTooLarge,
        HpackFault::IndexUnknown,
        HpackFault::HuffmanEos,
        HpackFault::HuffmanPaddingInvalid,
        HpackFault::TableSizeTooLarge,
        HpackFault::TableSizeMisplaced,
        HpackFault::FieldsTooLong,
    ] {
        assert!(fault.rule().starts_with("RFC 7541 §"));
        assert!(fault.to_string().ends_with('.'));
    }
}
