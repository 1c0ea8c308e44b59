//! A head has one reading, within default limits and tight ones.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weftwork_fuzz::{TIGHT, every_way, all_parsers_agree};
use weftwork_wire::Limits;

fuzz_target!(|bytes: &[u8]| {
    for limits in [Limits::default(), TIGHT] {
        all_parsers_agree(bytes, &every_way(bytes, &limits));
    }
});
