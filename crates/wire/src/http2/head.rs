//! Reads the fields of requests, as they come out of a field block.
//!
//! The grammar of names, values, targets and authorities is that of HTTP/1.1, by the same functions. So neither
//! protocol accepts what the other refuses, and a proxy can write one what it has read from the other.

use http::Method;

use super::fault::Violation;
use super::fields::{check_connection, check_name, check_value};
use super::priority::Priority;
use crate::error::Fault;
use crate::framing::{Framing, Seen};
use crate::grammar::is_token;
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
    /// 0: there is no method yet.
    method_len: usize,
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
            method_len: 0,
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
        // The text ends with the value.
        let value = &text[field.value.start as usize..];
        let noted = match field.name_index {
            index::AUTHORITY..=index::STATUS => self.note_pseudo(value, field),
            0 => self.note_unlisted(field.name.of(text), value, field),
            _ => self.note_listed(value, field),
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
        if self.method_len > 0 {
            return Err(Violation::PseudoFieldRepeated);
        }
        self.method_len = value.len();
        if value == b"GET" { Ok(()) } else { self.note_other_method(value) }
    }

    #[inline(never)]
    fn note_other_method(&mut self, value: &[u8]) -> Result<(), Violation> {
        self.head.method = Method::from_bytes(value).map_err(|_| Fault::MethodNotAToken)?;
        Ok(())
    }

    #[inline]
    fn note_scheme(&mut self, value: &[u8]) -> Result<(), Violation> {
        let is_https = match value {
            b"http" => false,
            b"https" => true,
            _ => other_scheme(value)?,
        };
        match self.is_https.replace(is_https) {
            None => Ok(()),
            Some(_) => Err(Violation::PseudoFieldRepeated),
        }
    }

    /// Notes a field whose name is in the static table, and keeps the grammar.
    ///
    /// Apart: within, it takes registers from pseudo-fields.
    #[inline(never)]
    fn note_listed(&mut self, value: &[u8], field: DecodedField) -> Result<(), Violation> {
        if !field.is_checked {
            check_value(value)?;
        }
        match field.name_index {
            index::COOKIE => {
                self.crumbs += 1;
                if self.crumbs > 1 {
                    return self.push_crumb(field);
                }
            }
            index::HOST if self.host.replace(field.value).is_some() => return Err(Fault::HostRepeated.into()),
            index::CONTENT_LENGTH => self.seen.note(Known::ContentLength, value)?,
            index::EXPECT => self.seen.note(Known::Expect, value)?,
            index::TRANSFER_ENCODING => return Err(Violation::ConnectionField),
            _ => {}
        }
        self.push(field)
    }

    /// Notes any other field.
    #[inline(never)]
    fn note_unlisted(&mut self, name: &[u8], value: &[u8], field: DecodedField) -> Result<(), Violation> {
        if name.starts_with(b":") {
            return self.note_other_pseudo(name, field.value);
        }
        if !field.is_checked {
            check_name(name)?;
            check_value(value)?;
            check_connection(name, value)?;
        }
        if name == b"priority" {
            self.priority.update(value);
        }
        self.push(field)
    }

    #[inline]
    fn push(&mut self, field: DecodedField) -> Result<(), Violation> {
        let lines = self.head.fields.len() as u32 - self.crumbs.saturating_sub(1);
        if lines >= self.limits.fields_max {
            return Err(Fault::TooManyFields.into());
        }
        self.head.fields.push(Field { name: field.name, value: field.value });
        Ok(())
    }

    /// A further part of a cookie (RFC 9113 §8.2.3).
    #[cold]
    fn push_crumb(&mut self, field: DecodedField) -> Result<(), Violation> {
        if self.crumbs > self.limits.fields_max.saturating_mul(CRUMBS_A_FIELD) {
            return Err(Fault::TooManyFields.into());
        }
        self.head.fields.push(Field { name: field.name, value: field.value });
        Ok(())
    }

    /// Notes what follows from all fields together. `ends`: no body follows.
    #[inline]
    pub(super) fn conclude(
        &mut self,
        text: &mut Vec<u8>,
        ends: bool,
        connect_protocol: bool,
    ) -> Result<Priority, Violation> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if self.method_len == 0 {
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
        let head = &mut *self.head;
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
        if self.method_len + path.len as usize + LINE_BYTES > self.limits.request_line_bytes_max as usize {
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

/// Schemes have no case. Others than these two are refused, as in the absolute form of HTTP/1.1. What is no scheme at all
/// could pass for the start of a URI.
#[cold]
fn other_scheme(value: &[u8]) -> Result<bool, Violation> {
    let is = |scheme: &[u8]| value.eq_ignore_ascii_case(scheme);
    if is(b"https") || is(b"http") { Ok(is(b"https")) } else { Err(Violation::SchemeUnknown) }
}

#[inline]
fn set(slot: &mut Option<Span>, span: Span) -> Result<(), Violation> {
    match slot.replace(span) {
        None => Ok(()),
        Some(_) => Err(Violation::PseudoFieldRepeated),
    }
}
