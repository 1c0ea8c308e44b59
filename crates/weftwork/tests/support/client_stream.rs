//! Makes a client a stream of bytes, for clients of other protocols.

use std::io::{self, Read, Write};

use super::client::Client;

pub(crate) struct ClientStream(pub(crate) Client);

impl Read for ClientStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read_into(into)
    }
}

impl Write for ClientStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_send(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
