//! A set of methods that is tested in one instruction.

use std::fmt;

use http::Method;

/// A set of methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verbs(u16);

/// Methods in the order of the `Allow` field.
const NAMED: [(Verbs, Method); 9] = [
    (Verbs::GET, Method::GET),
    (Verbs::HEAD, Method::HEAD),
    (Verbs::POST, Method::POST),
    (Verbs::PUT, Method::PUT),
    (Verbs::DELETE, Method::DELETE),
    (Verbs::PATCH, Method::PATCH),
    (Verbs::OPTIONS, Method::OPTIONS),
    (Verbs::TRACE, Method::TRACE),
    (Verbs::CONNECT, Method::CONNECT),
];

impl Verbs {
    /// No method.
    pub const NONE: Verbs = Verbs(0);
    /// GET alone, without HEAD.
    pub const GET: Verbs = Verbs(1);
    /// HEAD.
    pub const HEAD: Verbs = Verbs(1 << 1);
    /// POST.
    pub const POST: Verbs = Verbs(1 << 2);
    /// PUT.
    pub const PUT: Verbs = Verbs(1 << 3);
    /// DELETE.
    pub const DELETE: Verbs = Verbs(1 << 4);
    /// PATCH.
    pub const PATCH: Verbs = Verbs(1 << 5);
    /// OPTIONS.
    pub const OPTIONS: Verbs = Verbs(1 << 6);
    /// TRACE.
    pub const TRACE: Verbs = Verbs(1 << 7);
    /// CONNECT. No route takes it, because it has no path.
    pub const CONNECT: Verbs = Verbs(1 << 8);
    /// Every method without a constant.
    const OTHER: Verbs = Verbs(1 << 9);
    /// Every method, known or unknown, except CONNECT, which has no path.
    pub const ANY: Verbs = Verbs(((1 << 10) - 1) & !Verbs::CONNECT.0);

    /// Returns the set of one method.
    #[inline]
    pub fn of(method: &Method) -> Verbs {
        match *method {
            Method::GET => Verbs::GET,
            Method::HEAD => Verbs::HEAD,
            Method::POST => Verbs::POST,
            Method::PUT => Verbs::PUT,
            Method::DELETE => Verbs::DELETE,
            Method::PATCH => Verbs::PATCH,
            Method::OPTIONS => Verbs::OPTIONS,
            Method::TRACE => Verbs::TRACE,
            Method::CONNECT => Verbs::CONNECT,
            _ => Verbs::OTHER,
        }
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn or(self, other: Verbs) -> Verbs {
        Verbs(self.0 | other.0)
    }

    /// Returns whether both sets have a method in common.
    #[inline]
    pub const fn meets(self, other: Verbs) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the first method of the set.
    pub fn first(self) -> Method {
        let named = NAMED.into_iter().find(|(verb, _)| self.meets(*verb));
        named.map_or(Method::GET, |(_, method)| method)
    }

    /// Returns whether the set has a method with a constant.
    pub(crate) fn is_named(self) -> bool {
        self.0 & !Verbs::OTHER.0 != 0
    }
}

/// Writes the set as an `Allow` field does: `GET, HEAD`.
impl fmt::Display for Verbs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (verb, method) in NAMED {
            if self.meets(verb) {
                write!(f, "{between}{method}")?;
                between = ", ";
            }
        }
        Ok(())
    }
}
