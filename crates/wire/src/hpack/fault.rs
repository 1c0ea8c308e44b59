//! The errors of a field block.

use std::error::Error;
use std::fmt::{Display, Formatter, Result};

/// What the peer did wrong in a field block. The dynamic table is out of step after it, so the connection ends with
/// the error COMPRESSION_ERROR (RFC 9113 §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HpackFault {
    /// The block ends inside a field.
    Incomplete,
    /// An integer has more than five bytes after its prefix, or does not fit in 32 bits (RFC 7541 §5.1).
    IntegerTooLarge,
    /// An index is 0, or past the end of the dynamic table (RFC 7541 §2.3.3).
    IndexUnknown,
    /// A string holds the code EOS (RFC 7541 §5.2).
    HuffmanEos,
    /// The bits after the last code of a string are more than seven, or are not all ones (RFC 7541 §5.2).
    HuffmanPaddingInvalid,
    /// A size of the dynamic table is larger than this end has announced (RFC 7541 §6.3).
    TableSizeTooLarge,
    /// A size of the dynamic table stands after a field, or is the third of its block (RFC 7541 §4.2).
    TableSizeMisplaced,
    /// The fields are longer than four times the limit for a head.
    FieldsTooLong,
}

impl HpackFault {
    /// Where the rule stands, as in `RFC 7541 §5.1`.
    pub fn rule(self) -> &'static str {
        match self {
            HpackFault::Incomplete => "RFC 7541 §3.1",
            HpackFault::IntegerTooLarge => "RFC 7541 §5.1",
            HpackFault::IndexUnknown => "RFC 7541 §2.3.3",
            HpackFault::HuffmanEos | HpackFault::HuffmanPaddingInvalid => "RFC 7541 §5.2",
            HpackFault::TableSizeTooLarge => "RFC 7541 §6.3",
            HpackFault::TableSizeMisplaced => "RFC 7541 §4.2",
            HpackFault::FieldsTooLong => "RFC 7541 §7.3",
        }
    }
}

impl Display for HpackFault {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            HpackFault::Incomplete => "A field block ends inside a field.",
            HpackFault::IntegerTooLarge => "An integer of a field block is too large.",
            HpackFault::IndexUnknown => "A field block names an index that the table does not have.",
            HpackFault::HuffmanEos => "A Huffman-coded string holds the code EOS.",
            HpackFault::HuffmanPaddingInvalid => "A Huffman-coded string does not end in at most seven ones.",
            HpackFault::TableSizeTooLarge => "The dynamic table would be larger than this end allows.",
            HpackFault::TableSizeMisplaced => "A size of the dynamic table stands where it may not stand.",
            HpackFault::FieldsTooLong => "The fields are longer than four times the limit for a head.",
        })
    }
}

impl Error for HpackFault {}
