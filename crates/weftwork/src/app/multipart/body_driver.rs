//! How a parser that is written for async reads from a body that blocks.
//!
//! The parser gets a stream that holds one piece at most. When it says "pending", the stream is empty, and
//! nothing else can be meant: then the next piece is read, as long as that takes, and the parser is asked again.
//! No runtime, no thread, and no more in memory than the parser keeps.

use std::io::BufRead;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_core::Stream;

use crate::message::{Body, BodyError};

/// Pieces of the body are this large at most.
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

/// The body, and the stream that it is fed into.
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

    /// Polls until there is an answer, and reads meanwhile; at most some `bytes_max`, past which the answer
    /// is not worth waiting for.
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

    /// The error that is 413, and its line in the log: that names the limit, which is nothing to a client.
    pub(super) fn limit_exceeded(&self, limit: &'static str, value: u64) -> BodyError {
        self.body.tell(format_args!("a form is refused: {limit} is {value}"));
        BodyError::PastLimit { limit, value }
    }

    /// The same of one field, which the client is told.
    pub(super) fn field_limit_exceeded(&self, field: &str, limit: &'static str, value: u64) -> BodyError {
        let field = field.to_owned();
        self.body.tell(format_args!("a form is refused: {limit} of the field {field:?} is {value}"));
        BodyError::FieldTooLarge { field, limit: value }
    }

    /// Notes why the form is not read to its end.
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
            // It has been told that there is no more, and still wants some.
            return Err(BodyError::MultipartMalformed("the form is not whole".into()));
        }
        slot.is_end = count == 0;
        slot.piece = Some(piece).filter(|piece| !piece.is_empty());
        Ok(count)
    }
}
