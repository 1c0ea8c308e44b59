//! Which bytes may stand where? The character classes of RFC 9110 and RFC 3986, as one table.

const TOKEN: u8 = 1;
const PATH: u8 = 2;
const QUERY: u8 = 4;
const REG_NAME: u8 = 8;
const TEXT: u8 = 16;

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
    }
    // RFC 3986 §3.2.2, §3.3, §3.4. The percent sign is no member: it needs a look at the two bytes after it.
    if unreserved || sub_delim {
        class |= REG_NAME | PATH | QUERY;
    }
    if matches!(byte, b':' | b'@' | b'/') {
        class |= PATH | QUERY;
    }
    if byte == b'?' {
        class |= QUERY;
    }
    // RFC 9110 §5.5: VCHAR, obs-text, SP and HTAB
    if matches!(byte, b'\t' | b' '..=b'~' | 0x80..=0xff) {
        class |= TEXT;
    }
    class
}

fn is(byte: u8, class: u8) -> bool {
    CLASSES[usize::from(byte)] & class != 0
}

/// `tchar` of RFC 9110 §5.6.2.
pub(crate) fn is_token_byte(byte: u8) -> bool {
    is(byte, TOKEN)
}

/// A non-empty `token` of RFC 9110 §5.6.2.
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| is_token_byte(byte))
}

/// `pchar` or `/` of RFC 3986 §3.3, but for the percent sign.
pub(crate) fn is_path_byte(byte: u8) -> bool {
    is(byte, PATH)
}

/// A byte of `query` of RFC 3986 §3.4, but for the percent sign.
pub(crate) fn is_query_byte(byte: u8) -> bool {
    is(byte, QUERY)
}

/// A byte of `reg-name` of RFC 3986 §3.2.2, but for the percent sign.
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

/// `1*DIGIT` that fits in 64 bits. `Err(true)`: digits, but too many.
pub(crate) fn decimal(digits: &[u8]) -> Result<u64, bool> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(false);
    }
    digits.iter().try_fold(0u64, |value, digit| {
        value.checked_mul(10).and_then(|tens| tens.checked_add(u64::from(digit - b'0'))).ok_or(true)
    })
}
