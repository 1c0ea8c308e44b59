//! How are a route's query parameters read?

use super::miss::Miss;
use super::path::{Captured, decoded};
use crate::message::form_decoded;

/// A parameter that has to be there; the first one of that name counts.
pub fn required<T: Captured>(query: &str, name: &'static str) -> Result<T, Miss> {
    match values(query, name).next() {
        Some(value) => parsed(name, value),
        None => Err(Miss::malformed(name, "query parameter", "is missing")),
    }
}

/// A parameter that may be missing. One without a value (an input of a form that was left empty) counts as
/// missing where the type takes no empty text.
pub fn optional<T: Captured>(query: &str, name: &'static str) -> Result<Option<T>, Miss> {
    match values(query, name).next() {
        None => Ok(None),
        Some("") => Ok("".parse().ok()),
        Some(value) => parsed(name, value).map(Some),
    }
}

/// A parameter that may come any number of times.
pub fn repeated<T: Captured>(query: &str, name: &'static str) -> Result<Vec<T>, Miss> {
    values(query, name).map(|value| parsed(name, value)).collect()
}

fn parsed<T: Captured>(name: &'static str, value: &str) -> Result<T, Miss> {
    decoded(name, "query parameter", form_decoded(value))
}

/// The values of `name`, still encoded.
fn values<'q>(query: &'q str, name: &'static str) -> impl Iterator<Item = &'q str> {
    query.split('&').filter_map(move |pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (!pair.is_empty() && (key == name || form_decoded(key)? == name)).then_some(value)
    })
}
