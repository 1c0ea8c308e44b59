//! Does `#[derive(Routes)]` keep what it promises: at run time, there and back, and in what it refuses?
#![cfg(feature = "macros")]

mod answers;
mod hundred;
mod names;
mod patterns;
mod round_trip;
mod ui;
