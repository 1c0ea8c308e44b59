//! The dynamic table: sizes, evictions, and what it holds.

use super::*;

fn insert(name: &str, value: &str) -> Vec<u8> {
    let mut block = vec![0x40];
    for text in [name, value] {
        integer::write(0, 7, text.len(), &mut block);
        block.extend_from_slice(text.as_bytes());
    }
    block
}

fn size(size: usize) -> Vec<u8> {
    let mut block = Vec::new();
    integer::write(0x20, 5, size, &mut block);
    block
}

#[track_caller]
fn run(decoder: &mut Decoder, parts: &[Vec<u8>]) -> Result<usize, HpackFault> {
    decode(decoder, &parts.concat()).map(|fields| fields.len())
}

#[test]
fn rfc7541_4_3_a_smaller_size_evicts() {
    let mut decoder = Decoder::new(4_096);
    assert_eq!(run(&mut decoder, &[insert("a", "1"), insert("b", "2"), insert("c", "3")]), Ok(3));
    assert_eq!(run(&mut decoder, &[size(2 * 34)]), Ok(0));
    assert_eq!(entries(&decoder), texts(&[("c", "3"), ("b", "2")]));
    assert_eq!(run(&mut decoder, &[size(2 * 34 - 1)]), Ok(0));
    assert_eq!(entries(&decoder), texts(&[("c", "3")]));
    assert_eq!(run(&mut decoder, &[size(0), size(4_096)]), Ok(0));
    assert_eq!(entries(&decoder), []);
    assert_eq!(run(&mut decoder, &[insert("d", "4"), vec![0xbe]]), Ok(2));
}

#[test]
fn rfc7541_6_3_sizes_above_the_announced_one_are_faults() {
    for announced in [0, 100, 4_096, 65_535] {
        let mut decoder = Decoder::new(announced);
        assert_eq!(run(&mut decoder, &[size(announced.into())]), Ok(0));
        let fault = run(&mut decoder, &[size(usize::from(announced) + 1)]);
        assert_eq!(fault, Err(HpackFault::TableSizeTooLarge));
    }
    let fault = run(&mut Decoder::new(4_096), &[size(u32::MAX as usize)]);
    assert_eq!(fault, Err(HpackFault::TableSizeTooLarge));
}

#[test]
fn rfc7541_4_2_sizes_stand_before_the_first_field() {
    let misplaced = Err(HpackFault::TableSizeMisplaced);
    assert_eq!(run(&mut Decoder::new(4_096), &[vec![0x82], size(100)]), misplaced);
    assert_eq!(run(&mut Decoder::new(4_096), &[insert("a", "b"), size(4_096)]), misplaced);
    assert_eq!(run(&mut Decoder::new(4_096), &[size(0), vec![0x82], size(0)]), misplaced);
    assert_eq!(run(&mut Decoder::new(4_096), &[size(0), size(1), vec![0x82]]), Ok(1));
    assert_eq!(run(&mut Decoder::new(4_096), &[size(0), size(1), size(2)]), misplaced);
}

#[test]
fn rfc9113_6_5_2_a_larger_table_needs_the_peer_to_say_so() {
    let mut decoder = Decoder::new(8_192);
    let long = "v".repeat(3_000);
    assert_eq!(run(&mut decoder, &[insert("a", &long), insert("b", &long)]), Ok(2));
    assert_eq!(entries(&decoder).len(), 1);
    assert_eq!(run(&mut decoder, &[size(8_192), insert("c", &long)]), Ok(1));
    assert_eq!(entries(&decoder).len(), 2);
}

#[test]
fn rfc7541_4_4_an_entry_may_be_as_large_as_the_table() {
    let mut decoder = Decoder::new(100);
    assert_eq!(run(&mut decoder, &[insert("a", "1"), insert("k", &"v".repeat(67))]), Ok(2));
    assert_eq!(entries(&decoder), texts(&[("k", &"v".repeat(67))]));
    // One byte more empties the table, and is no fault.
    assert_eq!(run(&mut decoder, &[insert("k", &"v".repeat(68))]), Ok(1));
    assert_eq!(entries(&decoder), []);
    assert_eq!(run(&mut decoder, &[vec![0xbe]]), Err(HpackFault::IndexUnknown));
}

#[test]
fn rfc7541_4_4_the_name_may_be_that_of_an_evicted_entry() {
    let mut decoder = Decoder::new(100);
    assert_eq!(run(&mut decoder, &[insert("evicted", "1")]), Ok(1));
    let value = "v".repeat(61);
    let block = [vec![0x7e, 61], value.clone().into_bytes()].concat();
    assert_eq!(decode(&mut decoder, &block), Ok(texts(&[("evicted", &value)])));
    assert_eq!(entries(&decoder), texts(&[("evicted", &value)]));
}

#[test]
fn rfc7541_2_3_2_duplicates_are_kept() {
    let mut decoder = Decoder::new(4_096);
    assert_eq!(run(&mut decoder, &[insert("a", "b"), insert("a", "b")]), Ok(2));
    assert_eq!(entries(&decoder), texts(&[("a", "b"), ("a", "b")]));
}

/// Many laps through the table, with entries of all lengths, against a plain queue.
#[test]
fn the_table_is_a_queue() {
    for bytes_max in [0u16, 32, 33, 100, 257, 4_096, 65_535] {
        let mut decoder = Decoder::new(bytes_max);
        let most = usize::from(bytes_max);
        assert_eq!(run(&mut decoder, &[size(most)]), Ok(0));
        let (mut queue, mut queued, mut random) = (Texts::new(), 0, 7u32);
        for round in 0..900u32 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let len = (random >> 16) as usize % [40, 400, 5_000][round as usize / 100 % 3];
            let (name, value) = (format!("n{round}"), "v".repeat(len));
            assert_eq!(run(&mut decoder, &[insert(&name, &value)]), Ok(1));
            queued += name.len() + len + 32;
            queue.insert(0, (name, value));
            while queued > most {
                let (name, value) = queue.pop().unwrap();
                queued -= name.len() + value.len() + 32;
            }
            if round % 16 == 0 {
                assert_eq!(entries(&decoder), queue);
            }
            assert_eq!(decoder.table.size(), queued);
            assert!(decoder.table.bytes_held() <= most + most / 2 + 64);
        }
    }
}

#[test]
fn memory_comes_with_use() {
    let mut decoder = Decoder::new(4_096);
    assert_eq!(decoder.table.bytes_held(), 0);
    assert_eq!(run(&mut decoder, &[vec![0x82, 0x84]]), Ok(2));
    assert_eq!(decoder.table.bytes_held(), 0);
    assert_eq!(run(&mut decoder, &[insert("user-agent", "a client")]), Ok(1));
    assert!(decoder.table.bytes_held() <= 320);
}
