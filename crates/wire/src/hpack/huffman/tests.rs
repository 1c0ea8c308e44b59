//! The code, whole strings, and paddings. A second decoder works on bits as text.

use super::code::code_of;
use super::*;

/// Bits as text.
fn code(symbol: usize) -> String {
    let (code, len) = code_of(symbol);
    format!("{code:0width$b}", width = len as usize)
}

/// Bytes of bits as text, which are as many as a number of bytes has.
fn bytes(bits: &str) -> Vec<u8> {
    assert!(bits.len().is_multiple_of(8));
    (0..bits.len()).step_by(8).map(|at| u8::from_str_radix(&bits[at..at + 8], 2).unwrap()).collect()
}

fn bits(text: &[u8]) -> String {
    text.iter().map(|&byte| code(byte.into())).collect()
}

fn encode(text: &[u8]) -> Vec<u8> {
    let mut bits = bits(text);
    bits.extend(std::iter::repeat_n('1', bits.len().next_multiple_of(8) - bits.len()));
    bytes(&bits)
}

fn decoded(string: &[u8]) -> Result<Vec<u8>, HpackFault> {
    let mut out = vec![0; decoded_len_max(string.len())];
    let result = decode(string, &mut out);
    assert_eq!(decoded_len(string), result);
    out.truncate(result?);
    Ok(out)
}

#[test]
fn rfc7541_b_some_codes() {
    for (symbol, want) in [
        (usize::from(b'0'), "00000"),
        (b' '.into(), "010100"),
        (b'a'.into(), "00011"),
        (b'z'.into(), "1111011"),
        (b'&'.into(), "11111000"),
        (b'!'.into(), "1111111000"),
        (0, "1111111111000"),
        (255, "11111111111111111111101110"),
        (22, "111111111111111111111111111110"),
        (256, "111111111111111111111111111111"),
    ] {
        assert_eq!(code(symbol), want);
    }
}

#[test]
fn rfc7541_b_every_byte_in_every_place() {
    for byte in 0..=255 {
        for len in 1..20 {
            let mut text = vec![byte; len];
            assert_eq!(decoded(&encode(&text)), Ok(text.clone()));
            // Behind codes of five bits: at each place in a byte.
            text[..len - 1].fill(b'e');
            assert_eq!(decoded(&encode(&text)), Ok(text.clone()));
            text.push(b'/');
            assert_eq!(decoded(&encode(&text)), Ok(text));
        }
    }
    let all: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
    assert_eq!(decoded(&encode(&all)), Ok(all));
}

#[test]
fn pairs_of_bytes() {
    for pair in (0..=u16::MAX).step_by(7) {
        let text = pair.to_be_bytes();
        assert_eq!(decoded(&encode(&text)), Ok(text.to_vec()));
    }
}

#[test]
fn nothing_is_nothing() {
    assert_eq!(decoded(b""), Ok(vec![]));
}

#[test]
fn the_longest_texts_fit() {
    for len in 0..100 {
        assert_eq!(decoded(&encode(&vec![b'0'; len])), Ok(vec![b'0'; len]));
    }
    assert_eq!(decoded(&[0; 5]), Ok(vec![b'0'; 8]));
}

#[test]
fn rfc7541_5_2_padding_is_up_to_seven_ones() {
    // Every padding of every length, behind texts that end anywhere in a byte.
    for text in [&b""[..], b"a", b"aa", b"ab", b"aaaa", b"ZZ", b"!", b"\0", b"aaaaaaaaaaaaaaaaaaaaaaaaa"] {
        let whole = bits(text);
        let room = whole.len().next_multiple_of(8) - whole.len();
        for padding in 0..1u32 << room {
            let padded = if room == 0 { whole.clone() } else { format!("{whole}{padding:0room$b}") };
            let is_ones = padding == (1 << room) - 1;
            // Bits that are a code of their own are no padding.
            let more = (0..=255u8).find(|&byte| padded[whole.len()..].starts_with(&code(byte.into())));
            match more {
                None if is_ones => assert_eq!(decoded(&bytes(&padded)), Ok(text.to_vec())),
                None => assert_eq!(decoded(&bytes(&padded)), Err(HpackFault::HuffmanPaddingInvalid)),
                Some(_) => assert_ne!(decoded(&bytes(&padded)), Ok(text.to_vec())),
            }
        }
        // A byte of ones more.
        for more in 1..3 {
            let padded = [encode(text), vec![0xff; more]].concat();
            assert_eq!(decoded(&padded), Err(HpackFault::HuffmanPaddingInvalid));
        }
    }
}

#[test]
fn rfc7541_5_2_eos_is_a_fault() {
    for text in [&b""[..], b"a", b"aaaaa", b"aaaaaaaaaaaaaaaaaaaaaaaaaaa"] {
        for after in ["", "0", "00011", "111111111111111111"] {
            let mut bits = bits(text) + &code(256) + after;
            bits.extend(std::iter::repeat_n('1', bits.len().next_multiple_of(8) - bits.len()));
            assert_eq!(decoded(&bytes(&bits)), Err(HpackFault::HuffmanEos), "{text:?} {after}");
        }
    }
}

/// Another way to decode: code by code, from bits as text.
fn plainly(string: &[u8]) -> Result<Vec<u8>, HpackFault> {
    let bits: String = string.iter().map(|byte| format!("{byte:08b}")).collect();
    let (mut rest, mut text) = (&bits[..], Vec::new());
    let codes: Vec<String> = (0..=256).map(code).collect();
    while !rest.is_empty() {
        match codes.iter().position(|code| rest.starts_with(code)) {
            Some(256) => return Err(HpackFault::HuffmanEos),
            Some(symbol) => {
                text.push(symbol as u8);
                rest = &rest[codes[symbol].len()..];
            }
            None if rest.len() < 8 && !rest.contains('0') => break,
            None => return Err(HpackFault::HuffmanPaddingInvalid),
        }
    }
    Ok(text)
}

#[test]
fn strings_of_any_bits() {
    for string in (0..=u16::MAX).step_by(17) {
        let string = string.to_be_bytes();
        assert_eq!(decoded(&string), plainly(&string));
    }
    let mut random = 1u64;
    for round in 0..1_000usize {
        let string: Vec<u8> = (0..round % 40)
            .map(|_| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Long codes are rare among random bits: half of the bytes are ones.
                if round % 2 == 0 && random >> 63 == 1 { 0xff } else { (random >> 40) as u8 }
            })
            .collect();
        assert_eq!(decoded(&string), plainly(&string), "{string:x?}");
    }
}
