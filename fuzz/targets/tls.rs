//! A TLS session has the same outcome for any client, however its bytes arrive.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| weftwork::fuzz_tls_session(bytes));
