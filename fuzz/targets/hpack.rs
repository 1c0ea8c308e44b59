//! The field blocks of one direction of a connection have one reading, and cost no more than their limit.
//!
//! Input: the limit in steps of 16 bytes, the size of the table in steps of 16, and then blocks, each after its length.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weftwork_fuzz::hpack::{Field, Reference, size};
use weftwork_wire::hpack::{Decoded, Decoder, HpackFault, encode_field};

/// Past so many times the limit, decoding ends.
const LIMIT_FACTOR_MAX: usize = 4;

fuzz_target!(|bytes: &[u8]| {
    let [limit, table, blocks @ ..] = bytes else { return };
    let (bytes_max, table_bytes_max) = (usize::from(*limit) * 16, u16::from(*table) * 16);
    let mut decoder = Decoder::new(table_bytes_max);
    let mut reference = Reference::new(table_bytes_max.into());
    let mut rest = blocks;
    while let Some((&len, after)) = rest.split_first() {
        let (block, after) = after.split_at(after.len().min(len.into()));
        rest = after;
        if !agree(&mut decoder, &mut reference, block, bytes_max) {
            return;
        }
    }
});

/// Returns whether the connection goes on.
fn agree(decoder: &mut Decoder, reference: &mut Reference, block: &[u8], bytes_max: usize) -> bool {
    let (mut text, mut fields) = (Vec::new(), Vec::<Field>::new());
    let decoded = decoder.decode(block, bytes_max, &mut text, |text, field| {
        fields.push((field.name.of(text).to_vec(), field.value.of(text).to_vec()));
        // Any rule about the field alone.
        let is_valid = field.value.len % 2 == 0;
        assert!(is_valid || !field.is_checked, "found valid before");
        is_valid
    });
    let counted = |fields: &[Field]| fields.iter().map(size).sum::<usize>();
    assert!(counted(&fields) <= bytes_max && text.len() <= bytes_max);
    let want = reference.decode(block);
    match (decoded, want) {
        (Ok(Decoded::Whole), Some(want)) => assert_eq!(fields, want),
        (Ok(Decoded::TooLarge), Some(want)) => {
            assert!(counted(&want) > bytes_max && counted(&want) <= bytes_max * LIMIT_FACTOR_MAX);
            let within = (0..want.len()).take_while(|&at| counted(&want[..=at]) <= bytes_max).count();
            assert_eq!(fields, want[..within]);
        }
        // Decoding stops at the first fault: what follows in the block may be another.
        (Err(HpackFault::FieldsTooLong), want) => {
            assert!(want.is_none_or(|want| counted(&want) > bytes_max * LIMIT_FACTOR_MAX));
            return false;
        }
        (Err(_), None) => return false,
        (decoded, want) => panic!("{decoded:?}, and the reference: {want:?}"),
    }
    reads_what_it_writes(&fields);
    true
}

fn reads_what_it_writes(fields: &[Field]) {
    let mut block = Vec::new();
    let fields: Vec<_> = fields.iter().filter(|(name, _)| name.is_ascii()).cloned().collect();
    for (name, value) in &fields {
        encode_field(std::str::from_utf8(name).expect("ASCII"), value, &mut block);
    }
    assert_eq!(Reference::new(0).decode(&block), Some(fields));
}
