//! Decodes strings in Huffman code (RFC 7541 §5.2).
//!
//! Codes of at most eight bits, those of letters, digits and most punctuation, are found by one look at a table of
//! 512 bytes. Longer codes are found by their length.

mod code;

use super::fault::HpackFault;
use code::{BITS_MAX, LONG_CODES, SHORT_BITS, SHORT_CODES, SYMBOLS};

/// The most bytes that a string of `len` bytes can decode to: the shortest code has five bits.
#[inline(always)]
pub(super) const fn decoded_len_max(len: usize) -> usize {
    len * 8 / 5
}

/// Decodes `string` into `out`, which has room for [`decoded_len_max`]. Returns the length.
pub(super) fn decode(string: &[u8], out: &mut [u8]) -> Result<usize, HpackFault> {
    let mut len = 0;
    each_byte(string, |byte| {
        // The room is there. This is cheaper than `push`.
        if let Some(place) = out.get_mut(len) {
            *place = byte;
        }
        len += 1;
    })?;
    Ok(len)
}

/// Returns the length of the decoded string.
#[cold]
pub(super) fn decoded_len(string: &[u8]) -> Result<usize, HpackFault> {
    let mut len = 0;
    each_byte(string, |_| len += 1)?;
    Ok(len)
}

#[inline(always)]
fn each_byte(mut string: &[u8], mut take: impl FnMut(u8)) -> Result<(), HpackFault> {
    // The next bits of the string, from the highest bit on, and their number.
    let (mut bits, mut count) = (0u64, 0u32);
    loop {
        refill(&mut bits, &mut count, &mut string);
        if string.is_empty() {
            break;
        }
        while count >= BITS_MAX {
            let (byte, len) = code(bits)?;
            take(byte);
            bits <<= len;
            count -= len;
        }
    }
    while count > 0 {
        let (byte, len) = code(bits)?;
        if len > count {
            return padding(bits, count);
        }
        take(byte);
        bits <<= len;
        count -= len;
    }
    Ok(())
}

/// Returns the byte of the code that `bits` start with, and the length of the code.
#[inline(always)]
fn code(bits: u64) -> Result<(u8, u32), HpackFault> {
    let short = SHORT_CODES[(bits >> (u64::BITS - SHORT_BITS)) as usize];
    if short >> 8 != 0 { Ok((short as u8, u32::from(short >> 8))) } else { long(bits) }
}

/// Fills `bits` with as many whole bytes as fit.
#[inline(always)]
fn refill(bits: &mut u64, count: &mut u32, string: &mut &[u8]) {
    let room = (u64::BITS - *count) / 8;
    let (next, len) = match string.first_chunk() {
        Some(chunk) => (u64::from_be_bytes(*chunk), room),
        None => (last_bytes(string), room.min(string.len() as u32)),
    };
    // Bits of a byte that does not fit whole are no harm: the next refill puts the same bits there.
    *bits |= next >> *count;
    *count += len * 8;
    *string = &string[len as usize..];
}

#[inline(always)]
fn last_bytes(string: &[u8]) -> u64 {
    let bits = string.iter().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
    // No shift if there is no byte.
    bits.checked_shl(u64::BITS - 8 * string.len() as u32).unwrap_or(0)
}

/// Finds the code of more than [`SHORT_BITS`] bits that `bits` start with.
#[cold]
fn long(bits: u64) -> Result<(u8, u32), HpackFault> {
    let start = (bits >> 32) as u32;
    let Some(codes) = LONG_CODES.iter().find(|codes| start <= codes.last) else {
        return Err(HpackFault::HuffmanEos);
    };
    let at = (start - codes.first) >> (u32::BITS - codes.len);
    Ok((SYMBOLS[usize::from(codes.symbols) + at as usize], codes.len))
}

/// Checks the bits that are left at the end and hold no whole code: the first bits of EOS, which are ones.
#[cold]
fn padding(bits: u64, count: u32) -> Result<(), HpackFault> {
    let is_ones = bits.leading_ones() >= count;
    if count < 8 && is_ones { Ok(()) } else { Err(HpackFault::HuffmanPaddingInvalid) }
}

#[cfg(test)]
mod tests;
