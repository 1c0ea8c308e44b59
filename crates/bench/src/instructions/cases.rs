//! Which pure parts are counted? Each case is a loop around one of them; some are counted beside another, whose
//! work they need before their own can begin.

use std::collections::BTreeMap;

mod codec;
mod site;

/// One loop that callgrind runs.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) repeat: fn(u32),
    /// The case whose count is taken off.
    pub(super) less: Option<&'static str>,
    /// Of how many it is the sum.
    pub(super) sum_of: u32,
    /// Another library's: how much the compiler makes of it is not for us to mend.
    pub(super) is_yardstick: bool,
}

pub(super) const CASES: &[Case] = &[
    alone("head_small", "a head with only Host", codec::head_small),
    alone("head_browser", "a head with 20 fields, as a browser sends", codec::head_browser),
    yardstick(
        "httparse_small",
        "the same, httparse alone: no rules of framing, no limits",
        codec::httparse_small,
    ),
    yardstick("httparse_browser", "the same, httparse alone", codec::httparse_browser),
    alone("head_length", "a head with Content-Length", codec::head_length),
    beside("body_length", "its body of 11 bytes", codec::body_length, "head_length"),
    alone("head_chunked", "a head with Transfer-Encoding", codec::head_chunked),
    beside("body_chunked", "its body: 3 chunks, 2 trailers", codec::body_chunked, "head_chunked"),
    beside(
        "encode_plain",
        "a 200 with Content-Type, 2 bytes of body, and next",
        codec::encode_plain,
        "head_small",
    ),
    alone("closing", "a head with Connection: close, and a plain 200 for it", codec::closing),
    beside("encode_fields", "a 404 with 6 fields more", codec::encode_fields, "head_small"),
    beside("encode_chunked", "a 200 in 3 chunks", codec::encode_chunked, "head_small"),
    alone("lot_plain", "a request in memory with all that its client does", site::lot_plain),
    each(
        "request_plain",
        "a whole kept-alive request, one of 17 sent at once",
        site::request_plain,
        "lot_plain",
    ),
    alone("lot_10", "as lot_plain, one of 10 derived routes", site::lot_10),
    each("request_10", "the same, for one of 10 routes", site::request_10, "lot_10"),
    alone("no_routes_10", "as lot_plain, with the path of routes_10", site::no_routes_10),
    beside("routes_10", "two captures, among 10 derived routes", site::routes_10, "no_routes_10"),
    beside("router_10", "the same in a router of closures", site::router_10, "no_routes_10"),
    alone("no_routes_100", "as lot_plain, with the path of routes_100", site::no_routes_100),
    beside("routes_100", "two captures, among 100 derived routes", site::routes_100, "no_routes_100"),
    alone("no_routes_1000", "as lot_plain, with the path of routes_1000", site::no_routes_1000),
    beside("routes_1000", "two captures, among 1,000 derived routes", site::routes_1000, "no_routes_1000"),
    beside("router_1000", "the same in a router of closures", site::router_1000, "no_routes_1000"),
];

/// What must be reached, whatever was kept.
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
    Target { title: "a whole request in memory, below 2,500", of: "request_10", over: None, below: 2500.0 },
];

impl Target {
    /// The value, and whether it is good enough; none where it was not counted.
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
    Case { name, title, repeat, less: Some(less), sum_of: site::LOT, is_yardstick: false }
}
