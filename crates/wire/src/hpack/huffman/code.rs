//! The Huffman code (RFC 7541, appendix B), from the lengths of its codes.
//!
//! Codes of one length are consecutive numbers, in the order of their bytes. Shorter codes come first.

/// Length in bits of the code of each byte. The last is that of EOS.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

const EOS: usize = 256;
/// Length of the longest code.
pub(super) const BITS_MAX: u32 = 30;
/// Length of the codes that one look finds.
pub(super) const SHORT_BITS: u32 = 8;

/// The codes of one length. Codes stand in the highest bits.
#[derive(Clone, Copy)]
pub(super) struct LongCodes {
    /// The first code, followed by zeros.
    pub(super) first: u32,
    /// The last code, followed by ones.
    pub(super) last: u32,
    pub(super) len: u32,
    /// Where the byte of the first code is in [`SYMBOLS`].
    pub(super) symbols: u16,
}

/// The byte whose code the first [`SHORT_BITS`] bits start with, and the length of the code above it. 0: the code is longer.
pub(super) static SHORT_CODES: [u16; 1 << SHORT_BITS] = TABLES.short;
pub(super) static LONG_CODES: [LongCodes; LONG_LENGTHS] = TABLES.long;
/// All bytes in the order of their codes.
pub(super) static SYMBOLS: [u8; EOS] = TABLES.symbols;

struct Tables {
    short: [u16; 1 << SHORT_BITS],
    long: [LongCodes; LONG_LENGTHS],
    symbols: [u8; EOS],
    codes: [u32; EOS + 1],
}

const TABLES: Tables = tables();
/// Lengths above [`SHORT_BITS`] that codes have.
const LONG_LENGTHS: usize = 17;

const fn tables() -> Tables {
    let mut tables = Tables {
        short: [0; 1 << SHORT_BITS],
        long: [LongCodes { first: 0, last: 0, len: 0, symbols: 0 }; LONG_LENGTHS],
        symbols: [0; EOS],
        codes: [0; EOS + 1],
    };
    let (mut code, mut symbols, mut lengths) = (0u32, 0, 0);
    let mut len = 1;
    while len <= BITS_MAX {
        let (first, first_symbol) = (code, symbols);
        let mut symbol = 0;
        while symbol <= EOS {
            if LENGTHS[symbol] as u32 == len {
                tables.codes[symbol] = code;
                if symbol != EOS {
                    tables.symbols[symbols] = symbol as u8;
                    fill_short(&mut tables.short, code, len, symbol as u8);
                    symbols += 1;
                }
                code += 1;
            }
            symbol += 1;
        }
        // Of the longest, EOS is the last, and is no byte.
        let end = if len == BITS_MAX { code - 1 } else { code };
        if len > SHORT_BITS && end > first {
            let unused = u32::BITS - len;
            let last = ((end - 1) << unused) | ((1 << unused) - 1);
            tables.long[lengths] =
                LongCodes { first: first << unused, last, len, symbols: first_symbol as u16 };
            lengths += 1;
        }
        code <<= 1;
        len += 1;
    }
    assert!(symbols == EOS && lengths == LONG_LENGTHS);
    tables
}

const fn fill_short(table: &mut [u16; 1 << SHORT_BITS], code: u32, len: u32, byte: u8) {
    if len > SHORT_BITS {
        return;
    }
    let unused = SHORT_BITS - len;
    let mut at = code << unused;
    while at < (code + 1) << unused {
        table[at as usize] = (len as u16) << 8 | byte as u16;
        at += 1;
    }
}

/// Returns the code of a byte, or of EOS, and its length in bits.
#[cfg(test)]
pub(in crate::hpack) fn code_of(symbol: usize) -> (u32, u32) {
    (TABLES.codes[symbol], u32::from(LENGTHS[symbol]))
}
