use super::code::code_of;
use super::*;

fn encode(bytes: &[u8]) -> Vec<u8> {
    let mut bits = String::new();
    for &byte in bytes {
        let (code, len) = code_of(byte.into());
        bits += &format!("{code:0width$b}", width = len as usize);
    }
    while bits.len() % 8 != 0 {
        bits.push('1');
    }
    bits.as_bytes()
        .chunks(8)
        .map(|bits| u8::from_str_radix(std::str::from_utf8(bits).unwrap(), 2).unwrap())
        .collect()
}

fn decoded(string: &[u8]) -> Result<Vec<u8>, HpackFault> {
    let mut out = vec![0; decoded_len_max(string.len())];
    let result = decode(string, &mut out);
    assert_eq!(decoded_len(string), result);
    out.truncate(result?);
    Ok(out)
}

#[test]
fn rfc7541_b_every_byte_alone_and_between_others() {
    for byte in 0..=255 {
        for text in [vec![byte], vec![byte; 20], vec![b'a', byte, b'b', byte, byte, 0xff, 0]] {
            assert_eq!(decoded(&encode(&text)), Ok(text));
        }
    }
}
