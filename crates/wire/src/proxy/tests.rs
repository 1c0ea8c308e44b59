//! Every sample is read whole, byte by byte, and with a tail.

use super::*;

const MAX: u32 = 600;
const TAIL: &[u8] = b"GET / HTTP/1.1\r\n";

#[track_caller]
fn read_within(bytes: &[u8], max: u32, want: Result<Proxied, ProxyFault>) {
    let dribbled = (0..=bytes.len()).map(|end| read_proxy_header(&bytes[..end], max));
    let dribbled = dribbled.filter(|found| *found != Ok(ProxyEvent::NeedMore));
    let tailed = read_proxy_header(&[bytes, TAIL].concat(), max);
    let want = want.map(|proxied| ProxyEvent::Header(bytes.len(), proxied));
    for found in [Some(read_proxy_header(bytes, max)), dribbled.into_iter().next(), Some(tailed)] {
        assert_eq!(found, Some(want), "{:?}", String::from_utf8_lossy(bytes));
    }
}

#[track_caller]
fn read(bytes: impl AsRef<[u8]>, want: Proxied) {
    read_within(bytes.as_ref(), MAX, Ok(want));
}

#[track_caller]
fn refused(bytes: impl AsRef<[u8]>, want: ProxyFault) {
    read_within(bytes.as_ref(), MAX, Err(want));
}

fn client(source: &str, destination: &str) -> Proxied {
    Proxied::Client { source: source.parse().unwrap(), destination: destination.parse().unwrap() }
}

#[test]
fn lines_of_version_1() {
    read("PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n", client("192.0.2.1:56324", "192.0.2.2:443"));
    read("PROXY TCP4 0.0.0.0 255.255.255.255 0 65535\r\n", client("0.0.0.0:0", "255.255.255.255:65535"));
    read("PROXY TCP6 2001:db8::1 ::1 1 2\r\n", client("[2001:db8::1]:1", "[::1]:2"));
    let full = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
    read(
        format!("PROXY TCP6 {full} {full} 65535 65535\r\n"),
        client(&format!("[{full}]:65535"), &format!("[{full}]:65535")),
    );
    read("PROXY UNKNOWN\r\n", Proxied::Unnamed);
    read(format!("PROXY UNKNOWN {full} {full} 65535 65535\r\n"), Proxied::Unnamed);
}

#[test]
fn lines_that_break_the_grammar() {
    use ProxyFault::Malformed;
    for line in [
        "",
        "UDP4 192.0.2.1 192.0.2.2 1 2",
        "tcp4 192.0.2.1 192.0.2.2 1 2",
        " TCP4 192.0.2.1 192.0.2.2 1 2",
        "TCP4",
        "TCP4 192.0.2.1 192.0.2.2 1",
        "TCP4 192.0.2.1 192.0.2.2 1 2 3",
        "TCP4  192.0.2.1 192.0.2.2 1 2",
        "TCP4 192.0.2.1 192.0.2.2 1 2 ",
        "TCP4 192.0.2.1\t192.0.2.2 1 2",
        "TCP4 192.0.2.01 192.0.2.2 1 2",
        "TCP4 192.0.2.256 192.0.2.2 1 2",
        "TCP4 192.0.2 192.0.2.2 1 2",
        "TCP4 ::1 ::1 1 2",
        "TCP6 192.0.2.1 192.0.2.2 1 2",
        "TCP6 [::1] ::1 1 2",
        "TCP6 ::1%eth0 ::1 1 2",
        "TCP4 192.0.2.1 192.0.2.2 65536 2",
        "TCP4 192.0.2.1 192.0.2.2 01 2",
        "TCP4 192.0.2.1 192.0.2.2 +1 2",
        "TCP4 192.0.2.1 192.0.2.2  2",
        "TCP4 192.0.2.1 192.0.2.2 1 2\n",
        "UNKNOWNS",
        "TCP4 \u{661}.0.2.1 192.0.2.2 1 2",
    ] {
        refused(format!("PROXY {line}\r\n"), Malformed);
    }
    refused(b"PROXY TCP4 \xff 192.0.2.2 1 2\r\n", Malformed);
}

#[test]
fn version_1_ends_in_107_bytes() {
    let of = |bytes: usize| format!("PROXY UNKNOWN {}\r\n", "x".repeat(bytes - 16));
    read(of(107), Proxied::Unnamed);
    refused(of(108), ProxyFault::TooLong);
    let unended = &of(108).into_bytes()[..107];
    assert_eq!(read_proxy_header(unended, MAX), Err(ProxyFault::TooLong), "nothing more is waited for");
    read_within(of(60).as_bytes(), 60, Ok(Proxied::Unnamed));
    read_within(of(60).as_bytes(), 59, Err(ProxyFault::TooLong));
}

/// A header of version 2 with that command, family and rest.
fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let len = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", &[command, family][..], &len[..], rest].concat()
}

const V4: &[u8] = &[192, 0, 2, 1, 192, 0, 2, 2, 0xdc, 0x04, 1, 0xbb];

fn v6() -> Vec<u8> {
    let (mut from, mut to) = ([0; 16], [0; 16]);
    from[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    (from[15], to[15]) = (1, 1);
    [&from[..], &to[..], &[0, 1, 0, 2]].concat()
}

#[test]
fn families_of_version_2() {
    let v4 = client("192.0.2.1:56324", "192.0.2.2:443");
    let v6_client = client("[2001:db8::1]:1", "[::1]:2");
    for transport in [1, 2] {
        read(binary(0x21, 0x10 | transport, V4), v4);
        read(binary(0x21, 0x20 | transport, &v6()), v6_client);
        read(binary(0x21, 0x30 | transport, &[b'/'; 216]), Proxied::Unnamed);
    }
    read(binary(0x21, 0x00, &[]), Proxied::Unnamed);
    read(binary(0x20, 0x00, &[]), Proxied::Itself);
    read(binary(0x20, 0x11, V4), Proxied::Itself);
}

/// The family and what it stands for are to be ignored (section 2.2).
#[test]
fn local_of_version_2_is_whatever_follows() {
    for family in [0x00, 0x01, 0x11, 0x21, 0x31, 0x41, 0xff] {
        for rest in [&[][..], &V4[1..], b"\x04", b"\x03\0\x04none"] {
            read(binary(0x20, family, rest), Proxied::Itself);
        }
    }
}

#[test]
fn headers_of_version_2_that_break_the_grammar() {
    use ProxyFault::Malformed;
    for command in [0x00, 0x01, 0x11, 0x22, 0x31, 0xff] {
        refused(binary(command, 0x11, V4), Malformed);
    }
    for family in [0x01, 0x10, 0x13, 0x20, 0x30, 0x33, 0x41, 0xff] {
        refused(binary(0x21, family, &[0; 216]), Malformed);
    }
    refused(binary(0x21, 0x11, &V4[1..]), Malformed);
    refused(binary(0x21, 0x21, &v6()[1..]), Malformed);
    refused(binary(0x21, 0x31, &[0; 215]), Malformed);
}

#[test]
fn tlvs_are_passed_over() {
    let with = |tlvs: &[u8]| binary(0x21, 0x11, &[V4, tlvs].concat());
    let v4 = client("192.0.2.1:56324", "192.0.2.2:443");
    read(with(&[0x04, 0, 0]), v4);
    read(with(b"\x01\0\x02h2\x02\0\x0bexample.org\xea\0\x01x"), v4);
    read(binary(0x21, 0x00, b"\x01\0\x02h2"), Proxied::Unnamed);
    for tlvs in [&b"\x04"[..], b"\x04\0", b"\x04\0\x01", b"\x04\0\0\x04\xff\xffx"] {
        refused(with(tlvs), ProxyFault::Malformed);
    }
}

/// The sum was worked out by another program (a table-driven CRC32c in Python).
#[test]
fn checksums_are_checked() {
    let with = |sum: &[u8]| binary(0x21, 0x11, &[V4, b"\x04\0\x01x\x03\0\x04", sum].concat());
    let right = CHECKSUM.to_be_bytes();
    read(with(&right), client("192.0.2.1:56324", "192.0.2.2:443"));
    for at in 0..4 {
        let mut wrong = right;
        wrong[at] ^= 1;
        refused(with(&wrong), ProxyFault::Checksum);
    }
    refused(binary(0x21, 0x11, &[V4, b"\x03\0\x03abc"].concat()), ProxyFault::Malformed);
}

/// Each is right, worked out as above with the other in its place. Who may send more of them has the whole header summed
/// up for each.
#[test]
fn a_second_checksum_is_refused() {
    let (first, second) = (0x38e7_d9df_u32.to_be_bytes(), 0x1a24_9d6e_u32.to_be_bytes());
    let tlvs = [b"\x03\0\x04", &first[..], b"\x03\0\x04", &second[..]].concat();
    refused(binary(0x21, 0x11, &[V4, &tlvs].concat()), ProxyFault::Malformed);
}

const CHECKSUM: u32 = 0x1a9b_d31c;

#[test]
fn version_2_ends_within_the_limit() {
    let padded = |bytes: usize| {
        let len = u16::try_from(bytes).unwrap().to_be_bytes();
        binary(0x21, 0x11, &[V4, &[0x04], &len[..], &vec![0; bytes]].concat())
    };
    let header = padded(100);
    let bytes = u32::try_from(header.len()).unwrap();
    read_within(&header, bytes, Ok(client("192.0.2.1:56324", "192.0.2.2:443")));
    read_within(&header, bytes - 1, Err(ProxyFault::TooLong));
}

#[test]
fn what_is_no_header_is_seen_at_once() {
    for bytes in [
        "GET / HTTP/1.1\r\n",
        "PROXY\tTCP4",
        "proxy TCP4",
        "P\r\n",
        "\r\n\r\nGET",
        "\r\n\r\n\0\r\nQUIT\r",
        "\0",
    ] {
        refused(bytes, ProxyFault::Missing);
    }
    assert_eq!(read_proxy_header(b"", MAX), Ok(ProxyEvent::NeedMore));
    assert_eq!(read_proxy_header(b"P", MAX), Ok(ProxyEvent::NeedMore));
}

#[test]
fn every_fault_says_something_of_its_own() {
    let faults = [ProxyFault::Missing, ProxyFault::TooLong, ProxyFault::Malformed, ProxyFault::Checksum];
    for (at, fault) in faults.iter().enumerate() {
        assert!(fault.to_string().contains("PROXY header"));
        assert!(faults[..at].iter().all(|other| other.to_string() != fault.to_string()));
    }
}
