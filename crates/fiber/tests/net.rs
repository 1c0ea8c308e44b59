//! Tests that the sockets behave like those of std, in a fiber and outside.

use std::cell::Cell;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType};
use weftwork_fiber::net::{
    Resolve, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream, lookup,
};
use weftwork_fiber::{JoinHandle, run, sleep, spawn, timeout, yield_now};

const LONG: Duration = Duration::from_secs(3_600);
const SHORT: Duration = Duration::from_millis(5);
/// The timeout for work that takes no time at all.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A path that no other test uses, removed when dropped.
struct SocketPath(PathBuf);

impl SocketPath {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("fiber-{}-{}.sock", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        SocketPath(std::env::temp_dir().join(name))
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs `f` in a fiber, and then on the plain thread.
fn both(f: fn()) {
    run(f).unwrap();
    f();
}

/// Returns two connected TCP ends. The backlog completes the connection, so one thread can make both.
fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

#[test]
fn tcp_carries_bytes_both_ways_and_half_closes() {
    both(|| {
        let (mut client, mut server) = tcp_pair();
        client.write_all(b"question").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut heard = String::new();
        server.read_to_string(&mut heard).unwrap();
        server.write_all(b"answer").unwrap();
        drop(server);
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!((heard.as_str(), answer.as_str()), ("question", "answer"));
    });
}

#[test]
fn more_than_the_socket_buffers_hold_goes_through() {
    const BYTES: usize = 8 << 20;
    run(|| {
        let (mut client, server) = tcp_pair();
        let writer = spawn(move || client.write_all(&vec![7; BYTES]).unwrap());
        let mut read = Vec::new();
        (&server).read_to_end(&mut read).unwrap();
        writer.join().unwrap();
        assert!(read.len() == BYTES && read.iter().all(|&byte| byte == 7));
    })
    .unwrap();
}

#[test]
fn vectored_calls_and_peek() {
    both(|| {
        let (mut client, mut server) = tcp_pair();
        let sent = client.write_vectored(&[IoSlice::new(b"ab"), IoSlice::new(b"cd")]).unwrap();
        let mut peeked = [0; 4];
        while server.peek(&mut peeked).unwrap() < sent {}
        let (mut one, mut two) = ([0; 1], [0; 3]);
        let mut buffers = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
        assert_eq!(server.read_vectored(&mut buffers).unwrap(), 4);
        assert_eq!((&peeked, &one, &two), (b"abcd", b"a", b"bcd"));
        let (one, two) = UnixStream::pair().unwrap();
        (&one).write_all(b"xy").unwrap();
        assert_eq!((two.peek(&mut peeked).unwrap(), &peeked[..2]), (2, &b"xy"[..]));
        assert_eq!((&two).read(&mut peeked).unwrap(), 2);
    });
}

#[test]
fn options_are_kept() {
    both(|| {
        let (client, _server) = tcp_pair();
        client.set_nodelay(true).unwrap();
        client.set_ttl(42).unwrap();
        client.set_keepalive(Some(Duration::from_secs(30))).unwrap();
        assert!(client.nodelay().unwrap() && client.keepalive().unwrap());
        assert_eq!(client.ttl().unwrap(), 42);
        client.set_keepalive(None).unwrap();
        assert!(!client.keepalive().unwrap());
        client.set_read_timeout(Some(SHORT)).unwrap();
        let clone = client.try_clone().unwrap();
        assert_eq!((clone.read_timeout().unwrap(), clone.write_timeout().unwrap()), (Some(SHORT), None));
        assert_eq!(
            client.set_write_timeout(Some(Duration::ZERO)).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
    });
}

#[test]
fn a_read_a_write_and_an_accept_time_out() {
    both(|| {
        let (client, _server) = tcp_pair();
        client.set_read_timeout(Some(SHORT)).unwrap();
        client.set_write_timeout(Some(SHORT)).unwrap();
        assert_eq!((&client).read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::TimedOut);
        let stuck = (&client).write_all(&vec![0; 64 << 20]).unwrap_err();
        assert_eq!(stuck.kind(), ErrorKind::TimedOut);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_read_timeout(Some(SHORT)).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn connecting_to_a_closed_port_is_refused() {
    both(|| {
        // The socket owns its port, so that no other process gets it, and does not listen.
        let deaf = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&deaf, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = SocketAddr::try_from(rustix::net::getsockname(&deaf).unwrap()).unwrap();
        assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let limited = TcpStream::connect_timeout(&address, Duration::from_secs(5));
        assert_eq!(limited.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let zero = TcpStream::connect_timeout(&address, Duration::ZERO);
        assert_eq!(zero.unwrap_err().kind(), ErrorKind::InvalidInput);
        let path = SocketPath::new();
        assert_eq!(UnixStream::connect(&path.0).unwrap_err().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn connect_times_out_when_the_backlog_is_full() {
    run(|| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let address = listener.local_addr().unwrap();
        let limit = Duration::from_millis(50);
        let tries: Vec<_> = (0..4).map(|_| TcpStream::connect_timeout(&address, limit)).collect();
        let late = |result: &std::io::Result<TcpStream>| {
            result.as_ref().is_err_and(|error| error.kind() == ErrorKind::TimedOut)
        };
        assert!(tries.iter().any(late), "{tries:?}");
    })
    .unwrap();
}

#[test]
fn udp_sends_receives_and_peeks() {
    both(|| {
        let (one, two) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        one.connect(two.local_addr().unwrap()).unwrap();
        one.send(b"hello").unwrap();
        let mut bytes = [0; 16];
        let from = one.local_addr().unwrap();
        assert_eq!(two.peek_from(&mut bytes).unwrap(), (5, from));
        assert_eq!(two.recv_from(&mut bytes).unwrap(), (5, from));
        two.send_to(b"bye", from).unwrap();
        assert_eq!(one.peek(&mut bytes).unwrap(), 3);
        assert_eq!((one.recv(&mut bytes).unwrap(), &bytes[..3]), (3, &b"bye"[..]));
        two.set_read_timeout(Some(SHORT)).unwrap();
        assert_eq!(two.recv(&mut bytes).unwrap_err().kind(), ErrorKind::TimedOut);
        one.set_broadcast(true).unwrap();
        assert!(one.broadcast().unwrap());
        one.set_multicast_loop_v4(false).unwrap();
        one.set_multicast_ttl_v4(7).unwrap();
        assert_eq!((one.multicast_loop_v4().unwrap(), one.multicast_ttl_v4().unwrap()), (false, 7));
        let (group, any) = (Ipv4Addr::new(239, 255, 77, 77), Ipv4Addr::LOCALHOST);
        one.join_multicast_v4(&group, &any).unwrap();
        one.leave_multicast_v4(&group, &any).unwrap();
        assert!(one.leave_multicast_v4(&group, &any).is_err(), "it has left already");
    });
}

#[test]
fn unix_streams_and_datagrams() {
    both(|| {
        let (path, inbox) = (SocketPath::new(), SocketPath::new());
        let listener = UnixListener::bind(&path.0).unwrap();
        let mut client = UnixStream::connect(&path.0).unwrap();
        let mut server = listener.incoming().next().unwrap().unwrap();
        client.write_all(b"hello").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut heard = String::new();
        server.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "hello");

        let receiver = UnixDatagram::bind(&inbox.0).unwrap();
        let sender = UnixDatagram::unbound().unwrap();
        sender.send_to(b"one", &inbox.0).unwrap();
        sender.connect(&inbox.0).unwrap();
        sender.send(b"two!").unwrap();
        let mut bytes = [0; 8];
        assert_eq!(receiver.recv_from(&mut bytes).unwrap().0, 3);
        assert_eq!((receiver.recv(&mut bytes).unwrap(), &bytes[..4]), (4, &b"two!"[..]));
    });
}

#[test]
fn unix_sockets_by_their_addresses() {
    use std::os::unix::net::SocketAddr;
    both(|| {
        let paths = [SocketPath::new(), SocketPath::new(), SocketPath::new()];
        let [stream, one, two] = paths.each_ref().map(|path| SocketAddr::from_pathname(&path.0).unwrap());
        let listener = UnixListener::bind_addr(&stream).unwrap();
        assert_eq!(UnixListener::bind_addr(&stream).unwrap_err().kind(), ErrorKind::AddrInUse);
        let mut client = UnixStream::connect_addr(&stream).unwrap();
        client.write_all(b"!").unwrap();
        listener.accept().unwrap().0.read_exact(&mut [0]).unwrap();

        let (asks, answers) =
            (UnixDatagram::bind_addr(&one).unwrap(), UnixDatagram::bind_addr(&two).unwrap());
        asks.connect_addr(&two).unwrap();
        asks.send(b"who?").unwrap();
        let mut bytes = [0; 8];
        let (_, from) = answers.recv_from(&mut bytes).unwrap();
        answers.send_to_addr(b"me", &from).unwrap();
        assert_eq!((asks.recv(&mut bytes).unwrap(), &bytes[..2]), (2, &b"me"[..]));
    });
}

#[test]
#[cfg(target_os = "linux")]
fn abstract_unix_sockets() {
    use std::os::linux::net::SocketAddrExt;
    run(|| {
        let name = format!("weftwork-fiber-{}", std::process::id());
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let client = UnixStream::connect_addr(&address).unwrap();
        assert_eq!(client.peer_addr().unwrap().as_abstract_name(), address.as_abstract_name());
        listener.accept().unwrap();
    })
    .unwrap();
}

#[test]
fn connecting_waits_while_the_backlog_is_full() {
    let path = SocketPath::new();
    let listener = std::os::unix::net::UnixListener::bind(&path.0).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    run(move || {
        let listener = UnixListener::from_std(listener).unwrap();
        let connecting: Vec<_> = (0..3_u8)
            .map(|number| {
                let path = path.0.clone();
                spawn(move || UnixStream::connect(path).unwrap().write_all(&[number]).unwrap())
            })
            .collect();
        yield_now();
        #[cfg(target_os = "linux")]
        assert!(connecting.iter().any(|one| !one.is_finished()));
        let mut heard: Vec<_> = connecting
            .iter()
            .map(|_| {
                let mut byte = [0];
                listener.accept().unwrap().0.read_exact(&mut byte).unwrap();
                byte[0]
            })
            .collect();
        heard.sort_unstable();
        assert_eq!(heard, [0, 1, 2]);
        drop(path);
    })
    .unwrap();
}

#[test]
fn a_send_to_a_full_datagram_queue_keeps_its_time_limit() {
    both(|| {
        let inbox = SocketPath::new();
        let _receiver = UnixDatagram::bind(&inbox.0).unwrap();
        let sender = UnixDatagram::unbound().unwrap();
        sender.set_write_timeout(Some(SHORT)).unwrap();
        let error = loop {
            if let Err(error) = sender.send_to(b"x", &inbox.0) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn a_fiber_that_sends_datagrams_lets_other_fibers_run() {
    run(|| {
        let inbox = SocketPath::new();
        let receiver = std::os::unix::net::UnixDatagram::bind(&inbox.0).unwrap();
        let sender = UnixDatagram::unbound().unwrap();
        let other = spawn(|| ());
        let taken = (0..1_000).take_while(|_| {
            sender.send_to(b"x", &inbox.0).unwrap();
            receiver.recv(&mut [0]).unwrap();
            !other.is_finished()
        });
        assert!(taken.count() < 1_000);
    })
    .unwrap();
}

#[test]
fn a_full_datagram_queue_suspends_the_sender() {
    const COUNT: u32 = 2_000;
    run(|| {
        let inbox = SocketPath::new();
        let receiver = UnixDatagram::bind(&inbox.0).unwrap();
        let path = inbox.0.clone();
        let sender = spawn(move || {
            let socket = UnixDatagram::unbound().unwrap();
            (0..COUNT).for_each(|_| assert_eq!(socket.send_to(b"x", &path).unwrap(), 1));
        });
        (0..COUNT).for_each(|_| assert_eq!(receiver.recv(&mut [0; 1]).unwrap(), 1));
        sender.join().unwrap();
    })
    .unwrap();
}

#[test]
fn names_are_looked_up() {
    both(|| {
        let ports = |addresses: Vec<std::net::SocketAddr>| {
            assert!(!addresses.is_empty() && addresses.iter().all(|address| address.ip().is_loopback()));
            addresses[0].port()
        };
        assert_eq!(ports(lookup("localhost", 80).unwrap()), 80);
        assert_eq!(ports("localhost:81".resolve().unwrap()), 81);
        assert_eq!(ports(("::1", 82).resolve().unwrap()), 82);
        assert_eq!(ports("[::1]:83".resolve().unwrap()), 83);
        assert_eq!(ports(("localhost".to_owned(), 84).resolve().unwrap()), 84);
        assert_eq!((Ipv4Addr::LOCALHOST, 85).resolve().unwrap(), ["127.0.0.1:85".parse().unwrap()]);
        assert_eq!((Ipv6Addr::LOCALHOST, 86).resolve().unwrap(), ["[::1]:86".parse().unwrap()]);
        assert_eq!("no-port".resolve().unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!("host:99999".resolve().unwrap_err().kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn a_socket_crosses_threads_by_way_of_std() {
    run(|| {
        let (client, server) = tcp_pair();
        let server = server.into_std().unwrap();
        let thread = std::thread::spawn(move || {
            run(|| TcpStream::from_std(server).unwrap().write_all(b"from there").unwrap()).unwrap();
        });
        let mut heard = String::new();
        (&client).read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "from there");
        thread.join().unwrap();
    })
    .unwrap();
}

/// Both share the mode of the same socket.
#[test]
fn a_clone_of_a_socket_that_went_to_std_suspends_its_fiber_as_before() {
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || {
        run(|| {
            let (client, server) = tcp_pair();
            let clone = server.try_clone().unwrap();
            let std = server.into_std().unwrap();
            // The socket is taken back, and given away again.
            let _std = TcpStream::from_std(std).unwrap().into_std().unwrap();
            let reading = spawn(move || (&clone).read_exact(&mut [0]).unwrap());
            yield_now();
            (&client).write_all(b"x").unwrap();
            reading.join().unwrap();
        })
        .unwrap();
        sender.send(()).unwrap();
    });
    assert!(ended.recv_timeout(TIMEOUT).is_ok(), "the clone blocks its thread");
}

/// Keeps a pair of sockets busy until `other` has ended. Each call finds what it needs, so no call waits.
fn rounds_until_ended<T>(other: &JoinHandle<T>) -> u32 {
    let (one, two) = UnixStream::pair().unwrap();
    let mut rounds = 0;
    while !other.is_finished() {
        (&one).write_all(b"x").unwrap();
        (&two).read_exact(&mut [0]).unwrap();
        rounds += 1;
    }
    rounds
}

#[test]
fn a_busy_socket_does_not_keep_the_thread() {
    let rounds = run(|| rounds_until_ended(&spawn(yield_now)));
    assert!(rounds.unwrap() < 1_000);
}

#[test]
fn a_busy_socket_does_not_hold_up_the_events_of_others() {
    let rounds = run(|| {
        let (client, server) = UnixStream::pair().unwrap();
        let other = spawn(move || (&server).read_exact(&mut [0]).unwrap());
        yield_now();
        (&client).write_all(b"x").unwrap();
        rounds_until_ended(&other)
    });
    let rounds = rounds.unwrap();
    assert!(rounds < 1_000, "{rounds}");
}

/// The text is written to a writer that may suspend the fiber.
#[test]
fn a_socket_can_be_formatted_while_it_begins_to_wait() {
    run(|| {
        let (client, server) = UnixStream::pair().unwrap();
        let server = Rc::new(server);
        // At every part of the text.
        let readers: Vec<_> = (0..50)
            .map(|reader| {
                let server = server.clone();
                spawn(move || {
                    (0..reader).for_each(|_| yield_now());
                    (&*server).read_exact(&mut [0]).unwrap();
                })
            })
            .collect();
        write!(Yielding, "{server:?}").unwrap();
        (&client).write_all(&[b'x'; 50]).unwrap();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    })
    .unwrap();
}

/// Accepts text as a slow socket does.
struct Yielding;

impl Write for Yielding {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        yield_now();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn hundreds_of_clients_are_served_without_an_error() {
    const CLIENTS: usize = 300;
    run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                spawn(move || {
                    let mut byte = [0];
                    while stream.read(&mut byte).unwrap() == 1 {
                        stream.write_all(&byte).unwrap();
                    }
                });
            }
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                spawn(move || {
                    let mut stream = TcpStream::connect(address).unwrap();
                    for sent in 0..20 {
                        stream.write_all(&[sent]).unwrap();
                        let mut got = [0];
                        stream.read_exact(&mut got).unwrap();
                        assert_eq!(got[0], sent);
                        sleep(Duration::from_micros(1));
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
        server.cancel();
    })
    .unwrap();
}

#[test]
fn the_time_limits_of_a_socket_of_std_come_along() {
    use rustix::net::sockopt::{Timeout, set_socket_timeout};
    let (read, write) = (Some(Duration::from_secs(2)), Some(Duration::from_secs(3)));
    macro_rules! check {
        ($socket:expr, $ours:ty) => {{
            let socket = $socket;
            set_socket_timeout(&socket, Timeout::Recv, read).unwrap();
            set_socket_timeout(&socket, Timeout::Send, write).unwrap();
            let socket = <$ours>::from_std(socket).unwrap();
            let limits = (socket.read_timeout().unwrap(), socket.write_timeout().unwrap());
            assert_eq!(limits, (read, write), "{socket:?}");
        }};
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    check!(std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap(), TcpStream);
    check!(listener, TcpListener);
    check!(std::net::UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket);
    check!(std::os::unix::net::UnixStream::pair().unwrap().0, UnixStream);
    check!(std::os::unix::net::UnixDatagram::unbound().unwrap(), UnixDatagram);
    let none = UdpSocket::from_std(std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
    assert_eq!((none.read_timeout().unwrap(), none.write_timeout().unwrap()), (None, None));

    let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let read = run(|| UnixStream::from_std(socket).unwrap().read(&mut [0])).unwrap();
    assert_eq!(read.unwrap_err().kind(), ErrorKind::TimedOut);
}

/// A peer that does not read, on the same thread, would block all fibers forever.
#[test]
fn in_a_fiber_that_unwinds_a_socket_does_not_wait() {
    struct Says<S: Write>(S, Rc<Cell<Option<ErrorKind>>>);
    impl<S: Write> Drop for Says<S> {
        fn drop(&mut self) {
            self.1.set(self.0.write_all(b"bye").err().map(|error| error.kind()));
        }
    }
    let said = Rc::new(Cell::new(None));
    let of_full = said.clone();
    let of_free = said.clone();
    run(move || {
        let (full, _silent) = UnixStream::pair().unwrap();
        let fills = move || {
            let mut says = Says(full, of_full);
            says.0.write_all(&[0; 8 << 20])
        };
        assert!(timeout(Duration::from_millis(20), fills).is_err());
        assert_eq!(said.take(), Some(ErrorKind::WouldBlock));

        let (free, mut peer) = UnixStream::pair().unwrap();
        let sleeps = move || {
            let _says = Says(free, of_free);
            sleep(LONG);
        };
        assert!(timeout(Duration::from_millis(1), sleeps).is_err());
        assert_eq!(said.take(), None);
        let mut bytes = String::new();
        peer.read_to_string(&mut bytes).unwrap();
        assert_eq!(bytes, "bye");
    })
    .unwrap();
}

#[test]
fn in_a_fiber_that_unwinds_a_send_to_a_full_queue_fails() {
    struct Sends(UnixDatagram, PathBuf, Rc<Cell<Option<ErrorKind>>>);
    impl Drop for Sends {
        fn drop(&mut self) {
            let sent = (0..10_000).try_for_each(|_| self.0.send_to(b"x", &self.1).map(drop));
            self.2.set(sent.err().map(|error| error.kind()));
        }
    }
    let said = Rc::new(Cell::new(None));
    let shared = said.clone();
    let path = SocketPath::new();
    let theirs = path.0.clone();
    run(move || {
        let _receiver = UnixDatagram::bind(&theirs).unwrap();
        let sends = Sends(UnixDatagram::unbound().unwrap(), theirs, shared);
        let sleeps = move || {
            let _sends = sends;
            sleep(LONG);
        };
        assert!(timeout(Duration::from_millis(1), sleeps).is_err());
    })
    .unwrap();
    assert_eq!(said.take(), Some(ErrorKind::WouldBlock));
}

/// As in std: a refused value changes nothing.
#[test]
fn a_keepalive_of_no_time_is_refused_and_not_set() {
    let (client, _server) = tcp_pair();
    assert_eq!(client.set_keepalive(Some(Duration::ZERO)).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(!client.keepalive().unwrap());
}
