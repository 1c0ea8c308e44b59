//! Integers with a prefix (RFC 7541 §5.1).

use super::fault::HpackFault;

/// Bytes after the prefix. Five carry 35 bits. Zeros at the end are legal, and are counted too.
const BYTES_MAX: usize = 5;

/// Reads an integer whose first byte is `first`, with a prefix of `prefix_bits` bits. `rest` is what follows that byte.
/// Returns what follows the integer.
#[inline(always)]
pub(super) fn read(first: u8, prefix_bits: u32, rest: &[u8]) -> Result<(usize, &[u8]), HpackFault> {
    let prefix_max = (1 << prefix_bits) - 1;
    let prefix = usize::from(first) & prefix_max;
    if prefix < prefix_max { Ok((prefix, rest)) } else { read_more(prefix, rest) }
}

#[inline(never)]
fn read_more(prefix: usize, rest: &[u8]) -> Result<(usize, &[u8]), HpackFault> {
    let mut value = prefix as u64;
    for (at, &byte) in rest.iter().take(BYTES_MAX).enumerate() {
        value += u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            let value = u32::try_from(value).map_err(|_| HpackFault::IntegerTooLarge)?;
            return Ok((value as usize, &rest[at + 1..]));
        }
    }
    Err(if rest.len() < BYTES_MAX { HpackFault::Incomplete } else { HpackFault::IntegerTooLarge })
}

/// Writes `value`. `pattern` is the first byte without the prefix.
#[inline(always)]
pub(super) fn write(pattern: u8, prefix_bits: u32, value: usize, out: &mut Vec<u8>) {
    let prefix_max = (1 << prefix_bits) - 1;
    if value < prefix_max {
        out.push(pattern | value as u8);
    } else {
        out.push(pattern | prefix_max as u8);
        write_more(value - prefix_max, out);
    }
}

#[inline(never)]
fn write_more(mut value: usize, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests;
