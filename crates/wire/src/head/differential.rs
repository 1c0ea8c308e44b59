//! Compares our parser with `httparse`: it must accept each head that we accept, and read the same.

use super::{Field, Head, HeadEvent, Scan, Span, Version, read};
use crate::Limits;
use crate::testing::text;

const SEEDS: &[&str] = &[
    "GET /health HTTP/1.1\r\nHost: 127.0.0.1:9311\r\n\r\n",
    "POST /a%20b?c=d%41 HTTP/1.1\r\nhost: [::1]:80\r\nContent-Length: 5\r\nUser-Agent: a (b; c)\r\n\r\n",
    "\r\nOPTIONS * HTTP/1.0\r\nHost:\t a \t\r\nX: a\tb \t\r\nEmpty:\r\n\r\n",
    "CONNECT a:443 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n",
    "BREW-COFFEE http://a.b:80/c?d HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
];

const PIECES: &[&[u8]] = &[
    b"\r\n",
    b"\r",
    b"\n",
    b" ",
    b"\t",
    b":",
    b"%",
    b"\0",
    b"\x7f",
    b"\x80",
    b"/",
    b"?",
    b"#",
    b"*",
    b"@",
    b",",
    b"[",
    b"HTTP/1.1",
    b"\r\n\r\n",
    b"Host: b\r\n",
    b"A: b\r\n",
    b"0123456789",
    b"abcdefghijklmnop",
];

/// Xorshift: the same heads in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    /// A seed with up to three bytes or pieces set, put in, or taken away.
    fn head(&mut self) -> Vec<u8> {
        let mut head = SEEDS[self.below(SEEDS.len())].as_bytes().to_vec();
        for _ in 0..self.below(4) {
            let at = self.below(head.len());
            let end = head.len().min(at + self.below(6));
            match self.below(4) {
                0 => head[at] = self.below(256) as u8,
                1 => drop(head.splice(at..at, PIECES[self.below(PIECES.len())].iter().copied())),
                2 => drop(head.splice(at..end, PIECES[self.below(PIECES.len())].iter().copied())),
                _ => drop(head.drain(at..end)),
            }
        }
        head
    }
}

/// True if we accept `bytes`; then `httparse` does, with the same parts.
fn check(bytes: &[u8]) -> bool {
    let mut head = Head::default();
    let Ok(HeadEvent::Head(used)) = read(&mut Scan::default(), bytes, &Limits::default(), &mut head) else {
        return false;
    };
    let mut slots = [httparse::EMPTY_HEADER; 100];
    let mut other = httparse::Request::new(&mut slots);
    let shown = text(bytes);
    assert_eq!(other.parse(bytes), Ok(httparse::Status::Complete(used)), "{shown:?}");
    let of = |span: Span| span.of(bytes);
    assert_eq!(other.method, Some(head.method.as_str()), "{shown:?}");
    assert_eq!(other.path.map(str::as_bytes), Some(of(head.target)), "{shown:?}");
    assert_eq!(other.version, Some(u8::from(head.version == Version::Http11)), "{shown:?}");
    let ours: Vec<_> = head.fields.iter().map(|&Field { name, value }| (of(name), of(value))).collect();
    let others: Vec<_> = other.headers.iter().map(|field| (field.name.as_bytes(), field.value)).collect();
    assert_eq!(ours, others, "{shown:?}");
    true
}

/// Miri takes a thousand times as long for each.
const HEADS: usize = if cfg!(miri) { 500 } else { 50_000 };

#[test]
fn httparse_reads_the_same() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let accepted = (0..HEADS).filter(|_| check(&random.head())).count();
    assert!(accepted > HEADS / 10, "mutations leave {accepted} heads to compare");
}
