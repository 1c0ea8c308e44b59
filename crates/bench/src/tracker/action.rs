//! How does github-action-benchmark read it? As a list of names, units and values: `customBiggerIsBetter` for
//! the ratios, `customSmallerIsBetter` for the absolute figures.

use serde_json::{Value, json};

use super::{Entry, Track};
use crate::failure::{Failure, Result};

pub(super) fn bigger(entry: &Entry) -> Result<String> {
    let mut list = Vec::new();
    for (name, track) in sound(entry) {
        for (what, share) in [("floor", track.of_floor), ("nginx", track.of_nginx)] {
            list.extend(share.map(|share| one(&format!("{name}, of {what}"), "ratio", share, entry)));
        }
    }
    text(&list)
}

pub(super) fn smaller(entry: &Entry) -> Result<String> {
    let mut list = Vec::new();
    for (name, track) in sound(entry) {
        list.push(one(&format!("{name}, CPU"), "us/request", track.cpu_us_per_request, entry));
        list.push(one(&format!("{name}, p99"), "ms", track.p99_ms, entry));
    }
    text(&list)
}

/// What crashed or answered wrong would look cheap.
fn sound(entry: &Entry) -> impl Iterator<Item = (&String, &Track)> {
    entry.figures.iter().filter(|(_, track)| !track.is_broken())
}

fn one(name: &str, unit: &str, value: f64, entry: &Entry) -> Value {
    json!({ "name": name, "unit": unit, "value": value, "extra": entry.cpu })
}

fn text(list: &[Value]) -> Result<String> {
    let text = serde_json::to_string_pretty(list).map_err(|error| Failure::step("JSON", error))?;
    Ok(text + "\n")
}
