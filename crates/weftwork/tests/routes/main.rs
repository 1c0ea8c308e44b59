//! Tests that `#[derive(Routes)]` keeps its guarantees: at run time, in both directions, and in what it
//! refuses.
#![cfg(feature = "macros")]

mod answers;
mod hundred;
mod names;
mod patterns;
mod round_trip;
mod ui;
