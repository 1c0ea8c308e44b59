//! Tests of connections over TLS, with a client of rustls that the test moves too.

use rustls::ClientConnection;

use super::*;
use crate::transport::tls::ACME_TLS_ALPN;
use crate::transport::tls::testing::Configs;

/// A connection and its client.
struct TlsBed {
    bed: Bed,
    client: ClientConnection,
    got: Vec<u8>,
    /// Whether the server has said that nothing more follows.
    ended: bool,
}

impl TlsBed {
    fn new(configs: &Configs) -> TlsBed {
        TlsBed::over(Bed::new(), configs)
    }

    fn over(mut bed: Bed, configs: &Configs) -> TlsBed {
        let (ours, peer) = UnixStream::pair().unwrap();
        let size = rustix::net::sockopt::socket_send_buffer_size(bed.conn.stream.as_fd()).unwrap();
        rustix::net::sockopt::set_socket_send_buffer_size(&ours, size / 2).unwrap();
        peer.set_nonblocking(true).unwrap();
        let stream = Stream::new(OwnedFd::from(ours)).with_tls(configs.acceptor());
        bed.conn = Conn::new(stream, None, bed.now, &bed.cx);
        bed.peer = peer;
        bed.conn.begin_handshake(bed.now);
        TlsBed { bed, client: configs.client(), got: Vec::new(), ended: false }
    }

    fn open(configs: &Configs) -> TlsBed {
        let mut bed = TlsBed::new(configs);
        assert_eq!(bed.turn(), Step::Read);
        assert!(!bed.client.is_handshaking() && bed.bed.conn.phase == Phase::Head);
        bed
    }

    /// Returns the records of the client that wait.
    fn taken(&mut self) -> Vec<u8> {
        let mut records = Vec::new();
        while self.client.wants_write() {
            self.client.write_tls(&mut records).unwrap();
        }
        records
    }

    fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.client.writer().write_all(bytes.as_ref()).unwrap();
    }

    /// Lets the client read what has arrived. Returns whether there was something.
    fn receive(&mut self) -> bool {
        let mut some = false;
        while let Ok(1..) = self.client.read_tls(&mut self.bed.peer) {
            some = true;
            self.ended |= self.client.process_new_packets().unwrap().peer_has_closed();
            let _ = self.client.reader().read_to_end(&mut self.got);
        }
        some
    }

    /// Moves both sides until nothing more happens.
    fn turn(&mut self) -> Step {
        loop {
            let records = self.taken();
            self.bed.send(records);
            let step = self.bed.drive();
            if !self.receive() && !self.client.wants_write() || step == Step::Close {
                return step;
            }
        }
    }

    fn held_bytes(&self) -> usize {
        self.bed.conn.stream.tls().unwrap().held_bytes()
    }

    fn text(&mut self) -> String {
        String::from_utf8(std::mem::take(&mut self.got)).unwrap()
    }

    fn stats(&self) -> crate::ServerStats {
        self.bed.cx.counters.read(&self.bed.cx.watchdog)
    }
}

#[test]
fn a_challenge_ends_with_its_handshake() {
    for mut configs in Configs::all() {
        Arc::make_mut(&mut configs.server).alpn_protocols.push(ACME_TLS_ALPN.to_vec());
        Arc::make_mut(&mut configs.client).alpn_protocols = vec![ACME_TLS_ALPN.to_vec()];
        let mut bed = TlsBed::new(&configs);
        bed.client.set_buffer_limit(None);
        bed.write(GET);
        assert_eq!(bed.turn(), Step::Read, "it waits for the end of the client");
        assert_eq!((bed.client.alpn_protocol(), bed.ended), (Some(ACME_TLS_ALPN), true));
        assert_eq!((bed.text(), bed.bed.calls), (String::new(), 0));
        bed.bed.half_close();
        assert_eq!(bed.bed.drive(), Step::Close);
        assert_eq!((bed.stats().tls_handshakes, bed.stats().tls_handshake_errors), (1, 0));
    }
}

/// Records of one byte, and the longest ones.
#[test]
fn requests_come_in_records_of_any_length() {
    for configs in Configs::all() {
        let mut bed = TlsBed::open(&configs);
        for byte in GET.as_bytes() {
            bed.write([*byte]);
        }
        assert_eq!(bed.turn(), Step::Read);
        assert!(bed.text().ends_with("hello"));
        bed.client.set_buffer_limit(None);
        bed.write(post("/echo", 160 << 10));
        for part in 0..10 {
            bed.write([b'a' + part; 16 << 10]);
        }
        assert_eq!(bed.turn(), Step::Read);
        let text = bed.text();
        assert!(text.ends_with("jjj") && text.len() > 160 << 10, "{}", text.len());
        assert_eq!((bed.held_bytes(), bed.bed.conn.buffers.is_none()), (0, true));
    }
}

/// As many as a client may want, and more without a request between them (`PeerMisbehaved::TooManyKeyUpdateRequests`).
#[test]
fn key_updates_cost_no_memory_and_a_flood_of_them_ends_the_connection() {
    for configs in Configs::all().into_iter().skip(1).step_by(2) {
        let mut bed = TlsBed::open(&configs);
        let update = |bed: &mut TlsBed| {
            bed.client.refresh_traffic_keys().unwrap();
            let records = bed.taken();
            bed.bed.send(records);
            let step = bed.bed.drive();
            assert!(step == Step::Close || bed.held_bytes() == 0);
            step
        };
        for _ in 0..10 {
            assert!((0..20).all(|_| update(&mut bed) == Step::Read));
            bed.write(GET);
            assert_eq!(bed.turn(), Step::Read);
            assert!(bed.text().ends_with("hello"));
        }
        assert!((0..1000).any(|_| update(&mut bed) == Step::Close));
        assert!(bed.held_bytes() < 100);
    }
}

/// The client's flights are cut at each place, and then its side ends.
#[test]
fn a_client_may_leave_anywhere_in_its_handshake() {
    for configs in Configs::all() {
        let mut at = 0;
        loop {
            let (mut bed, mut left) = (TlsBed::new(&configs), at);
            loop {
                let records = bed.taken();
                let now = records.len().min(left);
                left -= now;
                bed.bed.send(&records[..now]);
                assert_eq!(bed.bed.drive(), Step::Read, "{at}");
                if now < records.len() || !bed.receive() && !bed.client.wants_write() {
                    break;
                }
            }
            let is_open = bed.bed.conn.phase == Phase::Head;
            bed.bed.half_close();
            assert_eq!(bed.bed.drive(), Step::Close, "{at}");
            let failed = u64::from(at > 0 && !is_open);
            assert_eq!(bed.stats().tls_handshake_errors, failed, "{at}");
            if left > 0 {
                assert!(is_open);
                break;
            }
            at += if at < 16 { 1 } else { 17 };
        }
        assert!(at > 150, "{at}");
    }
}

#[test]
fn a_client_may_leave_anywhere_in_its_request() {
    for configs in Configs::all() {
        for left_out in [1, 2, 20, 40, 51, 52] {
            let mut bed = TlsBed::open(&configs);
            bed.write(GET);
            let records = bed.taken();
            bed.bed.send(&records[..records.len().saturating_sub(left_out)]);
            bed.bed.drive();
            bed.bed.half_close();
            assert_eq!((bed.bed.drive(), bed.bed.calls), (Step::Close, 0), "{left_out}");
        }
        // Between records within a body, and between requests.
        for (request, response) in [(post("/echo", 4), ""), (GET.to_owned(), "HTTP/1.1 200 OK")] {
            let mut bed = TlsBed::open(&configs);
            bed.write(request);
            bed.turn();
            bed.bed.half_close();
            assert_eq!(bed.bed.drive(), Step::Close);
            assert!(bed.text().starts_with(response));
        }
    }
}

/// The server's flight is longer than its kernel takes.
#[test]
fn a_client_that_does_not_read_the_flight_has_the_deadline_of_the_handshake() {
    let names = (0..400).map(|n| format!("name-{n}.a.example")).chain(["a.example".to_owned()]);
    let names: Vec<String> = names.collect();
    for configs in Configs::all_with(&names) {
        for reads_at_last in [false, true] {
            let mut bed = TlsBed::over(Bed::narrow(), &configs);
            let hello = bed.taken();
            bed.bed.send(hello);
            bed.bed.now = Tick(1000);
            assert_eq!(bed.bed.drive(), Step::Write);
            assert!(bed.bed.conn.awaits_output_space() && bed.held_bytes() < 128 << 10);
            assert_eq!(bed.bed.due(), 9000);
            // A part is read, which does not prolong the handshake.
            bed.client.read_tls(&mut bed.bed.peer).unwrap();
            bed.client.process_new_packets().unwrap();
            bed.bed.now = Tick(5000);
            bed.bed.drive();
            assert_eq!(bed.bed.due(), 5000);
            if reads_at_last {
                assert_eq!(bed.turn(), Step::Read);
                assert!(!bed.client.is_handshaking() && bed.held_bytes() == 0);
                bed.write(GET);
                bed.turn();
                assert!(bed.text().ends_with("hello"));
            } else {
                assert_eq!(bed.bed.expire(), Step::Close);
                let stats = bed.stats();
                assert_eq!((stats.timeouts, stats.tls_handshake_errors), (1, 1));
            }
        }
    }
}

/// A client that sends no more still reads.
#[test]
fn a_request_is_answered_whose_client_has_ended_its_side() {
    for configs in Configs::all() {
        for path in ["/", "/medium", "/large"] {
            let mut bed = TlsBed::open(&configs);
            bed.write(get(path));
            bed.client.send_close_notify();
            let records = bed.taken();
            bed.bed.send(records);
            let mut most = 0;
            loop {
                let step = bed.bed.drive();
                most = most.max(bed.held_bytes());
                if !bed.receive() && step == Step::Close {
                    break;
                }
            }
            let text = bed.text();
            let end = if path == "/" { "hello" } else { "xxx" };
            assert!(text.starts_with("HTTP/1.1 200 OK") && text.ends_with(end), "{path} {}", text.len());
            assert!(path != "/large" || text.len() > 8 << 20, "{}", text.len());
            assert!(most <= 128 << 10, "{most} bytes of records wait");
            // The connection says so when it is dropped.
            bed.bed.conn = Bed::new().conn;
            bed.receive();
            assert!(bed.ended, "{path}");
        }
    }
}

#[test]
fn garbage_in_an_open_session_ends_it() {
    for configs in Configs::all() {
        for first in 20..=24 {
            let mut bed = TlsBed::open(&configs);
            bed.bed.send([&[first, 3, 3, 0, 40][..], &[7; 40]].concat());
            assert_eq!(bed.bed.drive(), Step::Close, "{first}");
            assert_eq!(bed.bed.calls, 0);
        }
    }
}

#[test]
fn a_session_and_its_stream_are_small() {
    use crate::transport::tls::TlsStream;
    let conn =
        size_of::<Conn>() + size_of::<TlsStream>() + size_of::<rustls::server::UnbufferedServerConnection>();
    assert!(conn <= 2560, "{conn}");
}
