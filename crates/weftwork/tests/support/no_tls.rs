//! Stands for `tls.rs` in builds without TLS.

use std::convert::Infallible;
use std::io::{self, Read, Write};

use weftwork::{Proxy, Server};

pub(crate) fn is_on() -> bool {
    assert!(
        std::env::var_os("WEFT_TEST_TLS").is_none(),
        "WEFT_TEST_TLS needs the feature `tls` or `tls-ring`"
    );
    false
}

pub(crate) fn secure(server: Server) -> Server {
    server
}

pub(crate) fn proxy_to(_: &str) -> Option<Proxy> {
    None
}

/// Stands for a session. No value of this type exists.
#[derive(Clone)]
pub(crate) struct TlsSession(Infallible);

impl TlsSession {
    pub(crate) fn new() -> TlsSession {
        unreachable!("no server speaks TLS")
    }

    pub(crate) fn begin_behind(&self, _: &[u8]) {
        match self.0 {}
    }

    pub(crate) fn write_ahead<S: Read + Write>(&self, _: &[u8], _: impl FnOnce() -> S) {
        match self.0 {}
    }

    pub(crate) fn has_begun(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn write<S: Read + Write>(&self, _: &[u8], _: impl Fn() -> S, _: &mut S) -> io::Result<()> {
        match self.0 {}
    }

    pub(crate) fn read<S: Read + Write>(
        &self,
        _: &mut [u8],
        _: impl Fn() -> S,
        _: &mut S,
    ) -> io::Result<usize> {
        match self.0 {}
    }

    pub(crate) fn close<S: Read + Write>(&self, _: impl Fn() -> S, _: &mut S) {
        match self.0 {}
    }
}
