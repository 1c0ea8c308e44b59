//! A second opinion: `httlib-hpack`, which encodes with a dynamic table and Huffman code, reads what we write, and
//! writes what we read.

use httlib_hpack::{Decoder as OtherDecoder, Encoder as OtherEncoder};

use super::*;

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % end
    }

    fn name(&mut self) -> Vec<u8> {
        match self.below(4) {
            0 => ENTRIES[1 + self.below(61)].name().to_vec(),
            1 => format!("x-{}", self.below(30)).into_bytes(),
            2 => b"cookie".to_vec(),
            _ => self.bytes(12),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        match self.below(4) {
            0 => ENTRIES[1 + self.below(61)].value().to_vec(),
            1 => format!("text/html; q=0.{}", self.below(10)).into_bytes(),
            2 => self.bytes(20),
            _ => vec![b'a' + self.below(26) as u8; self.below(300)],
        }
    }

    /// Any bytes.
    fn bytes(&mut self, len_max: usize) -> Vec<u8> {
        (0..self.below(len_max)).map(|_| self.below(256) as u8).collect()
    }
}

fn as_text(fields: &[(Vec<u8>, Vec<u8>)]) -> Texts {
    fields.iter().map(|(name, value)| (crate::testing::text(name), crate::testing::text(value))).collect()
}

/// A connection of 60 blocks, with sizes of the table now and then.
fn connection(random: &mut Random) {
    let (mut decoder, mut encoder) = (Decoder::new(4_096), OtherEncoder::with_dynamic_size(4_096));
    for _ in 0..60 {
        let mut block = Vec::new();
        if random.below(8) == 0 {
            encoder.update_max_dynamic_size(random.below(4_097) as u32, &mut block).unwrap();
        }
        let fields: Vec<_> = (0..random.below(20)).map(|_| (random.name(), random.value())).collect();
        for (name, value) in &fields {
            // In Huffman code or not, indexed or not, as short as possible or not.
            let flags = random.below(32) as u8;
            encoder.encode((name.clone(), value.clone(), flags), &mut block).unwrap();
        }
        assert_eq!(decode(&mut decoder, &block), Ok(as_text(&fields)));
    }
}

#[test]
fn we_read_what_another_encoder_writes() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..20 {
        connection(&mut random);
    }
}

#[test]
fn another_decoder_reads_what_we_write() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut decoder = OtherDecoder::with_dynamic_size(4_096);
    for _ in 0..500 {
        let mut fields: Vec<_> = (0..random.below(20)).map(|_| (random.name(), random.value())).collect();
        fields.retain(|(name, _)| name.is_ascii());
        let mut block = Vec::new();
        for (name, value) in &fields {
            encode_field(std::str::from_utf8(name).unwrap(), value, &mut block);
        }
        assert_eq!(decode(&mut Decoder::new(0), &block), Ok(as_text(&fields)));
        let mut read = Vec::new();
        decoder.decode(&mut block, &mut read).unwrap();
        let read: Vec<_> = read.into_iter().map(|(name, value, _)| (name, value)).collect();
        assert_eq!(read, fields);
    }
}
