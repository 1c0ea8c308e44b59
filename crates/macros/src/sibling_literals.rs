//! Finds literals of other routes that equal a value of a capture.

use std::collections::BTreeSet;

use crate::model::Variant;
use crate::pattern::Segment;

/// Returns the literals at the position of `segments[at]`, in routes that match up to there. For a rest, later
/// literals are included.
pub(crate) fn of(segments: &[Segment], at: usize, variants: &[Variant<'_>]) -> BTreeSet<String> {
    let is_rest = matches!(segments[at], Segment::Rest(_));
    let others = variants.iter().flat_map(|variant| &variant.attrs).map(|attr| &attr.pattern.segments);
    let beside = others.filter(|other| other.len() > at && agree(&segments[..at], &other[..at]));
    let places = beside.flat_map(|other| if is_rest { &other[at..] } else { &other[at..=at] });
    places
        .filter_map(|segment| match segment {
            Segment::Literal(text) if !text.is_empty() => Some(text.clone()),
            _ => None,
        })
        .collect()
}

fn agree(one: &[Segment], two: &[Segment]) -> bool {
    one.iter().zip(two).all(|pair| match pair {
        (Segment::Literal(one), Segment::Literal(two)) => one == two,
        _ => true,
    })
}
