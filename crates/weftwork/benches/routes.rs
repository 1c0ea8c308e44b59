//! Measures the time to find one of a hundred routes, with the derive and with matchit in one run.
//!
//! `cargo bench -p weftwork --bench routes`. matchit finds a value and the text of its captures, in a tree that
//! has only the routes of GET. `search` does the same and also matches the method. `parse` makes the value of
//! the enum.

#[path = "../tests/support/hundred.rs"]
mod hundred;

use std::hint::black_box;
use std::time::Instant;

use hundred::Hundred;
use weftwork::MethodFilter;
use weftwork::prelude::*;

const ROUNDS: usize = 7;
const CALLS: u32 = 400_000;

const PATHS: [&str; 10] = [
    "/",
    "/health",
    "/favicon.ico",
    "/users",
    "/users/7",
    "/products/4711",
    "/devices/123/notes",
    "/reviews/123/notes/45",
    "/nothing",
    "/users/7/nothing",
];

fn main() {
    let mut tree = matchit::Router::new();
    for (number, route) in Hundred::ROUTES.iter().enumerate() {
        if route.methods.first() == Method::GET {
            let path = route.pattern.split('?').next().unwrap_or_default();
            tree.insert(path, number).expect("the routes of the enum do not overlap");
        }
    }
    println!("{:>8} {:>8} {:>8}   ns a path, the best of {ROUNDS} rounds", "search", "matchit", "parse");
    let mut sums = [0.0; 3];
    for path in PATHS {
        let found = [
            best(|| Hundred::blocking_of(MethodFilter::GET, black_box(path.as_bytes()))),
            best(|| tree.at(black_box(path))),
            best(|| Hundred::parse(MethodFilter::GET, black_box(path.as_bytes()), "")),
        ];
        println!("{:8.1} {:8.1} {:8.1}   {path}", found[0], found[1], found[2]);
        for (sum, ns) in sums.iter_mut().zip(found) {
            *sum += ns / PATHS.len() as f64;
        }
    }
    println!("{:8.1} {:8.1} {:8.1}   mean", sums[0], sums[1], sums[2]);
}

/// Returns the nanoseconds of a call.
fn best<R>(call: impl Fn() -> R) -> f64 {
    let round = || {
        let begun = Instant::now();
        for _ in 0..CALLS {
            black_box(call());
        }
        begun.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
}
