//! A whole connection has one reading. Pipelined requests start and end where the reference says. Handlers are called
//! for these requests and for no others, no matter how the bytes arrive.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weftwork_fuzz::{every_way, all_parsers_agree, served};
use weftwork_wire::Limits;

fuzz_target!(|bytes: &[u8]| {
    let transcript = every_way(bytes, &Limits::default());
    all_parsers_agree(bytes, &transcript);
    for pair in transcript.requests.windows(2) {
        assert_eq!(pair[0].end, Some(pair[1].at), "no byte between two requests");
    }
    served::as_read(bytes, &transcript);
});
