//! Small programs, one idea each. See the `examples` folder of this crate.
