//! Helpers of the tests of blocks.

use super::*;

mod blocks;
mod checked;
mod differential;
mod encoding;
mod limits;
mod rfc7541;
mod table_sizes;

/// What tests allow where the limit is not the point.
const BYTES_MAX: usize = 65_536;

type Texts = Vec<(String, String)>;

/// Bytes from hexadecimal digits, with white space anywhere.
fn hex(digits: &str) -> Vec<u8> {
    let digits: String = digits.split_whitespace().collect();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

fn texts(fields: &[(&str, &str)]) -> Texts {
    fields.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Decodes a block, and checks what holds for every block.
fn decode_within(
    decoder: &mut Decoder,
    block: &[u8],
    bytes_max: usize,
) -> Result<(Decoded, Texts), HpackFault> {
    let before = b"before".to_vec();
    let (mut text, mut fields, mut counted) = (before.clone(), Texts::new(), 0);
    let mut end = before.len();
    let decoded = decoder.decode(block, bytes_max, &mut text, |text, field| {
        let of = |span: Span| crate::testing::text(span.of(text));
        assert_eq!(field.name.start as usize, end, "one after the other");
        assert_eq!(field.value.start, field.name.start + field.name.len);
        end = (field.value.start + field.value.len) as usize;
        assert_eq!(end, text.len(), "the field is the last of the text");
        let name_index = ENTRIES.iter().skip(1).find(|entry| entry.name() == field.name.of(text));
        assert_eq!(field.name_index, name_index.map_or(0, |entry| entry.name_index));
        counted += (field.name.len + field.value.len) as usize + 32;
        assert!(counted <= bytes_max);
        fields.push((of(field.name), of(field.value)));
        true
    })?;
    assert_eq!(text.len(), end, "nothing but fields");
    assert!(text.starts_with(&before));
    assert!(decoder.table.size() <= decoder.table.size_max());
    Ok((decoded, fields))
}

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Texts, HpackFault> {
    let (decoded, fields) = decode_within(decoder, block, BYTES_MAX)?;
    assert_eq!(decoded, Decoded::Whole);
    Ok(fields)
}

/// The entries of the dynamic table, the newest first.
fn entries(decoder: &Decoder) -> Texts {
    let fields = (0..).map_while(|age| decoder.table.get(age));
    let split = fields.map(|field| field.text.split_at(field.name.len));
    split.map(|(name, value)| (crate::testing::text(name), crate::testing::text(value))).collect()
}
