//! Passes sockets from a process to its replacement, over a Unix socket that is the standard input of the replacement.
//!
//! The first message has a length (4 bytes), fields that end with a zero byte, and the descriptors. Fields are the version,
//! the number of ticket keys, two for each of them, and five for each listener. The first descriptor is the standard input
//! that the replacement is to have. The replacement then says `READY`, and gets `GO`.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// Says which process waits at the standard input: its id. Only a child of that process looks at it.
pub(super) const VARIABLE: &str = "WEFTWORK_REPLACES";
/// Version of the message. Two programs with different versions cannot replace each other.
const VERSION: &str = "2";
/// Maximum number of descriptors in a message (unix(7), SCM_MAX_FD).
const DESCRIPTORS_MAX: usize = 253;
/// Maximum length of the fields.
const FIELDS_BYTES_MAX: usize = 1 << 20;

pub(super) const READY: &[u8; 1] = b"R";
pub(super) const GO: &[u8; 1] = b"G";

/// A listener of the process before, with the queues of its address.
#[derive(Debug)]
pub(super) struct Passed<F> {
    /// Number of the call of `bind` that made it.
    pub(super) call: u64,
    /// The address as the program wrote it.
    pub(super) address: String,
    /// Whether a supervisor holds the socket for good.
    pub(super) is_given: bool,
    /// Whether its file is to be removed at the end.
    pub(super) has_file: bool,
    pub(super) sockets: Vec<F>,
}

/// Keys of session tickets: the addresses of a server, and its keys as text.
pub(super) type TicketKeys = Vec<(String, String)>;

/// What a process receives: its standard input, ticket keys, and listeners.
pub(super) type Received = (OwnedFd, TicketKeys, Vec<Passed<OwnedFd>>);

pub(super) fn send(
    channel: &UnixStream,
    stdin: BorrowedFd<'_>,
    ticket_keys: TicketKeys,
    listeners: &[Passed<BorrowedFd<'_>>],
) -> io::Result<()> {
    let mut fields = vec![VERSION.to_owned(), ticket_keys.len().to_string()];
    fields.extend(ticket_keys.into_iter().flat_map(|(addresses, keys)| [addresses, keys]));
    let mut descriptors = vec![stdin];
    for Passed { call, address, is_given, has_file, sockets } in listeners {
        let numbers = [*call, u64::from(*is_given), u64::from(*has_file), sockets.len() as u64];
        fields.push(address.clone());
        fields.extend(numbers.iter().map(u64::to_string));
        descriptors.extend(sockets);
    }
    if descriptors.len() > DESCRIPTORS_MAX {
        let text = format!("{} sockets, and at most {DESCRIPTORS_MAX} can be passed", descriptors.len());
        return Err(io::Error::other(text));
    }
    let text: String = fields.iter().flat_map(|field| [field.as_str(), "\0"]).collect();
    let length = u32::try_from(text.len()).map_err(io::Error::other)?.to_be_bytes();
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(channel, &[IoSlice::new(&length)], &mut ancillary, SendFlags::empty())?;
    (&*channel).write_all(text.as_bytes())
}

pub(super) fn receive(channel: &UnixStream) -> io::Result<Received> {
    let mut length = [0; 4];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut length)];
    let received = recvmsg(channel, &mut parts, &mut ancillary, close_on_exec())?;
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            descriptors.extend(fds);
        }
    }
    let length = u32::from_be_bytes(length) as usize;
    if received.bytes != 4 || length > FIELDS_BYTES_MAX {
        return Err(malformed());
    }
    let mut text = vec![0; length];
    (&*channel).read_exact(&mut text)?;
    let text = String::from_utf8(text).map_err(|_| malformed())?;
    parse(&text, descriptors)
}

fn parse(text: &str, descriptors: Vec<OwnedFd>) -> io::Result<Received> {
    let mut fields = text.split_terminator('\0');
    if fields.next() != Some(VERSION) {
        return Err(io::Error::other(
            "it is built with another version of weftwork, so stop it and start this one",
        ));
    }
    let mut descriptors = descriptors.into_iter();
    let stdin = descriptors.next().ok_or_else(malformed)?;
    let count: usize = fields.next().and_then(|field| field.parse().ok()).ok_or_else(malformed)?;
    let mut ticket_keys = Vec::new();
    for _ in 0..count {
        let mut field = || fields.next().map(str::to_owned).ok_or_else(malformed);
        ticket_keys.push((field()?, field()?));
    }
    let mut listeners = Vec::new();
    while let Some(address) = fields.next() {
        let mut number = || fields.next().and_then(|field| field.parse::<u64>().ok()).ok_or_else(malformed);
        let (call, is_given, has_file, count) = (number()?, number()? == 1, number()? == 1, number()?);
        let count = usize::try_from(count).map_err(|_| malformed())?;
        let sockets: Vec<OwnedFd> = descriptors.by_ref().take(count).collect();
        if sockets.is_empty() || sockets.len() != count {
            return Err(malformed());
        }
        listeners.push(Passed { call, address: address.to_owned(), is_given, has_file, sockets });
    }
    Ok((stdin, ticket_keys, listeners))
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the message with its sockets is malformed")
}

#[cfg(not(target_vendor = "apple"))]
fn close_on_exec() -> RecvFlags {
    RecvFlags::CMSG_CLOEXEC
}

#[cfg(target_vendor = "apple")]
fn close_on_exec() -> RecvFlags {
    RecvFlags::empty()
}

/// Returns a copy of the standard input.
pub(super) fn stdin() -> io::Result<OwnedFd> {
    io::stdin().as_fd().try_clone_to_owned()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn sockets_arrive_with_their_addresses() {
        let (sender, receiver) = UnixStream::pair().unwrap();
        let null = File::open("/dev/null").unwrap();
        let sockets = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let passed = |call, address: &str, is_given, range: std::ops::Range<usize>| Passed {
            call,
            address: address.to_owned(),
            is_given,
            has_file: !is_given,
            sockets: sockets[range].iter().map(AsFd::as_fd).collect(),
        };
        let sent = [passed(4, "localhost:80\n", false, 0..2), passed(5, "fd:3", true, 2..3)];
        let keys = vec![("tls+localhost:80".to_owned(), "7,00ff".to_owned())];
        send(&sender, null.as_fd(), keys.clone(), &sent).unwrap();
        let (_stdin, received_keys, received) = receive(&receiver).unwrap();
        assert_eq!(received_keys, keys);
        assert_eq!(received.len(), 2);
        let mut ports = received.iter().flat_map(|listener| &listener.sockets);
        for (sent, received) in sent.iter().zip(&received) {
            assert_eq!((sent.call, &sent.address), (received.call, &received.address));
            assert_eq!((sent.is_given, sent.has_file), (received.is_given, received.has_file));
        }
        for socket in &sockets {
            let received = TcpListener::from(ports.next().unwrap().try_clone().unwrap());
            assert_eq!(received.local_addr().unwrap(), socket.local_addr().unwrap());
        }
    }

    #[test]
    fn a_malformed_message_is_an_error() {
        let null = || OwnedFd::from(File::open("/dev/null").unwrap());
        for text in [
            "2\0",
            "2\0x\0",
            "2\x001\0a\0",
            "2\x000\0a\0",
            "2\x000\0a\x001\x000\x000\x001\0",
            "2\x000\0a\x001\x000\x000\x000\0",
        ] {
            assert!(parse(text, vec![null()]).is_err(), "{text:?}");
        }
        let error = parse("1\0", vec![null()]).unwrap_err().to_string();
        assert!(error.contains("another version"), "{error}");
        assert!(parse("2\x000\0", vec![]).is_err());
        let (sender, receiver) = UnixStream::pair().unwrap();
        (&sender).write_all(&[0xff; 8]).unwrap();
        assert!(receive(&receiver).is_err());
    }
}
