//! The three encoders behind one face: bytes in, compressed bytes out, whenever they are wanted.

use std::io::{self, Write};

use super::Coding;
use crate::message::room::with_room;

/// What the libraries call so; each is a compromise that their documentation recommends for traffic.
const ZSTD_LEVEL: i32 = 3;
const BROTLI_QUALITY: u32 = 4;
/// A window of 1 MiB: memory for each response in progress, against little gain beyond.
const BROTLI_WINDOW_BITS: u32 = 20;
const GZIP_LEVEL: u32 = 6;

pub(super) struct Encoder {
    inner: Inner,
    /// Something was pushed since the last flush, which would make bytes of nothing.
    unflushed: bool,
}

enum Inner {
    Zstd(Box<zstd::stream::write::Encoder<'static, Vec<u8>>>),
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    Gzip(Box<flate2::write::GzEncoder<Vec<u8>>>),
    Ended(io::Sink),
}

impl Encoder {
    pub(super) fn new(coding: Coding) -> io::Result<Encoder> {
        let inner = with_room(|| Inner::new(coding))?;
        Ok(Encoder { inner, unflushed: false })
    }

    pub(super) fn push(&mut self, data: &[u8]) -> io::Result<()> {
        self.unflushed = true;
        with_room(|| self.writer().write_all(data))
    }

    /// Makes all that was pushed decodable.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.unflushed) {
            return Ok(());
        }
        with_room(|| self.writer().flush())
    }

    /// How many compressed bytes are there.
    pub(super) fn pending_bytes(&self) -> usize {
        match &self.inner {
            Inner::Zstd(encoder) => encoder.get_ref().len(),
            Inner::Brotli(encoder) => encoder.get_ref().len(),
            Inner::Gzip(encoder) => encoder.get_ref().len(),
            Inner::Ended(_) => 0,
        }
    }

    /// The compressed bytes that are there.
    pub(super) fn take(&mut self) -> Vec<u8> {
        match &mut self.inner {
            Inner::Zstd(encoder) => std::mem::take(encoder.get_mut()),
            Inner::Brotli(encoder) => std::mem::take(encoder.get_mut()),
            Inner::Gzip(encoder) => std::mem::take(encoder.get_mut()),
            Inner::Ended(_) => Vec::new(),
        }
    }

    /// Ends the stream, and gives what is left of it.
    pub(super) fn end(&mut self) -> io::Result<Vec<u8>> {
        let inner = std::mem::replace(&mut self.inner, Inner::Ended(io::sink()));
        with_room(|| match inner {
            Inner::Zstd(encoder) => encoder.finish(),
            Inner::Brotli(encoder) => Ok(encoder.into_inner()),
            Inner::Gzip(encoder) => encoder.finish(),
            Inner::Ended(_) => Ok(Vec::new()),
        })
    }

    fn writer(&mut self) -> &mut dyn Write {
        match &mut self.inner {
            Inner::Zstd(encoder) => encoder.as_mut(),
            Inner::Brotli(encoder) => encoder.as_mut(),
            Inner::Gzip(encoder) => encoder.as_mut(),
            Inner::Ended(sink) => sink,
        }
    }
}

impl Inner {
    fn new(coding: Coding) -> io::Result<Inner> {
        Ok(match coding {
            Coding::Zstd => Inner::Zstd(Box::new(zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL)?)),
            Coding::Brotli => {
                let (buffer, quality, window) = (4096, BROTLI_QUALITY, BROTLI_WINDOW_BITS);
                Inner::Brotli(Box::new(brotli::CompressorWriter::new(Vec::new(), buffer, quality, window)))
            }
            Coding::Gzip => {
                let level = flate2::Compression::new(GZIP_LEVEL);
                Inner::Gzip(Box::new(flate2::write::GzEncoder::new(Vec::new(), level)))
            }
        })
    }
}
