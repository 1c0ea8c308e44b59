//! Measures weft beside its floors and peers.
fn main() {}
