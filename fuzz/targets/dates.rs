//! A date names one second in each of its forms.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weftwork_wire::Date;
use weftwork_wire::fields::date;

fuzz_target!(|bytes: &[u8]| {
    let Some(time) = date(bytes) else { return };
    let written = Date::at(time);
    assert_eq!(date(written.as_bytes()), Some(time), "what we write, we read");
    let trimmed = bytes.trim_ascii();
    if trimmed.len() == written.as_bytes().len() {
        assert!(trimmed.ends_with(b" GMT"));
        // A leap second counts as the second before.
        let spelled = String::from_utf8_lossy(trimmed).replacen(":60 ", ":59 ", 1);
        assert_eq!(
            spelled.as_bytes(),
            written.as_bytes(),
            "the form that we write has one spelling for each second"
        );
    }
});
