//! The cases: a loop around each part without I/O. Some are counted beside another case, whose work they need before their own.

use std::collections::BTreeMap;

mod codec;
mod http2;
mod site;

use codec::{CHUNKED, LENGTH, SMALL, browser_head};
use site::{Hundred, LOT, PATH_10, PATH_100, PATH_1000, Ten, Thousand};

/// One loop that callgrind runs.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) repeat: fn(u32),
    /// The case whose count is taken off.
    pub(super) less: Option<&'static str>,
    /// Number of parts of which it is the sum.
    pub(super) sum_of: u32,
    /// It is another library: its growth is no fault of ours.
    pub(super) is_yardstick: bool,
}

#[rustfmt::skip]
pub(super) const CASES: &[Case] = &[
    alone("head_small", "a head with only Host", |n| codec::heads(SMALL, n)),
    alone("head_browser", "a head with 20 fields, as a browser sends", |n| codec::heads(&browser_head(), n)),
    yardstick("httparse_small", "httparse alone: no rules of framing, no limits", |n| codec::httparse(SMALL, n)),
    yardstick("httparse_browser", "httparse alone", |n| codec::httparse(&browser_head(), n)),
    alone("head_length", "a head with Content-Length", |n| codec::heads(LENGTH, n)),
    beside("body_length", "its body of 11 bytes", |n| codec::bodies(LENGTH, n), "head_length"),
    alone("head_chunked", "a head with Transfer-Encoding", |n| codec::heads(CHUNKED, n)),
    beside("body_chunked", "its body: 3 chunks, 2 trailers", |n| codec::bodies(CHUNKED, n), "head_chunked"),
    beside("encode_plain", "a 200 with Content-Type, 2 bytes of body, and next", codec::encode_plain, "head_small"),
    alone("closing", "a head with Connection: close, and a plain 200 for it", codec::closing),
    beside("encode_fields", "a 404 with 6 fields more", codec::encode_fields, "head_small"),
    beside("encode_chunked", "a 200 in 3 chunks", codec::encode_chunked, "head_small"),
    alone("hpack_indexed", "a field block of HTTP/2 with 5 indexed fields", http2::indexed),
    alone("h2_head_small", "the head of HTTP/2 that h2load sends: 5 indexed fields", http2::heads),
    alone("h2_answer_small", "the same, and a 200 with 13 bytes of body", http2::answers),
    alone("lot_plain", "a request in memory with all that its client does", |n| site::plain("/health", 1, n)),
    each("request_plain", "a kept-alive request, one of 17 sent at once", |n| site::plain("/health", 1 + LOT, n), "lot_plain"),
    alone("lot_10", "as lot_plain, one of 10 derived routes", |n| site::ten(1, n)),
    each("request_10", "the same, for one of 10 routes", |n| site::ten(1 + LOT, n), "lot_10"),
    alone("no_routes_10", "as lot_plain, with the path of routes_10", |n| site::plain(PATH_10, 1, n)),
    beside("routes_10", "two captures, among 10 derived routes", |n| site::dispatch::<Ten>(PATH_10, n), "no_routes_10"),
    beside("router_10", "the same in a router of closures", site::router_10, "no_routes_10"),
    alone("no_routes_100", "as lot_plain, with the path of routes_100", |n| site::plain(PATH_100, 1, n)),
    beside("routes_100", "two captures, among 100 derived routes", |n| site::dispatch::<Hundred>(PATH_100, n), "no_routes_100"),
    alone("no_routes_1000", "as lot_plain, with the path of routes_1000", |n| site::plain(PATH_1000, 1, n)),
    beside("routes_1000", "two captures, among 1,000 derived routes", |n| site::dispatch::<Thousand>(PATH_1000, n), "no_routes_1000"),
    beside("router_1000", "the same in a router of closures", site::router_1000, "no_routes_1000"),
];

/// What must be reached, whatever figures were kept.
pub(super) struct Target {
    pub(super) title: &'static str,
    of: &'static str,
    over: Option<&'static str>,
    below: f64,
}

pub(super) const TARGETS: &[Target] = &[
    Target {
        title: "a browser's head over httparse alone, below 1.5",
        of: "head_browser",
        over: Some("httparse_browser"),
        below: 1.5,
    },
    Target {
        title: "a small request of HTTP/2, within 5 % of 1,500",
        of: "h2_answer_small",
        over: None,
        below: 1575.0,
    },
    Target { title: "a whole request in memory, below 2,500", of: "request_10", over: None, below: 2500.0 },
];

impl Target {
    /// Returns the value, and whether it is good enough. None: it was not counted.
    pub(super) fn reached(&self, counts: &BTreeMap<String, f64>) -> Option<(f64, bool)> {
        let of = counts.get(self.of)?;
        let over = self.over.map_or(Some(&1.0), |name| counts.get(name))?;
        Some((of / over, of / over < self.below))
    }
}

const fn alone(name: &'static str, title: &'static str, repeat: fn(u32)) -> Case {
    Case { name, title, repeat, less: None, sum_of: 1, is_yardstick: false }
}

const fn yardstick(name: &'static str, title: &'static str, repeat: fn(u32)) -> Case {
    Case { is_yardstick: true, ..alone(name, title, repeat) }
}

const fn beside(name: &'static str, title: &'static str, repeat: fn(u32), less: &'static str) -> Case {
    Case { name, title, repeat, less: Some(less), sum_of: 1, is_yardstick: false }
}

const fn each(name: &'static str, title: &'static str, repeat: fn(u32), less: &'static str) -> Case {
    Case { name, title, repeat, less: Some(less), sum_of: LOT, is_yardstick: false }
}
