//! Reads the fields of requests and trailers, as they come out of a field block.
//!
//! The grammar of names, values, targets and authorities is that of HTTP/1.1, by the same functions. So neither
//! protocol accepts what the other refuses, and a proxy can write one what it has read from the other.

use http::Method;

use super::fault::Violation;
use super::priority::Priority;
use crate::body::is_forbidden;
use crate::error::Fault;
use crate::framing::{Framing, Seen};
use crate::grammar::{is_token, lower_token_len, text_len};
use crate::head::{Field, Head, Known, Span, Version, is_authority, read_connect, read_path};
use crate::hpack::{DecodedField, index};
use crate::limits::Limits;

/// A joined cookie counts as one field. Its parts count up to this many times the limit of fields.
const CRUMBS_A_FIELD: u32 = 4;

/// What is around the target in a request line: ` ` and ` HTTP/1.1`.
const LINE_BYTES: usize = 10;

/// A request whose fields are being read. After the first fault, the others are not looked at.
pub(super) struct RequestFields<'a> {
    pub(super) head: &'a mut Head,
    limits: &'a Limits,
    fault: Option<Violation>,
    has_method: bool,
    is_https: Option<bool>,
    path: Option<Span>,
    authority: Option<Span>,
    is_authority: bool,
    protocol: Option<Span>,
    host: Option<Span>,
    crumbs: u32,
    seen: Seen,
    priority: Priority,
}

impl<'a> RequestFields<'a> {
    #[inline]
    pub(super) fn new(head: &'a mut Head, limits: &'a Limits) -> RequestFields<'a> {
        head.fields.clear();
        // To drop what may own memory is not free.
        if head.method != Method::GET {
            head.method = Method::GET;
        }
        RequestFields {
            head,
            limits,
            fault: None,
            has_method: false,
            is_https: None,
            path: None,
            authority: None,
            is_authority: false,
            protocol: None,
            host: None,
            crumbs: 0,
            seen: Seen::default(),
            priority: Priority::default(),
        }
    }

    /// Notes a field. Returns whether its grammar is right. That is a matter of the field alone.
    #[inline]
    pub(super) fn note(&mut self, text: &[u8], field: DecodedField) -> bool {
        if self.fault.is_some() {
            return false;
        }
        let (name, value) = (field.name.of(text), field.value.of(text));
        let noted = match field.name_index {
            index::AUTHORITY..=index::STATUS => self.note_pseudo(value, field),
            0 if name.starts_with(b":") => self.note_other_pseudo(name, field.value),
            _ => self.note_field(name, value, field),
        };
        self.fault = noted.err();
        self.fault.is_none() && (field.name_index != index::AUTHORITY || self.is_authority)
    }

    /// RFC 9113 §8.3.1
    #[inline]
    fn note_pseudo(&mut self, value: &[u8], field: DecodedField) -> Result<(), Violation> {
        if !self.head.fields.is_empty() {
            return Err(Violation::PseudoFieldLate);
        }
        match field.name_index {
            index::METHOD => self.note_method(value),
            index::SCHEME => self.note_scheme(value),
            index::PATH => set(&mut self.path, field.value),
            index::AUTHORITY => {
                self.is_authority = field.is_checked || is_authority(value);
                set(&mut self.authority, field.value)
            }
            _ => Err(Violation::PseudoFieldUnknown),
        }
    }

    /// RFC 8441 §4
    #[cold]
    fn note_other_pseudo(&mut self, name: &[u8], span: Span) -> Result<(), Violation> {
        match name {
            b":protocol" if self.head.fields.is_empty() => set(&mut self.protocol, span),
            b":protocol" => Err(Violation::PseudoFieldLate),
            _ => Err(Violation::PseudoFieldUnknown),
        }
    }

    #[inline]
    fn note_method(&mut self, value: &[u8]) -> Result<(), Violation> {
        if self.has_method {
            return Err(Violation::PseudoFieldRepeated);
        }
        self.has_method = true;
        if value != b"GET" {
            self.head.method =
                Method::from_bytes(value).map_err(|_| Violation::Message(Fault::MethodNotAToken))?;
        }
        Ok(())
    }

    /// Other schemes are refused as in the absolute form of HTTP/1.1. What is no scheme at all could pass for the start
    /// of a URI.
    #[inline]
    fn note_scheme(&mut self, value: &[u8]) -> Result<(), Violation> {
        let is_https = match value {
            b"http" => false,
            b"https" => true,
            _ if value.eq_ignore_ascii_case(b"http") => false,
            _ if value.eq_ignore_ascii_case(b"https") => true,
            _ => return Err(Violation::SchemeUnknown),
        };
        match self.is_https.replace(is_https) {
            None => Ok(()),
            Some(_) => Err(Violation::PseudoFieldRepeated),
        }
    }

    #[inline]
    fn note_field(&mut self, name: &[u8], value: &[u8], decoded: DecodedField) -> Result<(), Violation> {
        if !decoded.is_checked {
            check(decoded.name_index, name, value)?;
        }
        let field = Field { name: decoded.name, value: decoded.value };
        match decoded.name_index {
            // None of these names is in the static table.
            0 if name == b"priority" => self.priority.update(value),
            0 if !decoded.is_checked => check_name(name, value)?,
            index::COOKIE => {
                self.crumbs += 1;
                if self.crumbs > 1 {
                    return self.note_crumb(field);
                }
            }
            index::HOST if self.host.replace(field.value).is_some() => return Err(Fault::HostRepeated.into()),
            index::CONTENT_LENGTH => self.seen.note(Known::ContentLength, value)?,
            index::EXPECT => self.seen.note(Known::Expect, value)?,
            index::TRANSFER_ENCODING => return Err(Violation::ConnectionField),
            _ => {}
        }
        let lines = self.head.fields.len() as u32 - self.crumbs.saturating_sub(1);
        if lines >= self.limits.fields_max {
            return Err(Fault::TooManyFields.into());
        }
        self.head.fields.push(field);
        Ok(())
    }

    /// A further part of a cookie (RFC 9113 §8.2.3).
    fn note_crumb(&mut self, field: Field) -> Result<(), Violation> {
        if self.crumbs > self.limits.fields_max.saturating_mul(CRUMBS_A_FIELD) {
            return Err(Fault::TooManyFields.into());
        }
        self.head.fields.push(field);
        Ok(())
    }

    /// Notes what follows from all fields together. `ends`: no body follows.
    #[inline]
    pub(super) fn conclude(
        mut self,
        text: &mut Vec<u8>,
        ends: bool,
        connect_protocol: bool,
    ) -> Result<Priority, Violation> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if !self.has_method {
            return Err(Violation::PseudoFieldMissing);
        }
        self.conclude_target(text, connect_protocol)?;
        let facts = self.seen.conclude_framed(ends)?;
        if ends && matches!(facts.framing, Framing::Length(1..)) {
            return Err(Violation::ContentLengthDiffers);
        }
        self.conclude_authority(text)?;
        if self.crumbs > 1 {
            join_crumbs(text, &mut self.head.fields);
        }
        let head = self.head;
        head.version = Version::Http2;
        head.framing = facts.framing;
        head.keep_alive = facts.keep_alive;
        head.expect_continue = facts.expect_continue;
        head.upgrade = facts.upgrade;
        head.bytes = text.len() as u32;
        Ok(self.priority)
    }

    /// RFC 9113 §8.3.1, §8.5, RFC 8441 §4
    #[inline]
    fn conclude_target(&mut self, text: &[u8], connect_protocol: bool) -> Result<(), Violation> {
        let head = &mut *self.head;
        head.protocol = self.protocol;
        if head.method == Method::CONNECT || self.protocol.is_some() {
            self.check_connect(text, connect_protocol)?;
            if self.protocol.is_none() {
                let authority = self.authority.ok_or(Fault::ConnectWithoutAuthority)?;
                return Ok(read_connect(text, authority, self.head)?);
            }
        }
        let (Some(path), Some(_)) = (self.path, self.is_https) else {
            return Err(Violation::PseudoFieldMissing);
        };
        let head = &mut *self.head;
        if head.method.as_str().len() + path.len as usize + LINE_BYTES
            > self.limits.request_line_bytes_max as usize
        {
            return Err(Fault::TargetTooLong.into());
        }
        Ok(read_path(text, path, head)?)
    }

    #[cold]
    fn check_connect(&self, text: &[u8], connect_protocol: bool) -> Result<(), Violation> {
        match self.protocol {
            None if self.path.is_some() || self.is_https.is_some() => Err(Violation::PseudoFieldNotAllowed),
            None => Ok(()),
            Some(_) if !connect_protocol || self.head.method != Method::CONNECT => {
                Err(Violation::PseudoFieldNotAllowed)
            }
            // RFC 9110 §7.8: a name, or a name and a version
            Some(protocol) if protocol.of(text).splitn(2, |&byte| byte == b'/').all(is_token) => Ok(()),
            Some(_) => Err(Fault::FieldValueInvalid.into()),
        }
    }

    /// Host and `:authority`: at least one of them, and they are the same (RFC 9113 §8.3.1). Without a Host field, there
    /// is one of the value of `:authority`, for handlers that look for it.
    #[inline]
    fn conclude_authority(&mut self, text: &mut Vec<u8>) -> Result<(), Violation> {
        let head = &mut *self.head;
        head.authority = self.authority.or(self.host);
        match (self.authority, self.host) {
            (Some(_), _) if !self.is_authority => Err(Fault::AuthorityInvalid.into()),
            (Some(authority), None) => {
                let name = Span { start: text.len() as u32, len: b"host".len() as u32 };
                text.extend_from_slice(b"host");
                head.fields.push(Field { name, value: authority });
                Ok(())
            }
            (Some(authority), Some(host)) => {
                let is_https = self.is_https.unwrap_or_default();
                let is_same = is_same_host(authority.of(text), host.of(text), is_https);
                if is_same { Ok(()) } else { Err(Violation::HostDiffers) }
            }
            (None, Some(host)) if is_authority(host.of(text)) => Ok(()),
            (None, Some(Span { len: 0, .. })) => Err(Fault::HostEmpty.into()),
            (None, Some(_)) => Err(Fault::HostInvalid.into()),
            (None, None) => Err(Fault::HostMissing.into()),
        }
    }
}

/// Compares without regard to case and to the port that is the default of the scheme.
fn is_same_host(authority: &[u8], host: &[u8], is_https: bool) -> bool {
    let port: &[u8] = if is_https { b":443" } else { b":80" };
    let plain = |host: &[u8]| host.strip_suffix(port).unwrap_or(host).to_ascii_lowercase();
    authority == host || plain(authority) == plain(host)
}

/// Makes one field of all parts of the cookie, at the place of the first (RFC 9113 §8.2.3).
#[cold]
fn join_crumbs(text: &mut Vec<u8>, fields: &mut Vec<Field>) {
    let (start, mut first) = (text.len(), None);
    let mut at = 0;
    fields.retain(|field| {
        at += 1;
        if field.name.of(text) != b"cookie" {
            return true;
        }
        if first.is_some() {
            text.extend_from_slice(b"; ");
        }
        let value = field.value.start as usize..(field.value.start + field.value.len) as usize;
        text.extend_from_within(value);
        first.replace(first.unwrap_or(at - 1)).is_none()
    });
    if let Some(field) = first.and_then(|first| fields.get_mut(first)) {
        field.value = Span { start: start as u32, len: (text.len() - start) as u32 };
    }
}

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
        check(field.name_index, name, value)?;
        check_name(name, value)?;
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

fn set(slot: &mut Option<Span>, span: Span) -> Result<(), Violation> {
    match slot.replace(span) {
        None => Ok(()),
        Some(_) => Err(Violation::PseudoFieldRepeated),
    }
}

/// The grammar of a field. A name of the static table keeps it. What HTTP/1.1 would trim is refused (RFC 9113 §8.2.1).
#[inline]
pub(super) fn check(index: u8, name: &[u8], value: &[u8]) -> Result<(), Violation> {
    if index == 0 && (name.is_empty() || lower_token_len(name) != name.len()) {
        return Err(name_fault(name));
    }
    if text_len(value) != value.len() {
        return Err(Fault::FieldValueInvalid.into());
    }
    match value {
        [b' ' | b'\t', ..] | [.., b' ' | b'\t'] => Err(Violation::FieldValuePadded),
        _ => Ok(()),
    }
}

#[cold]
fn name_fault(name: &[u8]) -> Violation {
    if is_token(name) { Violation::FieldNameUpperCase } else { Fault::FieldNameInvalid.into() }
}

/// RFC 9113 §8.2.2: fields that concern a connection of HTTP/1.1.
#[inline]
pub(super) fn check_name(name: &[u8], value: &[u8]) -> Result<(), Violation> {
    match name {
        b"te" if value.eq_ignore_ascii_case(b"trailers") => Ok(()),
        b"te" => Err(Violation::TeInvalid),
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
            Err(Violation::ConnectionField)
        }
        _ => Ok(()),
    }
}
