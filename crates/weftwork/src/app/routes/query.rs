//! Reads the query parameters of a route.

use std::any::TypeId;

use super::match_error::MatchError;
use super::path::{Captured, decoded};
use crate::message::{checkbox, form_decoded};

/// Reads a required parameter. The first one with that name counts.
pub fn required<T: Captured>(query: &str, name: &'static str) -> Result<T, MatchError> {
    match values(query, name).next() {
        Some(value) => parsed(name, value),
        None => Err(MatchError::invalid_param(name, "query parameter", "is missing")),
    }
}

/// Reads an optional parameter. A parameter without a value counts as missing, because forms send empty inputs
/// like that. If there are several, the first one with a value counts.
pub fn optional<T: Captured>(query: &str, name: &'static str) -> Result<Option<T>, MatchError> {
    values(query, name).find(|value| !value.is_empty()).map(|value| parsed(name, value)).transpose()
}

/// Reads a parameter that may occur any number of times.
pub fn repeated<T: Captured>(query: &str, name: &'static str) -> Result<Vec<T>, MatchError> {
    values(query, name).map(|value| parsed(name, value)).collect()
}

fn parsed<T: Captured>(name: &'static str, value: &str) -> Result<T, MatchError> {
    let is_bool = TypeId::of::<T>() == TypeId::of::<bool>();
    let value = if is_bool { checkbox(value) } else { value };
    decoded(name, "query parameter", form_decoded(value))
}

/// Returns the values of `name`, still encoded.
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

/// Splits `text` at the first byte `at`. The search is by bytes, because a search for a character takes 100
/// instructions.
fn split(text: &str, at: u8) -> (&str, &str) {
    let found = text.bytes().position(|byte| byte == at);
    found.map_or((text, ""), |found| (&text[..found], &text[found + 1..]))
}
