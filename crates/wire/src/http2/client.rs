//! The client's end of a connection: writes requests and reads responses, for proxies and tests.

use http::{HeaderName, HeaderValue, Method, StatusCode};

use super::fault::Violation;
use super::fields::check;
use super::frame::{Frame, STREAM_MAX};
use super::read::{Block, Target};
use super::{Http2, Http2Settings, State};
use crate::body::is_forbidden;
use crate::encode;
use crate::error::Fault;
use crate::framing::Seen;
use crate::grammar::decimal;
use crate::head::{Field, Head, Known};
use crate::hpack::{Decoded, DecodedField, encode_at, encode_field, index};
use crate::limits::Limits;

/// Space for a usual block.
const BLOCK_BYTES: usize = 128;

impl Http2 {
    /// Returns the client's end of a connection. It takes no pushes.
    pub fn client(settings: &Http2Settings) -> Http2 {
        Http2::new(settings, State::Settings, true)
    }

    /// Appends the head of a request, on a new stream. Returns the stream, or None if all numbers are used. Fields that
    /// concern a connection are left out.
    pub fn write_request(&mut self, head: &RequestHead<'_>, ends: bool, out: &mut Vec<u8>) -> Option<u32> {
        let stream = if self.last == 0 { 1 } else { self.last + 2 };
        if stream > STREAM_MAX {
            return None;
        }
        self.open(stream);
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        encode_at(index::METHOD, head.method.as_str().as_bytes(), &mut block);
        let given =
            [(index::SCHEME, head.scheme), (index::PATH, head.path), (index::AUTHORITY, head.authority)];
        for (index, value) in given {
            if let Some(value) = value {
                encode_at(index, value.as_bytes(), &mut block);
            }
        }
        if let Some(protocol) = head.protocol {
            encode_field(":protocol", protocol.as_bytes(), &mut block);
        }
        encode::write_block(head.fields, &mut block);
        Http2::write_block(stream, &block, self.resets_table, ends, out);
        Some(stream)
    }

    /// Appends trailers, which end the stream.
    pub fn write_trailers(&self, stream: u32, trailers: &[(HeaderName, HeaderValue)], out: &mut Vec<u8>) {
        let mut block = Vec::new();
        encode::write_block(trailers, &mut block);
        Http2::write_block(stream, &block, self.resets_table, true, out);
    }

    /// Decodes a response, or the trailers of a response: those have no status.
    pub(super) fn decode_response(
        &mut self,
        block: Block,
        bytes: &[u8],
        target: Target<'_>,
    ) -> Result<Result<Frame, Violation>, Violation> {
        let Target { limits, head, text } = target;
        text.clear();
        let mut fields = ResponseFields::new(head, limits);
        let decoded = self
            .decoder
            .decode(bytes, limits.head_bytes_max as usize, text, |text, field| fields.note(text, field))?;
        Ok(match decoded {
            Decoded::TooLarge => Err(Fault::HeadTooLong.into()),
            Decoded::Whole => fields.conclude(block, text),
        })
    }
}

/// The head of a request, as a client sends it (RFC 9113 §8.3.1).
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// The method.
    pub method: &'a Method,
    /// `http` or `https`. None for CONNECT, unless it is extended.
    pub scheme: Option<&'a str>,
    /// Path and query, or `*`. None for CONNECT, unless it is extended.
    pub path: Option<&'a str>,
    /// Host and port.
    pub authority: Option<&'a str>,
    /// The protocol of an extended CONNECT (RFC 8441 §4).
    pub protocol: Option<&'a str>,
    /// All other fields.
    pub fields: &'a [(HeaderName, HeaderValue)],
}

/// A response whose fields are being read.
struct ResponseFields<'a> {
    head: &'a mut Head,
    limits: &'a Limits,
    fault: Option<Violation>,
    status: Option<StatusCode>,
    seen: Seen,
}

impl<'a> ResponseFields<'a> {
    fn new(head: &'a mut Head, limits: &'a Limits) -> ResponseFields<'a> {
        head.fields.clear();
        ResponseFields { head, limits, fault: None, status: None, seen: Seen::default() }
    }

    fn note(&mut self, text: &[u8], field: DecodedField) -> bool {
        if self.fault.is_none() {
            self.fault = self.note_field(text, field).err();
        }
        self.fault.is_none()
    }

    fn note_field(&mut self, text: &[u8], field: DecodedField) -> Result<(), Violation> {
        let (name, value) = (field.name.of(text), field.value.of(text));
        if name.starts_with(b":") {
            return self.note_status(field.name_index, value);
        }
        check(name, value)?;
        if field.name_index == index::CONTENT_LENGTH {
            self.seen.note(Known::ContentLength, value)?;
        }
        if self.head.fields.len() as u32 >= self.limits.fields_max {
            return Err(Fault::TooManyFields.into());
        }
        self.head.fields.push(Field { name: field.name, value: field.value });
        Ok(())
    }

    /// RFC 9113 §8.3.2
    fn note_status(&mut self, name_index: u8, value: &[u8]) -> Result<(), Violation> {
        if !self.head.fields.is_empty() {
            return Err(Violation::PseudoFieldLate);
        }
        if name_index != index::STATUS {
            return Err(Violation::PseudoFieldUnknown);
        }
        let is_status = value.len() == 3 && matches!(decimal(value), Ok(100..=599));
        let status = StatusCode::from_bytes(value).ok().filter(|_| is_status);
        match self.status.replace(status.ok_or(Violation::StatusInvalid)?) {
            None => Ok(()),
            Some(_) => Err(Violation::PseudoFieldRepeated),
        }
    }

    fn conclude(self, block: Block, text: &[u8]) -> Result<Frame, Violation> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let Block { stream, ends, .. } = block;
        let Some(status) = self.status else {
            // RFC 9113 §8.1: what has no status and ends the stream is trailers.
            if !ends {
                return Err(Violation::PseudoFieldMissing);
            }
            // As in HTTP/1.1, a trailer that may be none is left out.
            let name = |field: &Field| str::from_utf8(field.name.of(text)).unwrap_or_default();
            self.head.fields.retain(|field| !is_forbidden(name(field)));
            return Ok(Frame::Trailers { stream });
        };
        if status == StatusCode::SWITCHING_PROTOCOLS || (status.is_informational() && ends) {
            return Err(Violation::StatusInvalid);
        }
        self.head.framing = self.seen.conclude_framed(ends)?.framing;
        Ok(Frame::Response { stream, status, ends })
    }
}
