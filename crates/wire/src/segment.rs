//! Delimits the parts of a response on their way from a request of HTTP/2 to its connection.
//!
//! The thread of a request encodes its response without the connection. The connection cuts the parts into frames, as
//! its windows allow. Both are in one process, so this form is never on a network.

/// Length of the header of a segment.
pub(crate) const HEADER_BYTES: usize = 9;

mod kind {
    pub(super) const INTERIM: u8 = 1;
    pub(super) const HEAD: u8 = 2;
    pub(super) const BODY: u8 = 3;
    pub(super) const TRAILERS: u8 = 4;
    pub(super) const END: u8 = 5;
    /// A head after which the connection is to end.
    pub(super) const CLOSING_HEAD: u8 = 6;
    /// A body after which the response ends.
    pub(super) const WHOLE_BODY: u8 = 7;
}

/// A part of a response. The bytes follow its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// The field block of an interim response, of this length.
    Interim(usize),
    /// The field block of the response, of this length.
    Head {
        /// Length of the field block.
        len: usize,
        /// The handler wants the connection to end after its requests.
        closes: bool,
    },
    /// Bytes of the body.
    Body {
        /// Their number.
        len: u64,
        /// The response ends with them.
        ends: bool,
    },
    /// The field block of the trailers, of this length. The response ends with it.
    Trailers(usize),
    /// The end of the response.
    End,
}

impl Segment {
    /// Reads the header at the start of `bytes`. Returns its length too, or None if `bytes` are too few.
    ///
    /// The length of a field block is known to fit, because the block was in memory.
    pub fn read(bytes: &[u8]) -> Option<(usize, Segment)> {
        let (header, _) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let [kind, length @ ..] = *header;
        let length = u64::from_be_bytes(length);
        let segment = match kind {
            kind::INTERIM => Segment::Interim(length as usize),
            kind::HEAD => Segment::Head { len: length as usize, closes: false },
            kind::CLOSING_HEAD => Segment::Head { len: length as usize, closes: true },
            kind::BODY => Segment::Body { len: length, ends: false },
            kind::WHOLE_BODY => Segment::Body { len: length, ends: true },
            kind::TRAILERS => Segment::Trailers(length as usize),
            _ => Segment::End,
        };
        Some((HEADER_BYTES, segment))
    }
}

fn write(kind: u8, length: u64, out: &mut Vec<u8>) {
    let mut header = [kind; HEADER_BYTES];
    header[1..].copy_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&header);
}

fn write_block(kind: u8, out: &mut Vec<u8>, block: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    write(kind, 0, out);
    block(out);
    let length = (out.len() - start - HEADER_BYTES) as u64;
    out[start + 1..start + HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
}

pub(crate) fn write_interim(out: &mut Vec<u8>, block: impl FnOnce(&mut Vec<u8>)) {
    write_block(kind::INTERIM, out, block);
}

pub(crate) fn write_head(closes: bool, out: &mut Vec<u8>, block: impl FnOnce(&mut Vec<u8>)) {
    write_block(if closes { kind::CLOSING_HEAD } else { kind::HEAD }, out, block);
}

/// Begins a part of a body whose length is unknown.
pub(crate) fn write_part(length: u64, out: &mut Vec<u8>) {
    write(kind::BODY, length, out);
}

/// Begins a body of this length. The response ends with it.
pub(crate) fn write_whole_body(length: u64, out: &mut Vec<u8>) {
    match length {
        0 => write_end(out),
        length => write(kind::WHOLE_BODY, length, out),
    }
}

pub(crate) fn write_trailers(out: &mut Vec<u8>, block: impl FnOnce(&mut Vec<u8>)) {
    write_block(kind::TRAILERS, out, block);
}

pub(crate) fn write_end(out: &mut Vec<u8>) {
    write(kind::END, 0, out);
}
