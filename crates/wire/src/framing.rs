//! Decides where a message ends and whether the connection persists: one pure function over *all* field lines.

use crate::error::Fault;
use crate::grammar::{decimal, elements, is_token};
use crate::head::{Known, Version};

/// How the bytes after a request's head are delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Framing {
    /// There is no body.
    #[default]
    None,
    /// The body has that many bytes.
    Length(u64),
    /// The body comes in chunks (RFC 9112 §7.1). In HTTP/2: in DATA frames without a declared length.
    Chunked,
}

/// Contents of the field lines that concern the message as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) framing: Framing,
    pub(crate) keep_alive: bool,
    pub(crate) expect_continue: bool,
    pub(crate) upgrade: bool,
}

/// All that was seen in the fields that matter here, before any conclusion is drawn.
#[derive(Default)]
pub(crate) struct Seen {
    content_length: Option<u64>,
    transfer_encoding: Option<Codings>,
    close: bool,
    keep_alive: bool,
    upgrade_option: bool,
    upgrade_field: bool,
    expects: Expects,
}

/// The transfer codings of all lines, as one list.
#[derive(Default)]
struct Codings {
    chunked: u32,
    unknown: bool,
    last_is_chunked: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Expects {
    #[default]
    Nothing,
    Continue,
    Unknown,
}

/// The message body length of a request: RFC 9112 §6.3.
fn message_length(version: Version, seen: &Seen) -> Result<Framing, Fault> {
    match (&seen.transfer_encoding, seen.content_length) {
        // Steps 1 and 2 are about responses. Step 3: Transfer-Encoding would override Content-Length. A message with
        // both may be a smuggling attempt, so it is refused.
        (Some(_), Some(_)) => Err(Fault::ContentLengthAndTransferEncoding),
        // §6.1: a 1.0 recipient on the way would have taken the body for the next request.
        (Some(_), None) if version == Version::Http10 => Err(Fault::TransferEncodingInHttp10),
        // Step 4: chunked must come once, and last. §6.1 names the response for unknown codings.
        (Some(codings), None) => match codings {
            Codings { chunked: 2.., .. } => Err(Fault::ChunkedRepeated),
            Codings { chunked: 1, last_is_chunked: false, .. } => Err(Fault::ChunkedNotLast),
            Codings { unknown: true, .. } => Err(Fault::TransferCodingUnknown),
            Codings { .. } => Ok(Framing::Chunked),
        },
        // Step 5, an invalid Content-Length, was refused when it was seen.
        // Step 6
        (None, Some(length)) => Ok(Framing::Length(length)),
        // Step 7
        (None, None) => Ok(Framing::None),
        // Step 8 is about responses.
    }
}

impl Seen {
    /// Notes a field line. `value` is trimmed.
    #[inline(never)]
    pub(crate) fn note(&mut self, name: Known, value: &[u8]) -> Result<(), Fault> {
        match name {
            Known::Host => Ok(()),
            Known::Expect => self.note_expect(value),
            Known::Upgrade => self.note_upgrade(),
            Known::Connection => self.note_connection(value),
            Known::ContentLength => self.note_content_length(value),
            Known::TransferEncoding => self.note_transfer_encoding(value),
        }
    }

    /// Notes a Connection line that is `close` and nothing else, or `keep-alive`.
    #[inline]
    pub(crate) fn note_plain_connection(&mut self, closes: bool) {
        self.close |= closes;
        self.keep_alive |= !closes;
    }

    /// What all lines of a request's head, noted before, say together.
    #[inline]
    pub(crate) fn conclude(&self, version: Version) -> Result<Facts, Fault> {
        let framing = message_length(version, self)?;
        let has_body = !matches!(framing, Framing::None | Framing::Length(0));
        let is_11 = version != Version::Http10;
        // RFC 9110 §10.1.1: an HTTP/1.0 expectation is ignored, whatever it asks for.
        if is_11 && self.expects == Expects::Unknown {
            return Err(Fault::ExpectationUnknown);
        }
        Ok(Facts {
            framing,
            // RFC 9112 §9.3, in its order: close wins, 1.1 persists, 1.0 persists if asked to.
            keep_alive: !self.close && (is_11 || self.keep_alive),
            expect_continue: is_11 && has_body && self.expects == Expects::Continue,
            upgrade: is_11 && self.upgrade_option && self.upgrade_field,
        })
    }

    /// The same in HTTP/2, where frames delimit the body. `ends`: no body follows the head.
    #[inline]
    pub(crate) fn conclude_framed(&self, ends: bool) -> Result<Facts, Fault> {
        if self.expects == Expects::Unknown {
            return Err(Fault::ExpectationUnknown);
        }
        let framing = match self.content_length {
            Some(0) | None if ends => Framing::None,
            Some(length) => Framing::Length(length),
            None => Framing::Chunked,
        };
        let has_body = !matches!(framing, Framing::None | Framing::Length(0));
        let expect_continue = has_body && self.expects == Expects::Continue;
        Ok(Facts { framing, keep_alive: true, expect_continue, upgrade: false })
    }

    /// RFC 9110 §8.6 lets a recipient take equal lengths for one. We do not: refuse, do not guess.
    fn note_content_length(&mut self, value: &[u8]) -> Result<(), Fault> {
        if self.content_length.is_some() || value.contains(&b',') {
            return Err(Fault::ContentLengthRepeated);
        }
        let length = decimal(value).map_err(|is_too_large| match is_too_large {
            true => Fault::ContentLengthTooLarge,
            false => Fault::ContentLengthInvalid,
        })?;
        self.content_length = Some(length);
        Ok(())
    }

    /// No element may be empty and none may have parameters: chunked defines none (RFC 9112 §7.1), and what
    /// else hides in this field is not worth a guess.
    fn note_transfer_encoding(&mut self, value: &[u8]) -> Result<(), Fault> {
        let codings = self.transfer_encoding.get_or_insert_default();
        for coding in elements(value) {
            if !is_token(coding) {
                return Err(Fault::TransferEncodingMalformed);
            }
            codings.last_is_chunked = coding.eq_ignore_ascii_case(b"chunked");
            match codings.last_is_chunked {
                true => codings.chunked += 1,
                false => codings.unknown = true,
            }
        }
        Ok(())
    }

    /// RFC 9110 §5.6.1.2: empty elements are ignored.
    fn note_connection(&mut self, value: &[u8]) -> Result<(), Fault> {
        for option in elements(value).filter(|option| !option.is_empty()) {
            if !is_token(option) {
                return Err(Fault::ConnectionInvalid);
            }
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            self.upgrade_option |= option.eq_ignore_ascii_case(b"upgrade");
        }
        Ok(())
    }

    fn note_upgrade(&mut self) -> Result<(), Fault> {
        self.upgrade_field = true;
        Ok(())
    }

    /// RFC 9110 §10.1.1: a list, with empty elements as above.
    fn note_expect(&mut self, value: &[u8]) -> Result<(), Fault> {
        for expectation in elements(value).filter(|expectation| !expectation.is_empty()) {
            if !expectation.eq_ignore_ascii_case(b"100-continue") {
                self.expects = Expects::Unknown;
            } else if self.expects == Expects::Nothing {
                self.expects = Expects::Continue;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
