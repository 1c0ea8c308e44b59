//! Lists of entity tags and of codings have the same meaning in one line and in several.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weftwork_wire::fields::{EntityTag, quality, tags};

fn tags_survive(list: &[u8]) {
    let found: Vec<EntityTag<'_>> = tags(list).collect();
    let spelt: Vec<Vec<u8>> = found
        .iter()
        .map(|tag| [if tag.weak { &b"W/\""[..] } else { b"\"" }, tag.opaque, b"\""].concat())
        .collect();
    for (tag, spelt) in found.iter().zip(&spelt) {
        assert!(list.windows(spelt.len()).any(|part| part == spelt), "a tag of the list stands in it");
        assert_eq!(EntityTag::parse(spelt).as_ref(), Some(tag));
        assert!(tag.is_weakly(tag) && tag.is_strongly(tag) != tag.weak);
    }
    let joined = spelt.join(b", ".as_slice());
    assert_eq!(tags(&joined).collect::<Vec<_>>(), found);
}

fn lines_are_one_list(list: &[u8]) {
    let lines: Vec<&[u8]> = list.split(|byte| *byte == b',').collect();
    for coding in ["br", "zstd", "gzip", "identity", "*"] {
        let wanted = quality(&[list], coding);
        assert!(wanted <= 1000);
        assert_eq!(quality(&lines, coding), wanted);
        assert_eq!(quality(&[&list.to_ascii_uppercase()], coding), wanted, "case does not matter");
    }
}

fuzz_target!(|bytes: &[u8]| {
    tags_survive(bytes);
    lines_are_one_list(bytes);
});
