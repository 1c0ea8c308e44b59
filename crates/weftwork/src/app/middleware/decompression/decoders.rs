//! One interface to the three decoders, each with a memory limit.

use std::io;

use brotli::enc::StandardAlloc;
use brotli::{BrotliDecompressStream, BrotliResult, BrotliState};
use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, Operation};

use super::{Coding, Decoder};

/// Window of 8 MiB, which a zstd body may require by RFC 9659.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;
/// Window of 32 KiB, as RFC 1952 always has.
const GZIP_WINDOW_BITS: u8 = 15;

pub(super) fn new(coding: Coding) -> io::Result<Box<dyn Decoder>> {
    Ok(match coding {
        Coding::Zstd => {
            let mut decoder = zstd::stream::raw::Decoder::new()?;
            decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX))?;
            Box::new(Zstd { decoder, whole: false })
        }
        Coding::Brotli => {
            let alloc = StandardAlloc::default;
            // Strict, because the other mode accepts windows of a gigabyte.
            Box::new(Brotli {
                state: Box::new(BrotliState::new_strict(alloc(), alloc(), alloc())),
                whole: false,
            })
        }
        Coding::Gzip => Box::new(Gzip { decoder: Decompress::new_gzip(GZIP_WINDOW_BITS), whole: false }),
    })
}

struct Zstd {
    decoder: zstd::stream::raw::Decoder<'static>,
    whole: bool,
}

impl Decoder for Zstd {
    fn coding(&self) -> &'static str {
        Coding::Zstd.name()
    }

    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Option<(usize, usize)> {
        let status = self.decoder.run_on_buffers(input, output).ok()?;
        if status.bytes_read > 0 || status.bytes_written > 0 {
            self.whole = status.remaining == 0;
        }
        Some((status.bytes_read, status.bytes_written))
    }

    fn is_whole(&self) -> bool {
        self.whole
    }
}

struct Brotli {
    state: Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>,
    whole: bool,
}

impl Decoder for Brotli {
    fn coding(&self) -> &'static str {
        Coding::Brotli.name()
    }

    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Option<(usize, usize)> {
        if self.whole {
            // There is one stream, and nothing may follow it.
            return input.is_empty().then_some((0, 0));
        }
        let (mut left, mut taken, mut space, mut made, mut total) = (input.len(), 0, output.len(), 0, 0);
        let result = BrotliDecompressStream(
            &mut left,
            &mut taken,
            input,
            &mut space,
            &mut made,
            output,
            &mut total,
            &mut self.state,
        );
        match result {
            BrotliResult::ResultFailure => return None,
            BrotliResult::ResultSuccess => self.whole = true,
            BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => {}
        }
        Some((taken, made))
    }

    fn is_whole(&self) -> bool {
        self.whole
    }
}

/// A series of members, each with a checksum (RFC 1952 section 2.2).
struct Gzip {
    decoder: Decompress,
    whole: bool,
}

impl Decoder for Gzip {
    fn coding(&self) -> &'static str {
        Coding::Gzip.name()
    }

    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Option<(usize, usize)> {
        if self.whole {
            if input.is_empty() {
                return Some((0, 0));
            }
            *self = Gzip { decoder: Decompress::new_gzip(GZIP_WINDOW_BITS), whole: false };
        }
        let (taken, made) = (self.decoder.total_in(), self.decoder.total_out());
        let status = self.decoder.decompress(input, output, FlushDecompress::None).ok()?;
        self.whole = status == Status::StreamEnd;
        let count = |now: u64, before: u64| usize::try_from(now - before).ok();
        Some((count(self.decoder.total_in(), taken)?, count(self.decoder.total_out(), made)?))
    }

    fn is_whole(&self) -> bool {
        self.whole
    }
}
