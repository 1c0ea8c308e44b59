//! Presents a request with a compressed body as if the body were not compressed.

use std::cell::OnceCell;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use http::{HeaderName, HeaderValue};
use weftwork_wire::Head;

use super::body::BodyError;
use super::exchange::{Exchange, forward_the_response, forward_the_rest};
use super::large_stack::with_large_stack;
use super::request::{Request, RequestData};
use super::response::{Payload, Response};
use super::writer::BodyWriter;

/// Size of the parts in which decoded bytes are produced.
const PART_BYTES: usize = 16 << 10;
/// Decoded bytes that are always allowed, because a small text may be a thousand times as long as its compressed form.
const RATIO_FREE_BYTES: u64 = 64 << 10;

/// Decodes a content coding, step by step.
pub(crate) trait Decoder: Send {
    /// Name in `Content-Encoding`.
    fn coding(&self) -> &'static str;
    /// Decodes a part of `input` into `output`, and returns how much of each. Returns `None` if the data is malformed.
    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Option<(usize, usize)>;
    /// Returns whether the input may end here.
    fn is_whole(&self) -> bool;
}

/// State of decoding a body, and the view of its head.
pub(crate) struct Decoding {
    decoder: Box<dyn Decoder>,
    ratio_max: u64,
    head: Option<Head>,
    part: Vec<u8>,
    ready: Range<usize>,
    /// Whether the decoder filled its last part, so that more output may exist without more input.
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

    /// Runs a handler that sees the body of `req` decoded, also while a response is streamed.
    pub(crate) fn run(
        mut self,
        req: &mut Request<'_>,
        next: impl FnOnce(&mut Request<'_>) -> Response,
    ) -> Response {
        self.head = Some(decoded_head(req));
        let (deadline, data) = (req.deadline, take_data(req));
        let mut decoded = Decoded { state: &mut self, below: req.exchange };
        let mut inner = Request { exchange: &mut decoded, deadline, data };
        // Outer middleware reads this from the request, even after the handler has panicked.
        let answered = catch_unwind(AssertUnwindSafe(|| next(&mut inner)));
        let (deadline, data) = (inner.deadline, take_data(&mut inner));
        (req.deadline, req.data) = (deadline, data);
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
                // An empty body is empty in every coding.
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
            let Some((taken, made)) = with_large_stack(|| decoder.step(input, part)) else {
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

    /// Limits both kinds of attack: a body that expands without end, and a body that never expands (empty members,
    /// skippable frames) and so never meets the limit on reading.
    fn check_ratio(&self) -> Result<(), BodyError> {
        if self.made > RATIO_FREE_BYTES && self.made / self.ratio_max > self.taken {
            return Err(BodyError::ExpansionRatio { ratio_max: self.ratio_max });
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

/// Returns whether a field describes the coded bytes. Digests do, including that of the representation, which is coded
/// (RFC 9530 section 3).
const STALE: [&str; 6] =
    ["content-encoding", "content-length", "content-digest", "repr-digest", "digest", "content-md5"];

/// Copies the data of the request for a view with another head, without its map of headers.
pub(super) fn take_data(req: &mut Request<'_>) -> OnceCell<Box<RequestData>> {
    let mut data = std::mem::take(&mut req.data);
    if let Some(data) = data.get_mut() {
        data.headers.take();
    }
    data
}

/// Builds the head without the fields that do not apply to the decoded body.
fn decoded_head(req: &Request<'_>) -> Head {
    let (head, bytes) = req.exchange.head();
    let mut decoded = head.clone();
    decoded.fields.retain(|field| !is_stale(field.name.of(bytes)));
    decoded
}

fn is_stale(name: &[u8]) -> bool {
    STALE.iter().any(|stale| name.eq_ignore_ascii_case(stale.as_bytes()))
}

/// Exchange that presents the decoded body.
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
            if let BodyError::ExpansionRatio { ratio_max } = error {
                let what = "a request body expands more than ratio_max allows";
                self.below
                    .log_client(format_args!("{what}: {ratio_max}-fold, at {}", self.below.request_line()));
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

    /// The length is unknown before decoding.
    fn body_left(&self) -> Option<u64> {
        None
    }

    fn trailers(&self) -> &[(HeaderName, HeaderValue)] {
        &self.state.trailers
    }

    forward_the_response!();
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
