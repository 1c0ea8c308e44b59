//! Every state transition of the protocol.
//!
//! Three facts are kept apart and joined by one function, [`after`]: how far the request has been read, how
//! far the response has been written, and whether the connection persists.

use std::fmt::{Display, Formatter, Result as Formatted};

use crate::error::Misuse;

/// How far the request has been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reading {
    /// The head of the request is awaited.
    #[default]
    Head,
    /// The head is read, the body is not.
    Body,
    /// The request is read to its end.
    Whole,
    /// The request broke a rule. Nothing more is read from this connection.
    Refused,
}

/// Events that change [`Reading`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReadEvent {
    HeadWithBody,
    HeadWithoutBody,
    BodyEnd,
    Fault,
    NextRequest,
}

impl Reading {
    #[inline]
    #[must_use]
    pub(crate) fn next(self, on: ReadEvent) -> Reading {
        match (self, on) {
            (Reading::Head, ReadEvent::HeadWithBody) => Reading::Body,
            (Reading::Head, ReadEvent::HeadWithoutBody) => Reading::Whole,
            (Reading::Body, ReadEvent::BodyEnd) => Reading::Whole,
            (Reading::Whole, ReadEvent::NextRequest) => Reading::Head,
            (_, ReadEvent::Fault) => Reading::Refused,
            (at, _) => at,
        }
    }
}

/// How far the response has been written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Writing {
    /// The head of the response is awaited. Interim responses may come before it.
    #[default]
    Head,
    /// The head is written, the body is not complete.
    Body,
    /// The response is written to its end.
    Whole,
    /// The response cannot be completed: the connection must be closed.
    Broken,
}

/// Events that change [`Writing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteEvent {
    /// An interim response.
    Interim,
    /// The head of the final response.
    Head,
    /// A part of the body.
    Body,
    /// The end of the body.
    Finish,
    /// The end of the body, before all declared bytes.
    Break,
    /// The next request begins.
    NextRequest,
}

impl Writing {
    #[inline]
    pub(crate) fn next(self, on: WriteEvent) -> Result<Writing, Misuse> {
        match (self, on) {
            (Writing::Head, WriteEvent::Interim) => Ok(Writing::Head),
            (Writing::Head, WriteEvent::Head) => Ok(Writing::Body),
            (Writing::Body, WriteEvent::Body) => Ok(Writing::Body),
            (Writing::Body, WriteEvent::Finish) => Ok(Writing::Whole),
            (Writing::Body, WriteEvent::Break) => Ok(Writing::Broken),
            (Writing::Whole, WriteEvent::NextRequest) => Ok(Writing::Head),
            (at, on) => Err(Misuse::OutOfTurn { at, on }),
        }
    }
}

impl Display for Writing {
    fn fmt(&self, f: &mut Formatter<'_>) -> Formatted {
        f.write_str(match self {
            Writing::Head => "the head of the response is not written yet",
            Writing::Body => "the body of the response is being written",
            Writing::Whole => "the response is whole",
            Writing::Broken => "the response broke off",
        })
    }
}

impl Display for WriteEvent {
    fn fmt(&self, f: &mut Formatter<'_>) -> Formatted {
        f.write_str(match self {
            WriteEvent::Interim => "An interim response",
            WriteEvent::Head => "The head of a response",
            WriteEvent::Body => "A part of a body",
            WriteEvent::Finish => "The end of a body",
            WriteEvent::Break => "The early end of a body",
            WriteEvent::NextRequest => "The next request",
        })
    }
}

/// Whether the connection persists. It can only change to false.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum KeepAlive {
    #[default]
    Yes,
    No,
}

impl KeepAlive {
    #[inline]
    pub(crate) fn and(&mut self, persists: bool) {
        if !persists {
            *self = KeepAlive::No;
        }
    }
}

/// Next step after a response has been written whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The request's body was read and the connection persists: the next request may follow.
    Next,
    /// The connection persists, but the request's body has not been read to its end: read and drop it first.
    Drain,
    /// The connection ends and the peer's body was read to its end.
    Close,
    /// The connection ends and the peer may still be sending: half-close, linger, close (RFC 9112 §9.6).
    Linger,
}

/// Joins the states of the request, the response and the connection, once the response is complete.
#[inline]
pub(crate) fn after(reading: Reading, keep_alive: KeepAlive) -> After {
    match (keep_alive, reading) {
        (KeepAlive::Yes, Reading::Whole) => After::Next,
        (KeepAlive::Yes, Reading::Body) => After::Drain,
        (KeepAlive::No, Reading::Whole) => After::Close,
        (KeepAlive::No, Reading::Body) | (_, Reading::Head | Reading::Refused) => After::Linger,
    }
}

#[cfg(test)]
mod tests;
