//! A chunked body has one reading, and so has what follows it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weftwork_fuzz::{TIGHT, every_way, all_parsers_agree};
use weftwork_wire::Limits;

const HEAD: &[u8] = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";

fuzz_target!(|bytes: &[u8]| {
    let bytes = [HEAD, bytes].concat();
    for limits in [Limits::default(), TIGHT] {
        all_parsers_agree(&bytes, &every_way(&bytes, &limits));
    }
});
