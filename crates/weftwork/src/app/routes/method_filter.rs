//! A set of methods that is tested in one instruction.

use std::fmt;

use http::Method;

/// A set of methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodFilter(u16);

/// Methods in the order of the `Allow` field.
const NAMED: [(MethodFilter, Method); 9] = [
    (MethodFilter::GET, Method::GET),
    (MethodFilter::HEAD, Method::HEAD),
    (MethodFilter::POST, Method::POST),
    (MethodFilter::PUT, Method::PUT),
    (MethodFilter::DELETE, Method::DELETE),
    (MethodFilter::PATCH, Method::PATCH),
    (MethodFilter::OPTIONS, Method::OPTIONS),
    (MethodFilter::TRACE, Method::TRACE),
    (MethodFilter::CONNECT, Method::CONNECT),
];

impl MethodFilter {
    /// No method.
    pub const NONE: MethodFilter = MethodFilter(0);
    /// GET alone, without HEAD.
    pub const GET: MethodFilter = MethodFilter(1);
    /// HEAD.
    pub const HEAD: MethodFilter = MethodFilter(1 << 1);
    /// POST.
    pub const POST: MethodFilter = MethodFilter(1 << 2);
    /// PUT.
    pub const PUT: MethodFilter = MethodFilter(1 << 3);
    /// DELETE.
    pub const DELETE: MethodFilter = MethodFilter(1 << 4);
    /// PATCH.
    pub const PATCH: MethodFilter = MethodFilter(1 << 5);
    /// OPTIONS.
    pub const OPTIONS: MethodFilter = MethodFilter(1 << 6);
    /// TRACE.
    pub const TRACE: MethodFilter = MethodFilter(1 << 7);
    /// CONNECT. No route takes it, because it has no path.
    pub const CONNECT: MethodFilter = MethodFilter(1 << 8);
    /// Every method without a constant.
    const OTHER: MethodFilter = MethodFilter(1 << 9);
    /// Every method, known or unknown, except CONNECT, which has no path.
    pub const ANY: MethodFilter = MethodFilter(((1 << 10) - 1) & !MethodFilter::CONNECT.0);

    /// Returns the set of one method.
    #[inline]
    pub fn of(method: &Method) -> MethodFilter {
        match *method {
            Method::GET => MethodFilter::GET,
            Method::HEAD => MethodFilter::HEAD,
            Method::POST => MethodFilter::POST,
            Method::PUT => MethodFilter::PUT,
            Method::DELETE => MethodFilter::DELETE,
            Method::PATCH => MethodFilter::PATCH,
            Method::OPTIONS => MethodFilter::OPTIONS,
            Method::TRACE => MethodFilter::TRACE,
            Method::CONNECT => MethodFilter::CONNECT,
            _ => MethodFilter::OTHER,
        }
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn or(self, other: MethodFilter) -> MethodFilter {
        MethodFilter(self.0 | other.0)
    }

    /// Returns whether both sets have a method in common.
    #[inline]
    pub const fn intersects(self, other: MethodFilter) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the first method of the set.
    pub fn first(self) -> Method {
        let named = NAMED.into_iter().find(|(filter, _)| self.intersects(*filter));
        named.map_or(Method::GET, |(_, method)| method)
    }

    /// Returns whether the set has a method with a constant.
    pub(crate) fn is_named(self) -> bool {
        self.0 & !MethodFilter::OTHER.0 != 0
    }
}

/// Writes the set as an `Allow` field does: `GET, HEAD`.
impl fmt::Display for MethodFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (filter, method) in NAMED {
            if self.intersects(filter) {
                write!(f, "{between}{method}")?;
                between = ", ";
            }
        }
        Ok(())
    }
}
