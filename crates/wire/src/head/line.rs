//! What stands in one field line, and if nothing does, which rule did it break?

use super::{Field, Span};
use crate::error::Fault;
use crate::grammar::{is_token, text_len, token_len, trim};

/// Splits the field line that starts at `at` in `bytes` (RFC 9112 §5), and says where the next line starts.
/// None: the line is not whole, or breaks a rule; see [`line_fault`].
///
/// One pass finds the end of the line and checks the value: no byte that ends the one may stand in the other.
#[inline]
pub(crate) fn field_line(bytes: &[u8], at: usize) -> Option<(Field, usize)> {
    let line = bytes.get(at..)?;
    let colon = token_len(line);
    if colon == 0 || line.get(colon) != Some(&b':') {
        return None;
    }
    let mut start = colon + 1;
    while let Some(b' ' | b'\t') = line.get(start) {
        start += 1;
    }
    let value = &line[start..];
    let len = text_len(value);
    let [b'\r', b'\n', ..] = value[len..] else { return None };
    let field = Field { name: span(at, colon), value: span(at + start, trim_end(&value[..len]).len()) };
    Some((field, at + start + len + 2))
}

#[inline]
fn trim_end(mut value: &[u8]) -> &[u8] {
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

fn span(start: usize, len: usize) -> Span {
    Span { start: start as u32, len: len as u32 }
}

/// Which rule the field line at the start of `lines` broke: RFC 9112 §5, RFC 9110 §5.
#[cold]
#[inline(never)]
pub(crate) fn line_fault(lines: &[u8]) -> Fault {
    let line = lines.split(|&byte| byte == b'\r').next().unwrap_or_default();
    if let [b' ' | b'\t', ..] = line {
        return Fault::LineFolding;
    }
    let Some(colon) = line.iter().position(|&byte| byte == b':') else {
        return Fault::FieldWithoutColon;
    };
    let name = &line[..colon];
    if is_token(name) {
        return Fault::FieldValueInvalid;
    }
    // White space before the name was handled above: what trim removes stands before the colon.
    if is_token(trim(name)) { Fault::SpaceBeforeColon } else { Fault::FieldNameInvalid }
}
