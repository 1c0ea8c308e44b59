//! Frames: what is read, and what is refused with which fault. The cases of h2spec 2.6 that a codec decides are here;
//! the names of tests have their section in RFC 9113.

use super::*;
use Violation::*;

fn ping(flags: u8, stream: u32) -> Vec<u8> {
    frame(kind::PING, flags, stream, b"12345678")
}

fn window(stream: u32, by: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &by.to_be_bytes())
}

fn setting(id: u16, value: u32) -> Vec<u8> {
    frame(kind::SETTINGS, 0, 0, &[&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
}

fn others(bytes: &[u8]) -> Vec<Frame> {
    let frame = |event| match event {
        Seen::Other(frame) => frame,
        other => panic!("{other:?}"),
    };
    events(bytes).into_iter().map(frame).collect()
}

/// A stream is open before these bytes.
#[track_caller]
fn refused_on(before: &[u8], bytes: &[u8], want: Violation) {
    refused(&[before, bytes].concat(), want);
}

#[track_caller]
fn first(bytes: &[u8]) -> Result<usize, Violation> {
    let talk = every_way(|| Http2::server(&Http2Settings::default()), bytes, &Limits::default());
    talk.fault.map_or(Ok(talk.used), Err)
}

#[test]
fn rfc9113_3_4_preface() {
    let settings = frame(kind::SETTINGS, 0, 0, b"");
    let start = [PREFACE, &settings].concat();
    assert_eq!(first(&start), Ok(start.len()));
    assert_eq!(first(&PREFACE[..23]), Ok(0));
    for wrong in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r", b"PRI * HTTP/1", b"\0"]
    {
        assert_eq!(first(wrong), Err(PrefaceInvalid));
    }
    for wrong in [ping(0, 0), frame(kind::SETTINGS, flag::ACK, 0, b""), get(1)] {
        assert_eq!(first(&[PREFACE, &wrong].concat()), Err(SettingsExpected));
    }
    assert_eq!(Http2::is_preface(b""), None);
    assert_eq!(Http2::is_preface(b"PRI"), None);
    assert_eq!(Http2::is_preface(b"PUT"), Some(false));
    assert_eq!(Http2::is_preface(&start), Some(true));
}

#[test]
fn rfc9113_4_1_unknown_frames_and_flags_are_ignored() {
    let unknown = [frame(0x16, 0xff, 0, b"abc"), frame(0xff, 0, 7, &[0; 300]), frame(0xff, 0, 0, b"")];
    assert_eq!(others(&unknown.concat()), [Frame::Nothing; 3]);
    assert_eq!(others(&ping(0xfe, 0)), [Frame::Ping(*b"12345678")]);
    let reserved = [&[0, 0, 8, 6, 0, 0x80, 0, 0, 0][..], b"12345678"].concat();
    assert_eq!(others(&reserved), [Frame::Ping(*b"12345678")]);
}

#[test]
fn rfc9113_4_2_frame_size() {
    let content = vec![b'x'; PAYLOAD_BYTES_MAX];
    assert!(matches!(
        &events(&[post(1), data(1, true, &content)].concat())[1],
        Seen::Data { flow: 16_384, .. }
    ));
    let large = vec![0; PAYLOAD_BYTES_MAX + 1];
    for kind in [kind::DATA, kind::HEADERS, kind::SETTINGS, kind::PING, 0x16] {
        refused_on(&post(1), &frame(kind, 0, 1, &large), FrameTooLarge);
    }
    let begun = frame(kind::HEADERS, 0, 1, &block(&GET));
    refused_on(&begun, &frame(kind::CONTINUATION, 0, 1, &large), FrameTooLarge);
}

#[test]
fn rfc9113_4_3_field_blocks() {
    let mut block = block(&GET);
    let request = |block: &[u8]| frame(kind::HEADERS, flag::END_HEADERS, 1, block);
    for wrong in [&[0x80][..], &[0xff, 0xff], &[0x40, 1], &[0x3f, 0xff, 0xff]] {
        refused(&request(wrong), BlockInvalid);
    }
    block.push(0x20);
    refused(&request(&block), BlockInvalid);

    let begun = frame(kind::HEADERS, 0, 1, b"");
    for between in [
        ping(0, 0),
        get(3),
        frame(0x16, 0, 0, b""),
        frame(kind::CONTINUATION, 0, 3, b"a"),
        data(1, true, b""),
    ] {
        refused_on(&begun, &between, BlockInterrupted);
    }
}

#[test]
fn rfc9113_5_1_idle_streams() {
    for bytes in [data(1, true, b"a"), window(1, 1), frame(kind::RST_STREAM, 0, 1, &[0; 4])] {
        refused(&bytes, StreamIdle);
        // Servers push nothing, so there is no stream of an even number.
        let even = [&bytes[..8], &[2], &bytes[9..]].concat();
        refused_on(&get(3), &even, StreamIdle);
    }
}

#[test]
fn rfc9113_5_1_1_stream_identifiers() {
    for stream in [2, 0x7fff_fffe] {
        refused(&get(stream), StreamIdInvalid);
    }
    refused(&get(0), StreamMissing);
    // 3 was skipped, and is closed by that. 1 and 5 were opened: a second head is one of trailers.
    let opened = [post(1), post(5)].concat();
    refused_on(&opened, &get(3), StreamIdInvalid);
    for stream in [1, 5] {
        let talk = talk_within(&Limits::default(), &[&opened[..], &headers(stream, true, &[])].concat());
        assert_eq!(talk.events[2], Seen::Trailers { stream, fields: vec![] });
    }
    // Of skipped streams long ago, it is not known that they were.
    let far = [post(1), post(129)].concat();
    refused_on(&far, &get(3), StreamIdInvalid);
    refused_on(&[post(1), post(131)].concat(), &get(129), StreamIdInvalid);
    let farther = [post(3), post(131)].concat();
    assert_eq!(events(&[&farther[..], &headers(1, true, &[])].concat()).len(), 3);
    assert_eq!(events(&[post(1), post(0x7fff_ffff), headers(1, true, &[])].concat()).len(), 3);
}

#[test]
fn rfc9113_6_1_data() {
    let seen = |bytes: Vec<u8>| events(&[post(1), bytes].concat()).remove(1);
    let want = |content: &str, flow, padding, ends| Seen::Data {
        stream: 1,
        content: content.into(),
        flow,
        padding,
        ends,
    };
    assert_eq!(seen(data(1, false, b"hello")), want("hello", 5, 0, false));
    assert_eq!(seen(data(1, true, b"hello")), want("hello", 5, 0, true));
    assert_eq!(seen(data(1, true, b"")), want("", 0, 0, true));
    let padded = |flags, payload: &[u8]| frame(kind::DATA, flag::PADDED | flags, 1, payload);
    assert_eq!(seen(padded(0, b"\x03hello\0\0\0")), want("hello", 9, 4, false));
    assert_eq!(seen(padded(1, b"\x03hello\0\0\0")), want("hello", 9, 4, true));
    assert_eq!(seen(padded(1, b"\0hello")), want("hello", 6, 1, true));
    assert_eq!(seen(padded(0, b"\x03\0\0\0")), want("", 4, 4, false));
    assert_eq!(seen(padded(1, b"\0")), want("", 1, 1, true));
    refused_on(&post(1), &padded(0, b""), FrameSizeInvalid);
    refused_on(&post(1), &padded(0, b"\x01"), PaddingTooLong);
    refused_on(&post(1), &padded(0, b"\x06hello"), PaddingTooLong);
    refused(&data(0, true, b"a"), StreamMissing);
}

#[test]
fn rfc9113_6_2_headers() {
    let request = |flags, before: &[u8], after: &[u8]| {
        frame(kind::HEADERS, flags | flag::END_HEADERS, 1, &[before, &block(&GET), after].concat())
    };
    let plain = events(&request(0, b"", b""));
    assert_eq!(events(&request(flag::PADDED, b"\x02", b"\0\0")), plain);
    assert_eq!(events(&request(flag::PRIORITY, b"\x80\0\0\x01\xff", b"")), plain);
    assert_eq!(events(&request(flag::PADDED | flag::PRIORITY, b"\x01\0\0\0\x03\xff", b"\0")), plain);
    let short = |flags, payload: &[u8]| frame(kind::HEADERS, flags | flag::END_HEADERS, 1, payload);
    refused(&short(flag::PADDED, b""), FrameSizeInvalid);
    refused(&short(flag::PRIORITY, b"1234"), FrameSizeInvalid);
    refused(&short(flag::PADDED | flag::PRIORITY, b"\x0012345"[..5].as_ref()), FrameSizeInvalid);
    refused(&short(flag::PADDED, b"\x01"), PaddingTooLong);
    refused(&short(flag::PADDED | flag::PRIORITY, b"\x01\0\0\0\x03\xff"), PaddingTooLong);
}

#[test]
fn rfc9113_6_3_priority_is_read_past() {
    let priority = |stream, payload: &[u8]| frame(kind::PRIORITY, 0, stream, payload);
    assert_eq!(others(&priority(1, &[0; 5])), [Frame::Nothing]);
    refused(&priority(0, &[0; 5]), StreamMissing);
    let [Seen::StreamError { fault, is_request: false, .. }] = events(&priority(1, &[0; 4]))[..] else {
        panic!()
    };
    assert_eq!((fault.stream(), fault.code()), (Some(1), ErrorCode::FRAME_SIZE_ERROR));
}

#[test]
fn rfc9113_6_4_rst_stream() {
    let reset = |stream, payload: &[u8]| frame(kind::RST_STREAM, 0, stream, payload);
    let want = Seen::Other(Frame::Reset { stream: 1, code: ErrorCode::CANCEL });
    assert_eq!(events(&[post(1), reset(1, &[0, 0, 0, 8])].concat())[1], want);
    refused_on(&post(1), &reset(0, &[0; 4]), StreamMissing);
    for payload in [&[0; 3][..], &[0; 5]] {
        refused_on(&post(1), &reset(1, payload), FrameSizeInvalid);
    }
}

#[test]
fn rfc9113_6_5_settings() {
    refused(&frame(kind::SETTINGS, 0, 1, b""), StreamNotAllowed);
    refused(&frame(kind::SETTINGS, flag::ACK, 0, &[0; 6]), FrameSizeInvalid);
    for len in [1, 5, 7] {
        refused(&frame(kind::SETTINGS, 0, 0, &vec![0; len]), FrameSizeInvalid);
    }
    assert_eq!(others(&frame(kind::SETTINGS, flag::ACK, 0, b"")), [Frame::SettingsAcked]);
    for (id, value, want) in [
        (0x2, 2, SettingInvalid),
        (0x4, 0x8000_0000, WindowSettingInvalid),
        (0x5, 16_383, SettingInvalid),
        (0x5, 16_777_216, SettingInvalid),
        (0x8, 2, SettingInvalid),
        (0x9, 2, SettingInvalid),
    ] {
        refused(&setting(id, value), want);
    }
    refused(&[setting(0x8, 1), setting(0x8, 0)].concat(), SettingInvalid);
    let ignored =
        [(0x1, u32::MAX), (0x2, 0), (0x2, 1), (0x3, 0), (0x6, 0), (0x7, 9), (0x8, 0), (0x9, 1), (0xffff, 9)];
    for (id, value) in ignored {
        assert_eq!(others(&setting(id, value)), [Frame::Settings { window_shift: 0 }]);
    }
    let shifts = [setting(0x4, 70_000), setting(0x4, 0), setting(0x4, 0x7fff_ffff)].concat();
    let shift = |by| Frame::Settings { window_shift: by };
    assert_eq!(others(&shifts), [shift(4_465), shift(-70_000), shift(0x7fff_ffff)]);
    let twice = [&setting(0x4, 1)[9..], &setting(0x4, 65_536)[9..]].concat();
    assert_eq!(others(&frame(kind::SETTINGS, 0, 0, &twice)), [shift(1)]);
}

#[test]
fn settings_of_the_peer_are_kept() {
    let mut http = Http2::server(&Http2Settings::default());
    let list = [(0x1, 0), (0x3, 7), (0x4, 9), (0x5, 20_000), (0x6, 11), (0x8, 1)];
    let payload: Vec<u8> = list.iter().flat_map(|(id, value)| setting(*id, *value)[9..].to_vec()).collect();
    let bytes = [PREFACE, &frame(kind::SETTINGS, 0, 0, &payload)].concat();
    let (mut head, mut text) = (Head::default(), Vec::new());
    let (used, _) = http.read(&bytes, &Limits::default(), &mut head, &mut text).unwrap();
    http.read(&bytes[used..], &Limits::default(), &mut head, &mut text).unwrap();
    let want = PeerSettings {
        table_bytes_max: 0,
        window: 9,
        frame_bytes_max: 20_000,
        streams_max: 7,
        head_bytes_max: 11,
        connect_protocol: true,
    };
    assert_eq!((http.peer(), http.resets_table), (&want, true));
}

#[test]
fn rfc9113_6_6_push_promise() {
    refused_on(&post(1), &frame(kind::PUSH_PROMISE, flag::END_HEADERS, 1, &[0, 0, 0, 2]), PushNotAllowed);
}

#[test]
fn rfc9113_6_7_ping() {
    assert_eq!(others(&ping(0, 0)), [Frame::Ping(*b"12345678")]);
    assert_eq!(others(&ping(flag::ACK, 0)), [Frame::PingAcked(*b"12345678")]);
    refused(&ping(0, 1), StreamNotAllowed);
    for len in [0, 7, 9] {
        refused(&frame(kind::PING, 0, 0, &vec![0; len]), FrameSizeInvalid);
    }
}

#[test]
fn rfc9113_6_8_goaway() {
    let goaway = |stream, payload: &[u8]| frame(kind::GOAWAY, 0, stream, payload);
    let want = Frame::GoAway { last: 5, code: ErrorCode::NO_ERROR };
    assert_eq!(others(&goaway(0, &[0x80, 0, 0, 5, 0, 0, 0, 0])), [want]);
    let payload = [&[0, 0, 0, 5, 0, 0, 0, 0][..], &[b'x'; 300]].concat();
    assert_eq!(others(&goaway(0, &payload)), [want]);
    refused(&goaway(1, &[0; 8]), StreamNotAllowed);
    refused(&goaway(0, &[0; 7]), FrameSizeInvalid);
}

#[test]
fn rfc9113_6_9_window_update() {
    assert_eq!(others(&window(0, 1)), [Frame::Window { stream: 0, by: 1 }]);
    let event = |bytes: Vec<u8>| events(&[post(1), bytes].concat()).remove(1);
    assert_eq!(event(window(1, 0x8000_0007)), Seen::Other(Frame::Window { stream: 1, by: 7 }));
    refused(&window(0, 0), WindowIncrementZero);
    let Seen::StreamError { fault, .. } = event(window(1, 0)) else { panic!() };
    assert_eq!((fault.stream(), fault.code()), (Some(1), ErrorCode::PROTOCOL_ERROR));
    for len in [3, 5] {
        refused(&frame(kind::WINDOW_UPDATE, 0, 0, &vec![0; len]), FrameSizeInvalid);
        refused_on(&post(1), &frame(kind::WINDOW_UPDATE, 0, 1, &vec![0; len]), FrameSizeInvalid);
    }
}

#[test]
fn rfc9113_6_10_continuation() {
    let block = block(&GET);
    let whole = events(&get(1));
    let cut = |at: usize, flags| {
        let first = frame(kind::HEADERS, flag::END_STREAM | flags, 1, &block[..at]);
        let middle = frame(kind::CONTINUATION, 0, 1, &block[at..at + 1]);
        [first, middle, frame(kind::CONTINUATION, flag::END_HEADERS, 1, &block[at + 1..])].concat()
    };
    for at in 0..block.len() - 1 {
        assert_eq!(events(&cut(at, 0)), whole);
    }
    refused(&frame(kind::CONTINUATION, flag::END_HEADERS, 1, &block), ContinuationUnexpected);
    refused_on(&get(1), &frame(kind::CONTINUATION, flag::END_HEADERS, 1, &block), ContinuationUnexpected);
    // Trailers are cut as well.
    let trailers = [
        frame(kind::HEADERS, flag::END_STREAM, 1, b""),
        frame(kind::CONTINUATION, 4, 1, &super::block(&[("a", "b")])),
    ];
    assert!(matches!(&events(&[post(1), trailers.concat()].concat())[1], Seen::Trailers { stream: 1, .. }));
}

#[test]
fn rfc9218_7_1_priority_update() {
    let update = |stream, id: u32, value: &[u8]| {
        frame(kind::PRIORITY_UPDATE, 0, stream, &[&id.to_be_bytes()[..], value].concat())
    };
    let priority = Priority { urgency: 6, incremental: true };
    assert_eq!(others(&update(0, 0x8000_0001, b"u=6,i")), [Frame::Priority { stream: 1, priority }]);
    let default = Frame::Priority { stream: 99, priority: Priority::default() };
    assert_eq!(others(&update(0, 99, b"???")), [default]);
    refused(&update(1, 1, b""), StreamNotAllowed);
    refused(&update(0, 0, b""), StreamMissing);
    refused(&update(0, 2, b""), StreamIdInvalid);
    refused(&frame(kind::PRIORITY_UPDATE, 0, 0, &[0; 3]), FrameSizeInvalid);
}

#[test]
fn every_violation_explains_itself() {
    let all = Violation::ALL;
    for (at, violation) in all.iter().enumerate() {
        let text = violation.to_string();
        assert!(text.ends_with('.') && text.len() > 20, "{violation:?}: {text}");
        assert!(violation.rule().starts_with("RFC 9113 §"), "{violation:?}");
        assert!(violation.code().name().is_some(), "{violation:?}");
        assert!(all[..at].iter().all(|other| other.to_string() != text), "{violation:?} is said twice");
    }
    let stream = Http2Fault::stream_error(7, PseudoFieldLate);
    assert_eq!(stream.to_string(), "Stream 7: A pseudo-field follows a field. (RFC 9113 §8.3)");
    assert_eq!(Http2Fault::connection(BlockInvalid).code().to_string(), "COMPRESSION_ERROR");
    assert_eq!(format!("{:?}", ErrorCode(0x99)), "0x99");
    // A malformed request is an error of the stream. One that is refused is answered.
    let fault = |fault: crate::Fault| Http2Fault::stream_error(1, fault.into());
    assert_eq!(fault(crate::Fault::HostMissing).code(), ErrorCode::PROTOCOL_ERROR);
    let too_long = fault(crate::Fault::HeadTooLong);
    assert_eq!((too_long.code(), too_long.status().unwrap().as_u16()), (ErrorCode::NO_ERROR, 431));
}
