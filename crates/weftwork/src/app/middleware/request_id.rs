//! Request ids and trace contexts.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderName, HeaderValue};

use super::{Middleware, Next};
use crate::message::{Request, Response};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACE_RESPONSE: HeaderName = HeaderName::from_static("traceresponse");
/// UUIDs have 36 characters, ids of load balancers up to about 100.
const ID_BYTES_MAX: usize = 128;
/// `00-`, and 32, 16 and 2 hexadecimal digits with hyphens between them.
const TRACE_PARENT_BYTES: usize = 55;

/// Gives each request an id and a trace context. Both are added to the extensions of the request and to the
/// response.
///
/// - [`RequestId`]: the `X-Request-Id` of the request if it has 1 to 128 letters, digits and `-_.:+/=@`,
///   otherwise a new id of 32 hexadecimal digits. The response has the id. So do log lines of the server about
///   the request: a handler that failed, panicked or took long.
/// - [`TraceContext`]: the trace of a valid `traceparent`, otherwise a new trace (W3C Trace Context, section
///   3.2). In both cases it has a new span. The response has it as `traceresponse`.
///
/// An inner [`Proxy`](crate::Proxy) forwards both as `X-Request-Id`, `traceparent` and `tracestate`. For
/// requests that your handler makes, send [`TraceContext::traceparent`].
///
/// New ids are a keyed hash of a counter. They are unique and cannot be guessed from other ids, but they are
/// not secrets. Clients choose the ids that they send. If that matters, let the proxy in front replace both
/// fields.
///
/// ```
/// use weftwork::middleware::{RequestId, RequestIds};
/// use weftwork::prelude::*;
///
/// fn site(req: &mut Request) -> String {
///     format!("this is {}\n", req.extensions().get::<RequestId>().map_or("nobody", RequestId::as_str))
/// }
///
/// fn takes(_: impl Handler) {}
/// takes(site.with(RequestIds::new()));
/// ```
#[derive(Clone, Debug, Default)]
pub struct RequestIds {
    generator: Arc<IdGenerator>,
}

/// The id of a request. [`RequestIds`] adds it to the extensions of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(Box<str>);

impl RequestId {
    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The position of a request in a trace (W3C Trace Context). [`RequestIds`] adds it to the extensions of the
/// request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    trace: u128,
    parent: Option<u64>,
    span: u64,
    flags: u8,
    state: Option<Box<str>>,
}

impl TraceContext {
    /// Returns the trace id, 32 hexadecimal digits. All requests of one trace share it.
    pub fn trace_id(&self) -> String {
        format!("{:032x}", self.trace)
    }

    /// Returns the span id, 16 hexadecimal digits. It stands for the handling of this request.
    pub fn span_id(&self) -> String {
        format!("{:016x}", self.span)
    }

    /// Returns the span of the caller, if it sent one.
    pub fn parent_id(&self) -> Option<String> {
        self.parent.map(|parent| format!("{parent:016x}"))
    }

    /// Returns whether the caller records this trace.
    pub fn is_sampled(&self) -> bool {
        self.flags & 1 == 1
    }

    /// Returns the `traceparent` for requests on behalf of this one.
    pub fn traceparent(&self) -> String {
        format!("00-{:032x}-{:016x}-{:02x}", self.trace, self.span, self.flags)
    }

    /// Returns the caller's `tracestate`, to forward it unchanged. `None` without a valid `traceparent`.
    pub fn tracestate(&self) -> Option<&str> {
        self.state.as_deref()
    }
}

impl RequestIds {
    /// Creates the middleware. It has no options.
    pub fn new() -> RequestIds {
        RequestIds::default()
    }

    fn id(&self, req: &Request<'_>) -> RequestId {
        match req.only(REQUEST_ID).value() {
            Some(given) if is_id(given) => RequestId(given.into()),
            _ => RequestId(format!("{:032x}", self.generator.next()).into()),
        }
    }

    fn trace(&self, req: &Request<'_>) -> TraceContext {
        // Zero is not a valid id (section 3.2.2.3).
        let span = (self.generator.next() as u64).max(1);
        match req.only("traceparent").value().and_then(TraceParent::parse) {
            Some(TraceParent { trace, span: parent, flags }) => {
                let state =
                    req.headers().get_all("tracestate").iter().filter_map(|value| value.to_str().ok());
                let state = state.collect::<Vec<_>>().join(",");
                let state = (!state.is_empty()).then(|| state.into());
                TraceContext { trace, parent: Some(parent), span, flags, state }
            }
            None => TraceContext {
                trace: self.generator.next().max(1),
                parent: None,
                span,
                flags: 0,
                state: None,
            },
        }
    }
}

impl Middleware for RequestIds {
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        let (id, trace) = (self.id(req), self.trace(req));
        let fields = [(REQUEST_ID, id.as_str().to_owned()), (TRACE_RESPONSE, trace.traceparent())]
            .map(|(name, value)| (name, HeaderValue::try_from(value).ok()));
        req.identify(id.as_str());
        req.extensions_mut().insert(id);
        req.extensions_mut().insert(trace);
        next.run(req).map_final(move |mut response| {
            for (name, value) in &fields {
                if let Some(value) = value {
                    response.set_header(name.clone(), value.clone());
                }
            }
            response
        })
    }
}

fn is_id(given: &str) -> bool {
    (1..=ID_BYTES_MAX).contains(&given.len())
        && given.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:+/=@".contains(&byte))
}

struct TraceParent {
    trace: u128,
    span: u64,
    flags: u8,
}

impl TraceParent {
    /// Parses a `traceparent`. Version 00 has exactly this length. A later version may continue after a hyphen,
    /// and only its first parts are read (section 3.2.4).
    fn parse(text: &str) -> Option<TraceParent> {
        let (known, rest) = (text.get(..TRACE_PARENT_BYTES)?, &text[TRACE_PARENT_BYTES..]);
        let mut parts = known.split('-');
        let mut part = |digits: usize| parts.next().filter(|part| part.len() == digits && is_hex(part));
        let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        let whole = if version == "00" { rest.is_empty() } else { rest.is_empty() || rest.starts_with('-') };
        let trace = u128::from_str_radix(trace, 16).ok().filter(|&trace| trace != 0)?;
        let span = u64::from_str_radix(span, 16).ok().filter(|&span| span != 0)?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        // The other bits have no meaning yet and are not forwarded (section 3.3).
        (whole && version != "ff").then_some(TraceParent { trace, span, flags: flags & 1 })
    }
}

/// Lower case only (section 3.2.1).
fn is_hex(part: &str) -> bool {
    part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Generates numbers that do not repeat and cannot be guessed from one another.
#[derive(Debug, Default)]
struct IdGenerator {
    keys: [RandomState; 2],
    counter: AtomicU64,
}

impl IdGenerator {
    fn next(&self) -> u128 {
        let number = self.counter.fetch_add(1, Ordering::Relaxed);
        let [high, low] = &self.keys;
        u128::from(high.hash_one(number)) << 64 | u128::from(low.hash_one(number))
    }
}

#[cfg(test)]
mod tests {
    //! Tests that valid ids are kept, and all others are replaced.

    use super::*;
    use crate::app::middleware::HandlerExt;
    use crate::message::testing::Canned;

    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    /// Returns the id and the trace that a handler sees, and the fields of the response.
    fn ask(fields: &[(&str, &str)]) -> (String, TraceContext, Response) {
        let seen = std::sync::Arc::new(std::sync::Mutex::new(None));
        let shared = seen.clone();
        let handler = (move |req: &mut Request<'_>| {
            let extensions = req.extensions();
            let id = extensions.get::<RequestId>().unwrap().to_string();
            *shared.lock().unwrap() = Some((id, extensions.get::<TraceContext>().unwrap().clone()));
        })
        .with(RequestIds::new());
        let response = Canned::asking("GET", "/", fields).call(&handler);
        let (id, trace) = seen.lock().unwrap().take().unwrap();
        assert_eq!(response.header(REQUEST_ID).unwrap(), id.as_str());
        assert_eq!(response.header(TRACE_RESPONSE).unwrap(), trace.traceparent().as_str());
        (id, trace, response)
    }

    #[test]
    fn valid_ids_are_kept() {
        for id in ["7", "c0ffee-00", "Root=1-67891233-abcdef012345678912345678", &"x".repeat(128)] {
            assert_eq!(ask(&[("X-Request-Id", id)]).0, id);
        }
    }

    #[test]
    fn other_request_ids_are_replaced() {
        for id in ["", "a b", "a\"b", "<b>", "a;b", "\u{fc}", "a\tb", &"x".repeat(129)] {
            let given = ask(&[("X-Request-Id", id)]).0;
            assert!(given.len() == 32 && is_hex(&given), "{id:?}");
        }
        assert_eq!(ask(&[("X-Request-Id", "one"), ("X-Request-Id", "two")]).0.len(), 32);
    }

    #[test]
    fn ids_do_not_repeat() {
        let generator = IdGenerator::default();
        let numbers: std::collections::HashSet<_> = (0..10_000).map(|_| generator.next()).collect();
        assert_eq!(numbers.len(), 10_000);
        assert_ne!(IdGenerator::default().next(), IdGenerator::default().next(), "each has keys of its own");
    }

    #[test]
    fn a_trace_goes_on() {
        let (_, trace, _) = ask(&[("traceparent", TRACE), ("tracestate", "a=1"), ("tracestate", "b=2")]);
        assert_eq!(trace.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(trace.parent_id().unwrap(), "00f067aa0ba902b7");
        assert_ne!(trace.span_id(), "00f067aa0ba902b7");
        assert!(trace.is_sampled());
        assert_eq!(trace.tracestate(), Some("a=1,b=2"));
        let ours = format!("00-{}-{}-01", trace.trace_id(), trace.span_id());
        assert_eq!(trace.traceparent(), ours);
        assert!(TraceParent::parse(&ours).is_some());
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        for later in [TRACE.replacen("00", "cc", 1), TRACE.replacen("00", "cc", 1) + "-more"] {
            assert_eq!(ask(&[("traceparent", &later)]).1.parent_id().unwrap(), "00f067aa0ba902b7", "{later}");
        }
        assert!(ask(&[("traceparent", &TRACE.replace("-01", "-ff"))]).1.traceparent().ends_with("-01"));
    }

    #[test]
    fn what_is_not_a_trace_starts_a_new_one() {
        let bad = [
            "",
            "00",
            &TRACE[..54],
            &format!("{TRACE}-more"),
            &TRACE.replacen("00", "ff", 1),
            &(TRACE.replacen("00", "cc", 1) + "more"),
            &TRACE.to_uppercase(),
            &TRACE.replace('-', "_"),
            &TRACE.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &TRACE.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &TRACE.replace("4bf9", "4bg9"),
            &TRACE.replace("4bf9", "\u{fc}f9"),
            &TRACE.replace("4bf9", "+bf9"),
        ];
        for given in bad {
            let (_, trace, _) = ask(&[("traceparent", given), ("tracestate", "a=1")]);
            assert_eq!((trace.parent_id(), trace.tracestate()), (None, None), "{given:?}");
            assert_ne!(trace.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
            assert!(!trace.is_sampled() && TraceParent::parse(&trace.traceparent()).is_some());
        }
        let twice = ask(&[("traceparent", TRACE), ("traceparent", TRACE)]).1;
        assert_eq!(twice.parent_id(), None);
    }
}
