//! A Range field has one reading, and never selects more bytes than there are.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weftwork_wire::fields::{ByteRange, RANGES_MAX, Ranges, ranges};

/// Returns a flag for each byte, which is true if another reader finds the byte requested. Returns None if the field
/// must be ignored.
fn requested(value: &[u8], length: usize) -> Option<Vec<bool>> {
    let text = value.get(..6).filter(|unit| unit.eq_ignore_ascii_case(b"bytes=")).map(|_| &value[6..])?;
    let mut requested = vec![false; length];
    let specs = text.split(|byte| *byte == b',').map(|spec| {
        let from = spec.iter().position(|byte| !b" \t".contains(byte)).unwrap_or(spec.len());
        let to = spec.iter().rposition(|byte| !b" \t".contains(byte)).map_or(from, |last| last + 1);
        &spec[from..to]
    });
    let specs: Vec<&[u8]> = specs.filter(|spec| !spec.is_empty()).collect();
    if specs.is_empty() || specs.len() > RANGES_MAX || length == 0 {
        return None;
    }
    for spec in specs {
        let mut ends = spec.splitn(2, |byte| *byte == b'-');
        let (first, last) = (number(ends.next()?)?, number(ends.next()?)?);
        let (first, last) = match (first, last) {
            (None, None) => return None,
            (None, Some(suffix)) => ((length as u128).saturating_sub(suffix), u128::MAX),
            (Some(first), None) => (first, u128::MAX),
            (Some(first), Some(last)) if last < first => return None,
            (Some(first), Some(last)) => (first, last),
        };
        (0..length).filter(|at| (first..=last).contains(&(*at as u128))).for_each(|at| requested[at] = true);
    }
    Some(requested)
}

/// Returns Some(None) if there are no digits. All numbers past the length are equal.
fn number(digits: &[u8]) -> Option<Option<u128>> {
    if digits.is_empty() {
        return Some(None);
    }
    let mut value = 0u128;
    for digit in digits {
        let digit = char::from(*digit).to_digit(10)?;
        value = (value * 10 + u128::from(digit)).min(u128::from(u64::MAX));
    }
    Some(Some(value))
}

fn check(value: &[u8], length: usize) {
    let read = ranges(value, length as u64);
    match (requested(value, length), &read) {
        (None, Ranges::Whole) => {}
        (Some(requested), Ranges::Unsatisfiable) => assert!(!requested.contains(&true)),
        (Some(requested), Ranges::Parts(parts)) => {
            let sent = |at: usize| parts.iter().any(|part| (part.first..=part.last).contains(&(at as u64)));
            assert!((0..length).all(|at| !requested[at] || sent(at)), "all that is asked for is sent");
            assert!(requested.contains(&true) && parts.len() <= RANGES_MAX);
            assert!(parts.iter().all(|part| part.first <= part.last && part.last < length as u64));
            assert!(parts.iter().all(|part| requested[part.first as usize] && requested[part.last as usize]));
            let total: u64 = parts.iter().map(|part| part.count()).sum();
            assert_eq!(total, (0..length).filter(|at| sent(*at)).count() as u64, "nothing is sent twice");
        }
        (requested, read) => panic!("{read:?}, but another reader says {:?}", requested.is_some()),
    }
}

/// The order of the ranges changes the order of the parts, and nothing else.
fn same_backwards(value: &[u8]) {
    let Some((unit, set)) = value.split_at_checked(6) else { return };
    let mut specs: Vec<&[u8]> = set.split(|byte| *byte == b',').collect();
    specs.reverse();
    let sorted = |value: &[u8]| match ranges(value, u64::MAX) {
        Ranges::Parts(mut parts) => {
            parts.sort_by_key(|part: &ByteRange| part.first);
            Ranges::Parts(parts)
        }
        other => other,
    };
    assert_eq!(sorted(&[unit, &specs.join(b",".as_slice())].concat()), sorted(value));
}

// The first two bytes are the length, the others the value.
fuzz_target!(|bytes: &[u8]| {
    let Some((length, value)) = bytes.split_first_chunk() else { return };
    check(value, usize::from(u16::from_le_bytes(*length)) % 2048);
    same_backwards(value);
});
