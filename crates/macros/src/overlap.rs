//! Reports routes that match the same path.

use syn::{Error, Result};

use crate::model::{RouteAttr, Variant};
use crate::pattern::Segment;

struct Entry<'v> {
    variant: &'v Variant<'v>,
    attr: &'v RouteAttr,
}

/// Checks each route against all routes before it.
pub(crate) fn check(variants: &[Variant<'_>]) -> Result<()> {
    let entries: Vec<Entry<'_>> = variants
        .iter()
        .flat_map(|variant| variant.attrs.iter().map(move |attr| Entry { variant, attr }))
        .collect();
    let mut errors: Option<Error> = None;
    for (at, later) in entries.iter().enumerate() {
        let Some(error) = entries[..at].iter().find_map(|earlier| overlap(earlier, later)) else { continue };
        match &mut errors {
            Some(errors) => errors.combine(error),
            None => errors = Some(error),
        }
    }
    errors.map_or(Ok(()), Err)
}

fn overlap(earlier: &Entry<'_>, later: &Entry<'_>) -> Option<Error> {
    let (one, two) = (&earlier.attr.pattern.segments, &later.attr.pattern.segments);
    let (name, text) = (&earlier.variant.item.ident, earlier.attr.pattern.text.value());
    let nests = (earlier.variant.nested.is_some(), later.variant.nested.is_some());
    let why = match nests {
        (false, false) if earlier.attr.method == later.attr.method && same_paths(one, two) => {
            if std::ptr::eq(earlier.variant, later.variant) {
                format!("duplicate route \"{text}\": remove one")
            } else {
                format!(
                    "this route overlaps \"{text}\" of `{name}`: both match the same paths. Give one of them another path or \
                     method, or make them one variant"
                )
            }
        }
        (true, _) if is_under(two, one) => format!(
            "this route overlaps the nest \"{text}\" of `{name}`, which matches every path under it: move the route there"
        ),
        (_, true) if is_under(one, two) => {
            let what = if nests.0 { "nest" } else { "route" };
            format!(
                "this nest overlaps the {what} \"{text}\" of `{name}`, and would match every path under its prefix: move that {what} in here"
            )
        }
        _ => return None,
    };
    Some(Error::new(later.attr.pattern.text.span(), why))
}

/// Returns whether both patterns match exactly the same paths.
fn same_paths(one: &[Segment], two: &[Segment]) -> bool {
    one.len() == two.len() && one.iter().zip(two).all(|(one, two)| same(one, two))
}

/// Returns whether every path of `segments` is under `prefix`. A capture does not match an empty segment, so a
/// rest at that position keeps paths that start with an empty segment. A route for only these paths is never
/// intended.
fn is_under(segments: &[Segment], prefix: &[Segment]) -> bool {
    let takes = |(segment, prefix): (&Segment, &Segment)| {
        same(segment, prefix) || matches!((segment, prefix), (Segment::Rest(_), Segment::Capture(_)))
    };
    segments.len() >= prefix.len() && segments.iter().zip(prefix).all(takes)
}

fn same(one: &Segment, two: &Segment) -> bool {
    match (one, two) {
        (Segment::Literal(one), Segment::Literal(two)) => one == two,
        (Segment::Capture(_), Segment::Capture(_)) | (Segment::Rest(_), Segment::Rest(_)) => true,
        _ => false,
    }
}
