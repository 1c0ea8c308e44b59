//! Drives an async parser with a body that is read by blocking.
//!
//! The parser reads from a stream that holds at most one piece. If the parser returns "pending", the stream is
//! empty. The next piece is then read, for as long as that takes, and the parser is polled again. This needs no
//! runtime and no thread, and keeps no more in memory than the parser does.

use std::io::BufRead;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_core::Stream;

use crate::message::{Body, BodyError};

/// Maximum size of a piece of the body.
const PIECE_BYTES: usize = 16 << 10;

#[derive(Clone, Default)]
pub(super) struct PieceStream(Arc<Mutex<PieceSlot>>);

#[derive(Default)]
struct PieceSlot {
    piece: Option<Bytes>,
    is_end: bool,
}

impl PieceStream {
    fn slot(&self) -> MutexGuard<'_, PieceSlot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream for PieceStream {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut slot = self.slot();
        match slot.piece.take() {
            Some(piece) => Poll::Ready(Some(Ok(piece))),
            None if slot.is_end => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

/// The body and the stream that feeds the parser.
pub(super) struct BodyDriver<'r> {
    body: Body<'r>,
    pieces: PieceStream,
}

impl<'r> BodyDriver<'r> {
    pub(super) fn new(body: Body<'r>) -> BodyDriver<'r> {
        BodyDriver { body, pieces: PieceStream::default() }
    }

    pub(super) fn stream(&self) -> PieceStream {
        self.pieces.clone()
    }

    /// Polls until the parser returns a value, and reads meanwhile. Stops after about `bytes_max` bytes.
    pub(super) fn drive<T>(
        &mut self,
        poll: &mut dyn FnMut(&mut Context<'_>) -> Poll<T>,
        bytes_max: Option<usize>,
    ) -> Result<T, BodyError> {
        let mut context = Context::from_waker(Waker::noop());
        let mut read_bytes = 0;
        loop {
            if let Poll::Ready(result) = poll(&mut context) {
                return Ok(result);
            }
            if let Some(max) = bytes_max
                && read_bytes >= max
            {
                return Err(self.limit_exceeded("part_head_bytes_max", max as u64));
            }
            read_bytes += self.read(bytes_max.map_or(PIECE_BYTES, |max| max - read_bytes))?;
        }
    }

    /// Returns the error for a 413 and logs it. The log names the limit, which a client does not need.
    pub(super) fn limit_exceeded(&self, limit: &'static str, value: u64) -> BodyError {
        self.body.log_client(format_args!("form rejected: {limit} is {value}"));
        BodyError::FormLimit { limit, value }
    }

    /// Returns the error for a field that is too large, and logs it. The client gets the name of the field.
    pub(super) fn field_limit_exceeded(&self, field: &str, limit: &'static str, value: u64) -> BodyError {
        let field = field.to_owned();
        self.body.log_client(format_args!("form rejected: {limit} of the field {field:?} is {value}"));
        BodyError::FieldTooLarge { field, limit: value }
    }

    /// Records why the form is not read to its end.
    pub(super) fn fail(&mut self, error: BodyError) -> BodyError {
        self.body.fail(error)
    }

    fn read(&mut self, bytes_max: usize) -> Result<usize, BodyError> {
        let piece = self.body.part()?;
        let count = piece.len().min(PIECE_BYTES).min(bytes_max);
        let piece = Bytes::copy_from_slice(&piece[..count]);
        self.body.consume(count);
        let mut slot = self.pieces.slot();
        if slot.is_end {
            // The parser saw the end and still wants more.
            return Err(BodyError::MultipartMalformed("the form is incomplete".into()));
        }
        slot.is_end = count == 0;
        slot.piece = Some(piece).filter(|piece| !piece.is_empty());
        Ok(count)
    }
}
