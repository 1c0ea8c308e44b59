//! A compressed WebSocket message (RFC 7692) means the same, however its frames and reads are cut, and is bounded.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| weftwork_fuzz::inflated::every_way(bytes));
