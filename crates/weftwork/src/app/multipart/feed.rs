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
pub(super) struct Pieces(Arc<Mutex<Held>>);

#[derive(Default)]
struct Held {
    piece: Option<Bytes>,
    over: bool,
}

impl Pieces {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream for Pieces {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut held = self.held();
        match held.piece.take() {
            Some(piece) => Poll::Ready(Some(Ok(piece))),
            None if held.over => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

/// The body, and the stream that it is fed into.
pub(super) struct Feed<'r> {
    body: Body<'r>,
    pieces: Pieces,
}

impl<'r> Feed<'r> {
    pub(super) fn new(body: Body<'r>) -> Feed<'r> {
        Feed { body, pieces: Pieces::default() }
    }

    pub(super) fn stream(&self) -> Pieces {
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
        let mut fed = 0;
        loop {
            if let Poll::Ready(answer) = poll(&mut context) {
                return Ok(answer);
            }
            if let Some(max) = bytes_max
                && fed >= max
            {
                return Err(self.past("part_head_bytes_max", max as u64));
            }
            fed += self.read(bytes_max.map_or(PIECE_BYTES, |max| max - fed))?;
        }
    }

    /// The error that is 413, and its line in the log: that names the limit, which is nothing to a client.
    pub(super) fn past(&self, limit: &'static str, value: u64) -> BodyError {
        self.body.tell(format_args!("a form is refused: {limit} is {value}"));
        BodyError::PastLimit { limit, value }
    }

    /// The same of one field, which the client is told.
    pub(super) fn past_of(&self, field: &str, limit: &'static str, value: u64) -> BodyError {
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
        let mut held = self.pieces.held();
        if held.over {
            // It has been told that there is no more, and still wants some.
            return Err(BodyError::MultipartMalformed("the form is not whole".into()));
        }
        held.over = count == 0;
        held.piece = Some(piece).filter(|piece| !piece.is_empty());
        Ok(count)
    }
}
