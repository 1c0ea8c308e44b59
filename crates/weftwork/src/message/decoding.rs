//! A request whose body comes compressed, seen as if it did not.

use std::cell::OnceCell;
use std::fmt;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use weftwork_wire::Head;

use super::body::BodyError;
use super::exchange::{Exchange, forward_the_rest};
use super::request::{Notes, Request};
use super::response::{Payload, Response};
use super::room::with_room;
use super::writer::BodyWriter;

/// Decoded bytes are made in parts of this size.
const PART_BYTES: usize = 16 << 10;
/// The first decoded bytes are free: a small text may well be a thousand times its compressed form.
const RATIO_FREE_BYTES: u64 = 64 << 10;

/// Undoes one content coding, step by step.
pub(crate) trait Decoder: Send {
    /// Its name in `Content-Encoding`.
    fn coding(&self) -> &'static str;
    /// Takes some of `input` and makes some of `output`: how much of each. `None`: this is not the coding.
    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Option<(usize, usize)>;
    /// The input may end here.
    fn is_whole(&self) -> bool;
}

/// How far the decoding of a body has got, and what is to be seen of its head meanwhile.
pub(crate) struct Decoding {
    decoder: Box<dyn Decoder>,
    ratio_max: u64,
    head: Option<Head>,
    part: Vec<u8>,
    ready: Range<usize>,
    /// The decoder filled its part: there may be more without more input.
    pending: bool,
    taken: u64,
    made: u64,
    ended: bool,
    trailers: Vec<(HeaderName, HeaderValue)>,
    failed: Option<BodyError>,
}

impl Decoding {
    pub(crate) fn new(decoder: Box<dyn Decoder>, ratio_max: u64) -> Decoding {
        Decoding {
            decoder,
            ratio_max,
            head: None,
            part: Vec::new(),
            ready: 0..0,
            pending: false,
            taken: 0,
            made: 0,
            ended: false,
            trailers: Vec::new(),
            failed: None,
        }
    }

    /// Has `req` answered by somebody who sees its body decoded, also while a response is streamed.
    pub(crate) fn run(
        mut self,
        req: &mut Request<'_>,
        next: impl FnOnce(&mut Request<'_>) -> Response,
    ) -> Response {
        self.head = Some(decoded_head(req));
        let (deadline, notes) = (req.deadline, taken_notes(req));
        let mut decoded = Decoded { state: &mut self, below: req.exchange };
        let mut inner = Request { exchange: &mut decoded, deadline, notes };
        // Middleware around this learns from the request also when a handler panics.
        let answered = catch_unwind(AssertUnwindSafe(|| next(&mut inner)));
        let (deadline, notes) = (inner.deadline, taken_notes(&mut inner));
        (req.deadline, req.notes) = (deadline, notes);
        let mut response = answered.unwrap_or_else(|panic| resume_unwind(panic));
        if let Payload::Stream(write) = response.payload {
            response.payload = Payload::Stream(Box::new(move |out| {
                write(&mut BodyWriter::new(&mut Decoded { state: &mut self, below: out.exchange() }))
            }));
        }
        response
    }

    fn fill(&mut self, below: &mut dyn Exchange) -> Result<(), BodyError> {
        while self.ready.is_empty() && !self.ended {
            let input = if self.pending { &[][..] } else { below.fill()? };
            if input.is_empty() && !self.pending {
                // A body without a byte is nothing in every coding.
                if self.taken > 0 && !self.decoder.is_whole() {
                    return Err(self.not_decodable());
                }
                self.ended = true;
                let trailers = below.trailers().iter();
                self.trailers =
                    trailers.filter(|(name, _)| !is_stale(name.as_str().as_bytes())).cloned().collect();
                return Ok(());
            }
            self.part.resize(PART_BYTES, 0);
            let (decoder, part) = (&mut self.decoder, &mut self.part);
            let Some((taken, made)) = with_room(|| decoder.step(input, part)) else {
                return Err(self.not_decodable());
            };
            let stuck = taken == 0 && made == 0 && !self.pending;
            below.consume(taken);
            self.ready = 0..made;
            self.pending = made == PART_BYTES;
            self.taken += taken as u64;
            self.made += made as u64;
            if stuck {
                return Err(self.not_decodable());
            }
            self.check_ratio()?;
        }
        Ok(())
    }

    /// Both ways: a body that grows without end, and one that never grows (empty members, skippable frames)
    /// and so never meets the limit on what is read of it.
    fn check_ratio(&self) -> Result<(), BodyError> {
        if self.made > RATIO_FREE_BYTES && self.made / self.ratio_max > self.taken {
            return Err(BodyError::Bomb { ratio_max: self.ratio_max });
        }
        if self.taken / 2 > self.made + RATIO_FREE_BYTES {
            return Err(self.not_decodable());
        }
        Ok(())
    }

    fn not_decodable(&self) -> BodyError {
        BodyError::NotDecodable { coding: self.decoder.coding() }
    }
}

/// What is of the coded bytes. Digests are, also that of the representation, which is coded (RFC 9530 section 3).
const STALE: [&str; 6] =
    ["content-encoding", "content-length", "content-digest", "repr-digest", "digest", "content-md5"];

/// For a view of the same request with another head: all but its map of headers.
fn taken_notes(req: &mut Request<'_>) -> OnceCell<Box<Notes>> {
    let mut notes = std::mem::take(&mut req.notes);
    if let Some(notes) = notes.get_mut() {
        notes.headers.take();
    }
    notes
}

/// The head without the fields that are no longer true of the body.
fn decoded_head(req: &Request<'_>) -> Head {
    let (head, bytes) = req.exchange.head();
    let mut decoded = head.clone();
    decoded.fields.retain(|field| !is_stale(field.name.of(bytes)));
    decoded
}

fn is_stale(name: &[u8]) -> bool {
    STALE.iter().any(|stale| name.eq_ignore_ascii_case(stale.as_bytes()))
}

/// The exchange that sees the decoded body.
struct Decoded<'a> {
    state: &'a mut Decoding,
    below: &'a mut dyn Exchange,
}

impl Exchange for Decoded<'_> {
    fn head(&self) -> (&Head, &[u8]) {
        let (head, bytes) = self.below.head();
        (self.state.head.as_ref().unwrap_or(head), bytes)
    }

    fn fill(&mut self) -> Result<&[u8], BodyError> {
        if let Some(error) = &self.state.failed {
            return Err(error.clone());
        }
        if let Err(error) = self.state.fill(self.below) {
            if let BodyError::Bomb { ratio_max } = error {
                let what = "a request body expands more than ratio_max allows";
                self.below.tell(format_args!("{what}: {ratio_max}-fold, at {}", self.below.asked()));
            }
            self.state.ready = 0..0;
            self.state.failed = Some(error.clone());
            return Err(error);
        }
        Ok(&self.state.part[self.state.ready.clone()])
    }

    fn consume(&mut self, count: usize) {
        let ready = &mut self.state.ready;
        ready.start = (ready.start + count).min(ready.end);
    }

    /// Nobody knows before it is decoded.
    fn body_left(&self) -> Option<u64> {
        None
    }

    fn trailers(&self) -> &[(HeaderName, HeaderValue)] {
        &self.state.trailers
    }

    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.below.write(data)
    }

    fn send_trailers(&mut self, fields: &[(HeaderName, HeaderValue)]) -> io::Result<bool> {
        self.below.send_trailers(fields)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.below.flush()
    }

    fn pause(&mut self, patience: Duration) -> io::Result<bool> {
        self.below.pause(patience)
    }

    forward_the_rest!();
}

impl fmt::Debug for Decoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoding")
            .field("taken", &self.taken)
            .field("made", &self.made)
            .finish_non_exhaustive()
    }
}
