//! Reads the fields that select which part of a representation is sent, and whether it is sent.
//!
//! Pure functions over field values, for servers of representations: RFC 9110 §13 (conditional requests),
//! §14 (ranges), §12.5.3 (codings), §8.8 (validators). What cannot be read is treated as the RFC says of each
//! field, which is nearly always: as if it were not there.

mod codings;
mod conditions;
mod dates;
mod ranges;
mod tags;
#[cfg(test)]
mod tests;

pub use codings::{media_type_quality, names_media_type, quality};
pub use conditions::{Conditions, Precondition, Validators};
pub use dates::date;
pub use ranges::{ByteRange, RANGES_MAX, Ranges, ranges};
pub use tags::{EntityTag, tags};
