//! The frames of HTTP/2 have one reading, at both ends, and HTTP/1.1 accepts the same requests.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| weftwork_fuzz::frames::every_way(bytes));
