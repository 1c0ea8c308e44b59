//! The thread against an authority in memory, whose answers and faults the tests choose.

mod fake_ca;
mod listener_tests;
mod pebble;
mod worker_tests;
