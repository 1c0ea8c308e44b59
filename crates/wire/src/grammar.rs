//! The character classes of RFC 9110 and RFC 3986, as one table.

const TOKEN: u8 = 1;
const PATH: u8 = 2;
const QUERY: u8 = 4;
const REG_NAME: u8 = 8;
const TEXT: u8 = 16;
const LOWER: u8 = 32;

static CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = class(byte as u8);
        byte += 1;
    }
    table
}

const fn class(byte: u8) -> u8 {
    let alphanumeric = byte.is_ascii_alphanumeric();
    let unreserved = alphanumeric || matches!(byte, b'-' | b'.' | b'_' | b'~');
    let sub_delim =
        matches!(byte, b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=');
    let mut class = 0;
    // RFC 9110 §5.6.2
    if alphanumeric
        || matches!(byte, b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+')
        || matches!(byte, b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~')
    {
        class |= TOKEN;
        if !byte.is_ascii_uppercase() {
            class |= LOWER;
        }
    }
    // RFC 3986 §3.2.2, §3.3, §3.4. The percent sign is no member but of QUERY: it needs a look at the two bytes after it.
    if unreserved || sub_delim {
        class |= REG_NAME | PATH | QUERY;
    }
    if matches!(byte, b':' | b'@' | b'/') {
        class |= PATH | QUERY;
    }
    if byte == b'?' {
        class |= QUERY;
    }
    // What browsers leave as it is in links: https://url.spec.whatwg.org/#query-percent-encode-set and the one for paths.
    if matches!(byte, b'[' | b']' | b'|' | b'^') {
        class |= PATH | QUERY;
    }
    if matches!(byte, b'{' | b'}' | b'\\' | b'`' | b'%') {
        class |= QUERY;
    }
    // RFC 9110 §5.5: VCHAR, obs-text, SP and HTAB
    if matches!(byte, b'\t' | b' '..=b'~' | 0x80..=0xff) {
        class |= TEXT;
    }
    class
}

#[inline(always)]
fn is(byte: u8, class: u8) -> bool {
    CLASSES[usize::from(byte)] & class != 0
}

/// How many bytes at the start of `bytes` are of this class. Eight at a time: that leaves three instructions a
/// byte of six.
#[inline(always)]
fn run_len(bytes: &[u8], class: u8) -> usize {
    let (chunks, rest) = bytes.as_chunks::<8>();
    let mut len = 0;
    for chunk in chunks {
        for (at, &byte) in chunk.iter().enumerate() {
            if !is(byte, class) {
                return len + at;
            }
        }
        len += chunk.len();
    }
    len + rest.iter().position(|&byte| !is(byte, class)).unwrap_or(rest.len())
}

/// How many bytes at the start of `bytes` a token may hold.
#[inline]
pub(crate) fn token_len(bytes: &[u8]) -> usize {
    run_len(bytes, TOKEN)
}

/// How many bytes at the start of `bytes` a field name of HTTP/2 may hold: a token without upper-case letters
/// (RFC 9113 §8.2.1).
#[inline]
pub(crate) fn lower_token_len(bytes: &[u8]) -> usize {
    run_len(bytes, LOWER)
}

/// How many bytes at the start of `bytes` a path may hold, except for the percent sign.
#[inline]
pub(crate) fn path_len(bytes: &[u8]) -> usize {
    run_len(bytes, PATH)
}

/// How many bytes at the start of `bytes` a query may hold.
#[inline]
pub(crate) fn query_len(bytes: &[u8]) -> usize {
    run_len(bytes, QUERY)
}

/// How many bytes at the start of `bytes` a registered name may hold, except for the percent sign.
#[inline]
pub(crate) fn reg_name_len(bytes: &[u8]) -> usize {
    run_len(bytes, REG_NAME)
}

/// How many bytes at the start of `bytes` a field value may hold: what ends them is a control character.
#[inline]
pub(crate) fn text_len(bytes: &[u8]) -> usize {
    let mut len = before_control(bytes);
    while bytes.get(len) == Some(&b'\t') {
        len += 1;
        len += before_control(&bytes[len..]);
    }
    len
}

/// Whether a field value may hold all these bytes. The last word overlaps the one before it, so nearly no byte is looked at
/// alone.
#[inline]
pub(crate) fn is_text(bytes: &[u8]) -> bool {
    if let Some(last) = bytes.last_chunk() {
        let (words, _) = bytes.as_chunks::<8>();
        let has_none = |word: &[u8; 8]| controls(u64::from_le_bytes(*word)) == 0;
        if has_none(last) && words.iter().all(has_none) {
            return true;
        }
    }
    text_len(bytes) == bytes.len()
}

/// How many bytes stand before the first control character, HTAB included. Eight at a time: values are where
/// most bytes of a head are.
#[inline]
fn before_control(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut len = 0;
    for word in words {
        let controls = controls(u64::from_le_bytes(*word));
        if controls != 0 {
            return len + controls.trailing_zeros() as usize / 8;
        }
        len += word.len();
    }
    len + rest.iter().position(u8::is_ascii_control).unwrap_or(rest.len())
}

/// The highest bit of each byte that is a control character. Bytes above the lowest such one may be marked
/// without being one: the subtractions borrow.
#[inline(always)]
fn controls(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let below_space = word.wrapping_sub(ONES * 0x20);
    let is_delete = (word ^ (ONES * 0x7f)).wrapping_sub(ONES);
    (below_space | is_delete) & !word & (ONES * 0x80)
}

/// `tchar` of RFC 9110 §5.6.2.
pub(crate) fn is_token_byte(byte: u8) -> bool {
    is(byte, TOKEN)
}

/// A non-empty `token` of RFC 9110 §5.6.2.
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| is_token_byte(byte))
}

/// A byte of `reg-name` of RFC 3986 §3.2.2, except for the percent sign.
pub(crate) fn is_reg_name_byte(byte: u8) -> bool {
    is(byte, REG_NAME)
}

/// A byte that a field value may hold: HTAB, SP, VCHAR, obs-text (RFC 9110 §5.5).
pub(crate) fn is_text_byte(byte: u8) -> bool {
    is(byte, TEXT)
}

/// Without the optional whitespace (SP, HTAB) at both ends: RFC 9110 §5.6.3.
pub(crate) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// The elements of a comma-separated list, trimmed, empty ones included: RFC 9110 §5.6.1.
pub(crate) fn elements(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|&byte| byte == b',').map(trim)
}

/// Digits of which any number fits in 64 bits.
const DIGITS_THAT_FIT: usize = 19;

/// `1*DIGIT` that fits in 64 bits. `Err(true)`: digits, but too many.
pub(crate) fn decimal(digits: &[u8]) -> Result<u64, bool> {
    if !(1..=DIGITS_THAT_FIT).contains(&digits.len()) {
        return long_decimal(digits);
    }
    let mut value = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return Err(false);
        }
        value = value * 10 + u64::from(digit - b'0');
    }
    Ok(value)
}

#[cold]
#[inline(never)]
fn long_decimal(digits: &[u8]) -> Result<u64, bool> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(false);
    }
    digits.iter().try_fold(0u64, |value, digit| {
        value.checked_mul(10).and_then(|tens| tens.checked_add(u64::from(digit - b'0'))).ok_or(true)
    })
}
