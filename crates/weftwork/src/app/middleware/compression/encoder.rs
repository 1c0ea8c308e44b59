//! One interface to the three encoders: bytes in, compressed bytes out.

use std::io::{self, Write};

use super::Coding;
use crate::message::large_stack::with_large_stack;

/// A window of 1 MiB. Each response in progress needs this memory, and a larger window gains little.
const BROTLI_WINDOW_BITS: u32 = 20;

/// Compression levels, as the libraries call them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Levels {
    pub(super) zstd: i32,
    pub(super) brotli: u32,
    pub(super) gzip: u32,
}

/// The documentation of the libraries recommends these values for HTTP traffic.
impl Default for Levels {
    fn default() -> Levels {
        Levels { zstd: 3, brotli: 4, gzip: 6 }
    }
}

pub(super) struct Encoder {
    inner: Inner,
    /// Whether bytes were pushed since the last flush. A flush without new bytes would still produce output.
    unflushed: bool,
}

enum Inner {
    Zstd(Box<zstd::stream::write::Encoder<'static, Vec<u8>>>),
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    Gzip(Box<flate2::write::GzEncoder<Vec<u8>>>),
    Ended(io::Sink),
}

impl Encoder {
    pub(super) fn new(coding: Coding, levels: Levels) -> io::Result<Encoder> {
        let inner = with_large_stack(|| Inner::new(coding, levels))?;
        Ok(Encoder { inner, unflushed: false })
    }

    pub(super) fn push(&mut self, data: &[u8]) -> io::Result<()> {
        self.unflushed = true;
        with_large_stack(|| self.writer().write_all(data))
    }

    /// Makes everything pushed so far decodable.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.unflushed) {
            return Ok(());
        }
        with_large_stack(|| self.writer().flush())
    }

    /// Returns the number of compressed bytes that are ready.
    pub(super) fn pending_bytes(&self) -> usize {
        match &self.inner {
            Inner::Zstd(encoder) => encoder.get_ref().len(),
            Inner::Brotli(encoder) => encoder.get_ref().len(),
            Inner::Gzip(encoder) => encoder.get_ref().len(),
            Inner::Ended(_) => 0,
        }
    }

    /// Takes the compressed bytes that are ready.
    pub(super) fn take(&mut self) -> Vec<u8> {
        match &mut self.inner {
            Inner::Zstd(encoder) => std::mem::take(encoder.get_mut()),
            Inner::Brotli(encoder) => std::mem::take(encoder.get_mut()),
            Inner::Gzip(encoder) => std::mem::take(encoder.get_mut()),
            Inner::Ended(_) => Vec::new(),
        }
    }

    /// Ends the stream and returns the remaining bytes.
    pub(super) fn end(&mut self) -> io::Result<Vec<u8>> {
        let inner = std::mem::replace(&mut self.inner, Inner::Ended(io::sink()));
        with_large_stack(|| match inner {
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
    fn new(coding: Coding, levels: Levels) -> io::Result<Inner> {
        Ok(match coding {
            Coding::Zstd => {
                Inner::Zstd(Box::new(zstd::stream::write::Encoder::new(Vec::new(), levels.zstd)?))
            }
            Coding::Brotli => {
                let (buffer, quality, window) = (4096, levels.brotli, BROTLI_WINDOW_BITS);
                Inner::Brotli(Box::new(brotli::CompressorWriter::new(Vec::new(), buffer, quality, window)))
            }
            Coding::Gzip => {
                let level = flate2::Compression::new(levels.gzip);
                Inner::Gzip(Box::new(flate2::write::GzEncoder::new(Vec::new(), level)))
            }
        })
    }
}
