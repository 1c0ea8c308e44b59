//! Limits on what a peer may send before its message is complete.

/// Bounds on what a peer may send. A limit bounds every byte that is held before a handler runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum bytes of the request line, without its CRLF. When exceeded: 414. Default: 8,192, because RFC 9112 §3
    /// asks for at least 8,000.
    pub request_line_bytes_max: u32,
    /// Maximum bytes of the whole head, from the first byte to the final CRLF CRLF, and of the trailers of a body.
    /// When exceeded: 431. Default: 32 KiB, twice what common clients with large cookies send.
    pub head_bytes_max: u32,
    /// Maximum number of field lines of a head, and of the trailers of a body. When exceeded: 431. Default: 100, as
    /// in most servers. Browsers send about 20.
    pub fields_max: u32,
    /// Maximum bytes of all chunk extensions of a body. When exceeded: 413. Default: 4 KiB. No client is known to use
    /// extensions, and without a limit they carry bytes that no body limit counts (RFC 9112 §7.1.1).
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
