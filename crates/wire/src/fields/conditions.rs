//! Evaluates conditional requests.

use std::time::{Duration, SystemTime};

use super::dates::date;
use super::ranges::{Ranges, ranges};
use super::tags::{EntityTag, has_star, tags};
use crate::grammar::trim;

/// The fields of a request that make it conditional, or ask for a part.
#[derive(Clone, Debug, Default)]
pub struct Conditions<'a> {
    if_match: Vec<&'a [u8]>,
    if_none_match: Vec<&'a [u8]>,
    if_modified_since: Single<'a>,
    if_unmodified_since: Single<'a>,
    if_range: Single<'a>,
    range: Single<'a>,
}

/// A field that has one meaningful value, or none.
#[derive(Clone, Copy, Debug, Default)]
enum Single<'a> {
    #[default]
    Missing,
    Given(&'a [u8]),
    /// Two lines, which contradict or repeat each other.
    Twice,
}

/// Properties of the representation that would be sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Validators<'a> {
    /// Its entity tag.
    pub tag: Option<EntityTag<'a>>,
    /// When the representation last changed. With a weak tag, this date counts as weak, too (RFC 9110 §8.8.2.2).
    pub modified: Option<SystemTime>,
}

/// Result of the conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Answer as without conditions.
    Holds,
    /// The client already has the representation: 304.
    NotModified,
    /// The representation is not the one that the client expects: 412.
    Failed,
}

impl<'a> Single<'a> {
    fn note(&mut self, value: &'a [u8]) {
        *self = match self {
            Single::Missing => Single::Given(value),
            Single::Given(_) | Single::Twice => Single::Twice,
        }
    }

    fn value(self) -> Option<&'a [u8]> {
        match self {
            Single::Given(value) => Some(value),
            Single::Missing | Single::Twice => None,
        }
    }
}

impl<'a> Conditions<'a> {
    /// Collects these fields from the fields of a request. The case of names does not matter.
    pub fn of(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Conditions<'a> {
        let mut conditions = Conditions::default();
        for (name, value) in fields {
            let is = |wanted: &str| name.eq_ignore_ascii_case(wanted.as_bytes());
            // The length is compared first, because most fields are others.
            match name.len() {
                5 if is("range") => conditions.range.note(value),
                8 if is("if-match") => conditions.if_match.push(value),
                8 if is("if-range") => conditions.if_range.note(value),
                13 if is("if-none-match") => conditions.if_none_match.push(value),
                17 if is("if-modified-since") => conditions.if_modified_since.note(value),
                19 if is("if-unmodified-since") => conditions.if_unmodified_since.note(value),
                _ => {}
            }
        }
        conditions
    }

    /// Evaluates steps 1 to 4 of RFC 9110 §13.2.2 for a representation that exists. `reads` is true for GET and HEAD.
    pub fn precondition(&self, reads: bool, current: &Validators<'_>) -> Precondition {
        if !self.if_match.is_empty() {
            let same = |tag: &EntityTag<'_>| current.tag.is_some_and(|own| own.is_strongly(tag));
            if !names(&self.if_match, same) {
                return Precondition::Failed;
            }
        } else if let Some(since) = self.if_unmodified_since.value().and_then(date)
            && current.modified.is_some_and(|at| whole_second(at) > since)
        {
            return Precondition::Failed;
        }
        if !self.if_none_match.is_empty() {
            let same = |tag: &EntityTag<'_>| current.tag.is_some_and(|own| own.is_weakly(tag));
            // A `*` in a list is invalid (RFC 9110 §13.1.2), but its sender wanted nothing overwritten.
            let is_named =
                names(&self.if_none_match, same) || self.if_none_match.iter().any(|line| has_star(line));
            return match (is_named, reads) {
                (false, _) => Precondition::Holds,
                (true, true) => Precondition::NotModified,
                (true, false) => Precondition::Failed,
            };
        }
        if reads
            && let Some(since) = self.if_modified_since.value().and_then(date)
            && current.modified.is_some_and(|at| whole_second(at) <= since)
        {
            return Precondition::NotModified;
        }
        Precondition::Holds
    }

    /// Evaluates step 5 for GET: returns the parts of `length` bytes that were requested and may be sent alone.
    pub fn ranges(&self, current: &Validators<'_>, length: u64) -> Ranges {
        match (self.range.value(), self.if_range) {
            // The client joins the part to others by their date, and here the date says nothing about the bytes.
            (Some(_), Single::Missing) if self.depends_on_date() && current.modified.is_none() => {
                Ranges::Whole
            }
            (Some(range), Single::Missing) => ranges(range, length),
            (Some(range), Single::Given(state)) if is_current(state, current) => ranges(range, length),
            _ => Ranges::Whole,
        }
    }

    /// Returns whether the request names the state that it wants by a date alone.
    fn depends_on_date(&self) -> bool {
        self.if_match.is_empty() && !matches!(self.if_unmodified_since, Single::Missing)
    }
}

/// Returns whether a list names a tag that is `same`. `*` names all tags (RFC 9110 §13.1.1, §13.1.2).
fn names(lines: &[&[u8]], same: impl Fn(&EntityTag<'_>) -> bool) -> bool {
    match lines {
        [line] if trim(line) == b"*" => true,
        lines => lines.iter().flat_map(|line| tags(line)).any(|tag| same(&tag)),
    }
}

/// Evaluates If-Range (RFC 9110 §13.1.5). A tag is compared strongly, and a date must be equal. A date is a strong
/// validator if nothing changed twice in its second (§8.8.2.2). The codec cannot know that, so a date counts as
/// strong unless the tag is weak.
fn is_current(state: &[u8], current: &Validators<'_>) -> bool {
    if let Some(tag) = EntityTag::parse(state) {
        return current.tag.is_some_and(|own| own.is_strongly(&tag));
    }
    let strong = current.tag.is_none_or(|tag| !tag.weak);
    let modified = current.modified.map(whole_second);
    strong && modified.is_some() && modified == date(state)
}

/// Dates of HTTP have no fractions of a second. A time before 1970 has no HTTP date.
fn whole_second(at: SystemTime) -> SystemTime {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs())
}
