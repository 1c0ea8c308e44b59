//! A second decoder of field blocks, after RFC 7541. Simple and slow: strings of bits, and a list for the table.

use crate::huffman::CODES;

/// A name and a value.
pub type Field = (Vec<u8>, Vec<u8>);

/// The static table, in the order of appendix A.
#[rustfmt::skip]
const STATIC: [(&str, &str); 61] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
    (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""), ("accept", ""),
    ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""), ("cache-control", ""),
    ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""), ("date", ""), ("etag", ""),
    ("expect", ""), ("expires", ""), ("from", ""), ("host", ""), ("if-match", ""), ("if-modified-since", ""),
    ("if-none-match", ""), ("if-range", ""), ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""),
    ("location", ""), ("max-forwards", ""), ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""),
    ("referer", ""), ("refresh", ""), ("retry-after", ""), ("server", ""), ("set-cookie", ""),
    ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""), ("via", ""),
    ("www-authenticate", ""),
];

/// One direction of a connection.
pub struct Reference {
    /// The newest first.
    table: Vec<Field>,
    size: usize,
    announced: usize,
}

impl Reference {
    /// `announced` is the largest size that the table may have.
    pub fn new(announced: usize) -> Reference {
        Reference { table: Vec::new(), size: announced.min(4_096), announced }
    }

    /// Decodes a block to its end, whatever it holds. None: a rule was broken.
    pub fn decode(&mut self, mut block: &[u8]) -> Option<Vec<Field>> {
        let (mut fields, mut sizes) = (Vec::new(), 0);
        while let Some(&first) = block.first() {
            if first & 0x80 != 0 {
                let index = integer(&mut block, 7)?;
                fields.push(self.entry(index)?);
            } else if first & 0xe0 == 0x20 {
                sizes += 1;
                let size = integer(&mut block, 5)?;
                if sizes > 2 || !fields.is_empty() || size > self.announced {
                    return None;
                }
                self.size = size;
                self.evict();
            } else {
                let is_indexed = first & 0x40 != 0;
                let index = integer(&mut block, if is_indexed { 6 } else { 4 })?;
                let name = if index == 0 { string(&mut block)? } else { self.entry(index)?.0 };
                let field = (name, string(&mut block)?);
                fields.push(field.clone());
                if is_indexed {
                    self.table.insert(0, field);
                    self.evict();
                }
            }
        }
        Some(fields)
    }

    fn entry(&self, index: usize) -> Option<Field> {
        let index = index.checked_sub(1)?;
        match STATIC.get(index) {
            Some((name, value)) => Some((name.as_bytes().to_vec(), value.as_bytes().to_vec())),
            None => self.table.get(index - STATIC.len()).cloned(),
        }
    }

    fn evict(&mut self) {
        while self.table.iter().map(size).sum::<usize>() > self.size {
            self.table.pop();
        }
    }
}

/// What a field counts, in the table and against the limit.
pub fn size(field: &Field) -> usize {
    field.0.len() + field.1.len() + 32
}

/// At most five bytes after the prefix, and at most 32 bits.
fn integer(block: &mut &[u8], prefix_bits: u32) -> Option<usize> {
    let prefix_max = (1u64 << prefix_bits) - 1;
    let mut next = || {
        let (&first, rest) = block.split_first()?;
        *block = rest;
        Some(u64::from(first))
    };
    let mut value = next()? & prefix_max;
    if value == prefix_max {
        for shift in [0, 7, 14, 21, 28] {
            let byte = next()?;
            value += (byte & 0x7f) << shift;
            if byte < 0x80 {
                return (value <= u64::from(u32::MAX)).then_some(value as usize);
            }
        }
        return None;
    }
    Some(value as usize)
}

fn string(block: &mut &[u8]) -> Option<Vec<u8>> {
    let is_huffman = block.first()? & 0x80 != 0;
    let len = integer(block, 7)?;
    let (bytes, rest) = block.split_at_checked(len)?;
    *block = rest;
    if is_huffman { huffman(bytes) } else { Some(bytes.to_vec()) }
}

/// Bit by bit.
fn huffman(bytes: &[u8]) -> Option<Vec<u8>> {
    let (mut text, mut code, mut len) = (Vec::new(), 0u32, 0u8);
    for bit in bytes.iter().flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1)) {
        (code, len) = (code << 1 | u32::from(bit), len + 1);
        match CODES.iter().position(|&other| other == (code, len)) {
            Some(256) => return None,
            Some(byte) => {
                text.push(byte as u8);
                (code, len) = (0, 0);
            }
            None if len == 30 => return None,
            None => {}
        }
    }
    // The rest is padding: less than a byte, and all ones.
    (len < 8 && code == (1 << len) - 1).then_some(text)
}
