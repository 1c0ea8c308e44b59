//! Heads are counted however they are split.

use super::count_heads;

fn check(input: &[u8], heads: usize) {
    let mut matched = 0;
    assert_eq!(count_heads(input, &mut matched), heads, "whole");
    for size in 1..=input.len() {
        let mut matched = 0;
        let counted: usize = input.chunks(size).map(|chunk| count_heads(chunk, &mut matched)).sum();
        assert_eq!(counted, heads, "in chunks of {size}");
    }
}

#[test]
fn heads_are_counted_whole_and_split() {
    check(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", 1);
    check(b"GET / HTTP/1.1\r\nhost: a\r\n\r\nGET / HTTP/1.1\r\n\r\n", 2);
    check(b"GET / HTTP/1.1\r\nhost: a\r\n", 0);
    check(b"GET / HTTP/1.1\r\n\r\nGET /x HT", 1);
}
