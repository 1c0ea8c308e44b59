//! Small programs, one idea each: see the `examples` folder of this crate.
