//! Limits on what a peer may send before its message is complete.

/// Bounds on what a peer may send. Every byte that is held before a handler runs is bounded by one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the request line without its CRLF; past it the answer is 414. Default 8,192: RFC 9112 §3 asks
    /// for at least 8,000.
    pub request_line_bytes_max: u32,
    /// Bytes of the whole head, from the first byte to the final CRLF CRLF; past it the answer is 431. Also
    /// bounds the trailers of one body. Default 32 KiB, twice what common clients with large cookies send.
    pub head_bytes_max: u32,
    /// Field lines of a head; past it the answer is 431. Also bounds the trailers of one body. Default 100,
    /// as in most servers; browsers send about 20.
    pub fields_max: u32,
    /// Bytes of all chunk extensions of one body; past it the answer is 413. Default 4 KiB: nobody is known
    /// to use them, and without a bound they carry unlimited bytes that no body limit counts (RFC 9112
    /// §7.1.1).
    pub chunk_extension_bytes_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            request_line_bytes_max: 8 << 10,
            head_bytes_max: 32 << 10,
            fields_max: 100,
            chunk_extension_bytes_max: 4 << 10,
        }
    }
}
