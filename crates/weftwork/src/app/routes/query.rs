//! How are a route's query parameters read?

use std::any::TypeId;

use super::miss::Miss;
use super::path::{Captured, decoded};
use crate::message::{checkbox, form_decoded};

/// A parameter that has to be there; the first one of that name counts.
pub fn required<T: Captured>(query: &str, name: &'static str) -> Result<T, Miss> {
    match values(query, name).next() {
        Some(value) => parsed(name, value),
        None => Err(Miss::malformed(name, "query parameter", "is missing")),
    }
}

/// A parameter that may be missing. One without a value counts as missing: an input of a form that was left empty. Of
/// several the first with a value counts.
pub fn optional<T: Captured>(query: &str, name: &'static str) -> Result<Option<T>, Miss> {
    values(query, name).find(|value| !value.is_empty()).map(|value| parsed(name, value)).transpose()
}

/// A parameter that may come any number of times.
pub fn repeated<T: Captured>(query: &str, name: &'static str) -> Result<Vec<T>, Miss> {
    values(query, name).map(|value| parsed(name, value)).collect()
}

fn parsed<T: Captured>(name: &'static str, value: &str) -> Result<T, Miss> {
    let is_bool = TypeId::of::<T>() == TypeId::of::<bool>();
    let value = if is_bool { checkbox(value) } else { value };
    decoded(name, "query parameter", form_decoded(value))
}

/// The values of `name`, still encoded.
fn values<'q>(query: &'q str, name: &'static str) -> impl Iterator<Item = &'q str> {
    let mut rest = query;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let (pair, others) = split(rest, b'&');
            rest = others;
            let (key, value) = split(pair, b'=');
            if !pair.is_empty() && (key == name || form_decoded(key).is_some_and(|key| key == name)) {
                return Some(value);
            }
        }
        None
    })
}

/// What stands before the first such byte and behind it. By bytes: the search for a character takes 100 instructions.
fn split(text: &str, at: u8) -> (&str, &str) {
    let found = text.bytes().position(|byte| byte == at);
    found.map_or((text, ""), |found| (&text[..found], &text[found + 1..]))
}
