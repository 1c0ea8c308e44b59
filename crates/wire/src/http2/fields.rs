//! Reads trailers, and checks the grammar of fields.

use super::fault::Violation;
use crate::body::is_forbidden;
use crate::error::Fault;
use crate::grammar::{is_text, is_token, lower_token_len};
use crate::head::Field;
use crate::hpack::DecodedField;
use crate::limits::Limits;

/// Trailers that are being read (RFC 9113 §8.1).
pub(super) struct TrailerFields<'a> {
    fields: &'a mut Vec<Field>,
    limits: &'a Limits,
    fault: Option<Violation>,
}

impl<'a> TrailerFields<'a> {
    pub(super) fn new(fields: &'a mut Vec<Field>, limits: &'a Limits) -> TrailerFields<'a> {
        fields.clear();
        TrailerFields { fields, limits, fault: None }
    }

    /// Notes a field. Returns whether its grammar is right.
    pub(super) fn note(&mut self, text: &[u8], field: DecodedField) -> bool {
        if self.fault.is_none() {
            self.fault = self.note_field(text, field).err();
        }
        self.fault.is_none()
    }

    fn note_field(&mut self, text: &[u8], field: DecodedField) -> Result<(), Violation> {
        let (name, value) = (field.name.of(text), field.value.of(text));
        if name.starts_with(b":") {
            return Err(Violation::PseudoFieldNotAllowed);
        }
        check(name, value)?;
        if self.fields.len() >= self.limits.fields_max as usize {
            return Err(Fault::TooManyTrailers.into());
        }
        if is_forbidden(str::from_utf8(name).unwrap_or_default()) {
            return Err(Fault::TrailerForbidden.into());
        }
        self.fields.push(Field { name: field.name, value: field.value });
        Ok(())
    }

    pub(super) fn conclude(self) -> Result<(), Violation> {
        self.fault.map_or(Ok(()), Err)
    }
}

/// The grammar of any field, and RFC 9113 §8.2.2.
pub(super) fn check(name: &[u8], value: &[u8]) -> Result<(), Violation> {
    check_name(name)?;
    check_value(value)?;
    check_connection(name, value)
}

/// A token without upper-case letters (RFC 9113 §8.2.1).
#[inline]
pub(super) fn check_name(name: &[u8]) -> Result<(), Violation> {
    if !name.is_empty() && lower_token_len(name) == name.len() { Ok(()) } else { Err(name_fault(name)) }
}

#[cold]
fn name_fault(name: &[u8]) -> Violation {
    if is_token(name) { Violation::FieldNameUpperCase } else { Fault::FieldNameInvalid.into() }
}

/// What HTTP/1.1 would trim is refused (RFC 9113 §8.2.1).
#[inline]
pub(super) fn check_value(value: &[u8]) -> Result<(), Violation> {
    if !is_text(value) {
        return Err(Fault::FieldValueInvalid.into());
    }
    match value {
        [b' ' | b'\t', ..] | [.., b' ' | b'\t'] => Err(Violation::FieldValuePadded),
        _ => Ok(()),
    }
}

/// RFC 9113 §8.2.2: fields that concern a connection of HTTP/1.1.
#[inline]
pub(super) fn check_connection(name: &[u8], value: &[u8]) -> Result<(), Violation> {
    match name {
        b"te" if value.eq_ignore_ascii_case(b"trailers") => Ok(()),
        b"te" => Err(Violation::TeInvalid),
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
            Err(Violation::ConnectionField)
        }
        _ => Ok(()),
    }
}
