//! Conversations: what may follow what, and what becomes of the connection.

mod whole;

use std::time::SystemTime;

use http::{HeaderName, HeaderValue, StatusCode};

use crate::testing::text;
use crate::{
    After, BodyEvent, BodyLength, Date, Fault, Head, HeadEvent, Http1, Limits, Misuse, ResponseHead,
    WriteEvent, Writing,
};

const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
const POST: &str = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n";
const EXPECT: &str = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n";
const EXPECT_10: &str =
    "POST / HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n";
const EMPTY: BodyLength = BodyLength::Exact(0);

/// A connection, and all that it wrote.
struct Talk {
    http: Http1,
    out: Vec<u8>,
}

impl Talk {
    fn new(request: &str) -> Talk {
        let mut talk = Talk { http: Http1::new(), out: Vec::new() };
        assert_eq!(talk.read(request), Ok(HeadEvent::Head(request.len())));
        talk
    }

    fn read(&mut self, bytes: &str) -> Result<HeadEvent, Fault> {
        self.http.read_head(bytes.as_bytes(), &Limits::default(), &mut Head::default())
    }

    fn body(&mut self, bytes: &str) -> Result<(usize, BodyEvent), Fault> {
        self.http.read_body(bytes.as_bytes(), &Limits::default())
    }

    fn head(&mut self, length: BodyLength) -> Result<(), Misuse> {
        let head = ResponseHead { length, ..ResponseHead::default() };
        self.http.write_head(&head, &Date::at(SystemTime::UNIX_EPOCH), &mut self.out)
    }

    fn write(&mut self, data: &str) -> Result<(), Misuse> {
        self.http.write_body(data.as_bytes(), &mut self.out)
    }

    fn interim(&mut self, status: u16) -> Result<(), Misuse> {
        self.http.write_interim(StatusCode::from_u16(status).unwrap(), &[], &mut self.out)
    }

    fn finish(&mut self) -> Result<After, Misuse> {
        self.http.finish(&[], &mut self.out)
    }

    /// Answers with an empty 200. Says what is next, which the head must have announced.
    fn answer(&mut self) -> After {
        self.out.clear();
        self.head(EMPTY).unwrap();
        let after = self.finish().unwrap();
        let closes = matches!(after, After::Close | After::Linger);
        assert_eq!(text(&self.out).contains("Connection: close\r\n"), closes);
        after
    }
}

#[track_caller]
fn out_of_turn<T>(result: Result<T, Misuse>, at: Writing, on: WriteEvent) {
    assert_eq!(result.err(), Some(Misuse::OutOfTurn { at, on }));
}

#[test]
fn requests_follow_each_other() {
    let mut talk = Talk::new(GET);
    for _ in 0..3 {
        assert_eq!(talk.answer(), After::Next);
        talk.http.next_request();
        assert_eq!(talk.read(GET), Ok(HeadEvent::Head(GET.len())));
    }
}

#[test]
fn nothing_of_a_request_outlives_it() {
    let mut talk = Talk::new("HEAD / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    talk.head(EMPTY).unwrap();
    assert_eq!(talk.finish(), Ok(After::Next));
    talk.http.next_request();
    assert!(talk.http.sends_body());
    assert_eq!(talk.answer(), After::Linger, "and says so: the client is not known to speak HTTP/1.0");
}

#[test]
fn the_next_request_waits_for_its_turn() {
    let mut talk = Talk::new(GET);
    assert_eq!(talk.read(GET), Ok(HeadEvent::NeedMore));
    talk.http.next_request();
    assert_eq!(talk.read(GET), Ok(HeadEvent::NeedMore));
    assert_eq!(talk.answer(), After::Next);
    assert_eq!(talk.read(GET), Ok(HeadEvent::NeedMore));
    talk.http.next_request();
    assert_eq!(talk.read(GET), Ok(HeadEvent::Head(GET.len())));
}

#[test]
fn an_unread_body_is_drained() {
    let mut talk = Talk::new(POST);
    assert_eq!(talk.answer(), After::Drain);
    talk.http.next_request();
    assert_eq!(talk.read(GET), Ok(HeadEvent::NeedMore), "the body is not drained yet");
    assert_eq!(talk.body("abcGET"), Ok((3, BodyEvent::Data { start: 0, len: 3 })));
    talk.http.next_request();
    assert_eq!(talk.read(GET), Ok(HeadEvent::Head(GET.len())));
}

#[test]
fn rfc9112_9_6_an_unread_body_lingers_when_the_connection_ends() {
    let mut talk = Talk::new(POST);
    talk.http.close_after();
    assert_eq!(talk.answer(), After::Linger);
    let mut talk = Talk::new(POST);
    talk.body("abc").unwrap();
    talk.http.close_after();
    assert_eq!(talk.answer(), After::Close);
    talk.http.next_request();
    assert_eq!(talk.read(GET), Ok(HeadEvent::NeedMore), "a connection that ends reads no more");
}

#[test]
fn close_after_holds_for_the_next_request_too() {
    let mut talk = Talk { http: Http1::new(), out: Vec::new() };
    talk.http.close_after();
    assert_eq!(talk.read(GET), Ok(HeadEvent::Head(GET.len())));
    assert_eq!(talk.answer(), After::Close);
}

#[test]
fn close_after_the_head_is_written_still_closes() {
    let mut talk = Talk::new(GET);
    talk.head(EMPTY).unwrap();
    talk.http.close_after();
    assert_eq!(talk.finish(), Ok(After::Close));
}

#[test]
fn rfc9110_10_1_1_continue() {
    let mut talk = Talk::new(EXPECT);
    assert!(talk.http.wants_continue());
    talk.interim(100).unwrap();
    assert_eq!(text(&talk.out), "HTTP/1.1 100 Continue\r\n\r\n");
    assert!(!talk.http.wants_continue());
    talk.body("abc").unwrap();
    assert_eq!(talk.answer(), After::Next);
}

#[test]
fn rfc9110_10_1_1_a_final_answer_instead_of_continue_ends_the_connection() {
    let mut talk = Talk::new(EXPECT);
    assert_eq!(talk.answer(), After::Linger);
    assert!(!talk.http.wants_continue());
    let mut talk = Talk::new(EXPECT);
    talk.interim(103).unwrap();
    assert_eq!(talk.answer(), After::Linger, "a hint is no leave");
}

#[test]
fn rfc9110_10_1_1_a_client_that_sends_anyway_does_not_wait() {
    let mut talk = Talk::new(EXPECT);
    assert_eq!(talk.body(""), Ok((0, BodyEvent::NeedMore)));
    assert!(talk.http.wants_continue());
    talk.body("a").unwrap();
    assert!(!talk.http.wants_continue());
    assert_eq!(talk.answer(), After::Drain);
    assert!(!Talk::new(EXPECT_10).http.wants_continue());
}

#[test]
fn rfc9110_15_2_interim_responses() {
    let mut talk = Talk::new(GET);
    let link = [(HeaderName::from_static("link"), HeaderValue::from_static("</a>"))];
    talk.http.write_interim(StatusCode::EARLY_HINTS, &link, &mut talk.out).unwrap();
    assert_eq!(text(&talk.out), "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n");
    talk.out.clear();
    talk.interim(199).unwrap();
    assert_eq!(text(&talk.out), "HTTP/1.1 199 \r\n\r\n");
    talk.out.clear();
    for status in [101, 200] {
        assert_eq!(talk.interim(status), Err(Misuse::StatusNotAllowed));
    }
    let length = [(HeaderName::from_static("content-length"), HeaderValue::from_static("0"))];
    let result = talk.http.write_interim(StatusCode::PROCESSING, &length, &mut talk.out);
    assert_eq!(result, Err(Misuse::ContentLengthForbidden));
    let mut old = Talk::new(EXPECT_10);
    old.interim(103).unwrap();
    assert_eq!((text(&talk.out), text(&old.out)), (String::new(), String::new()));
    let mut none = Talk { http: Http1::new(), out: Vec::new() };
    assert_eq!(none.interim(100), Err(Misuse::InterimWithoutRequest));
}

#[test]
fn calls_out_of_turn() {
    let mut talk = Talk::new(GET);
    out_of_turn(talk.write("a"), Writing::Head, WriteEvent::Body);
    out_of_turn(talk.finish(), Writing::Head, WriteEvent::Finish);
    out_of_turn(talk.http.body_bypassed(1), Writing::Head, WriteEvent::Body);
    talk.head(EMPTY).unwrap();
    out_of_turn(talk.head(EMPTY), Writing::Body, WriteEvent::Head);
    out_of_turn(talk.interim(100), Writing::Body, WriteEvent::Interim);
    talk.finish().unwrap();
    out_of_turn(talk.finish(), Writing::Whole, WriteEvent::Finish);
    out_of_turn(talk.head(EMPTY), Writing::Whole, WriteEvent::Head);
    out_of_turn(talk.write("a"), Writing::Whole, WriteEvent::Body);
}

#[test]
fn too_many_bytes_are_not_written() {
    let mut talk = Talk::new(GET);
    talk.head(BodyLength::Exact(2)).unwrap();
    talk.out.clear();
    assert_eq!(talk.write("abc"), Err(Misuse::TooManyBytes));
    assert_eq!(talk.http.body_bypassed(3), Err(Misuse::TooManyBytes));
    talk.write("ab").unwrap();
    assert_eq!(talk.write("c"), Err(Misuse::TooManyBytes));
    assert_eq!(text(&talk.out), "ab");
    assert_eq!(talk.finish(), Ok(After::Close));
}

#[test]
fn too_few_bytes_break_the_connection() {
    let mut talk = Talk::new(GET);
    talk.head(BodyLength::Exact(3)).unwrap();
    talk.write("ab").unwrap();
    assert_eq!(talk.finish(), Err(Misuse::TooFewBytes));
    out_of_turn(talk.finish(), Writing::Broken, WriteEvent::Finish);
    out_of_turn(talk.write("c"), Writing::Broken, WriteEvent::Body);
    talk.http.next_request();
    assert_eq!(talk.read(GET), Ok(HeadEvent::NeedMore));
}

#[test]
fn what_ends_with_the_connection_is_cut_short_until_it_is_over() {
    let mut talk = Talk::new("GET / HTTP/1.0\r\n\r\n");
    assert!(!talk.http.is_cut_short());
    talk.head(BodyLength::Unknown).unwrap();
    assert!(talk.http.is_cut_short());
    talk.write("ab").unwrap();
    assert!(talk.http.is_cut_short());
    talk.finish().unwrap();
    assert!(!talk.http.is_cut_short());
    // Others say by themselves how long they are.
    for (request, length) in [(GET, BodyLength::Unknown), ("GET / HTTP/1.0\r\n\r\n", BodyLength::Exact(1))] {
        let mut talk = Talk::new(request);
        talk.head(length).unwrap();
        assert!(!talk.http.is_cut_short());
    }
}

#[test]
fn bytes_can_bypass_a_body_of_known_length() {
    let mut talk = Talk::new(GET);
    talk.head(BodyLength::Exact(5)).unwrap();
    talk.write("ab").unwrap();
    talk.http.body_bypassed(3).unwrap();
    assert_eq!(talk.finish(), Ok(After::Next));
    let mut talk = Talk::new(GET);
    talk.head(BodyLength::Unknown).unwrap();
    assert_eq!(talk.http.body_bypassed(1), Err(Misuse::BypassWithoutLength));
    let mut talk = Talk::new("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(!talk.http.sends_body());
    talk.head(BodyLength::Exact(5)).unwrap();
    assert!(!talk.http.sends_body());
    talk.http.body_bypassed(9).unwrap();
    assert_eq!(talk.finish(), Ok(After::Next));
}

#[test]
fn parts_can_be_sent_past_any_body() {
    let part = |talk: &mut Talk, bytes| talk.http.begin_part(bytes, &mut talk.out);
    for (request, length, want) in [
        (GET, BodyLength::Unknown, ("10000000a\r\n", "\r\n")),
        (GET, BodyLength::Exact(0x1_0000_000a), ("", "")),
        ("GET / HTTP/1.0\r\n\r\n", BodyLength::Unknown, ("", "")),
        ("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n", BodyLength::Unknown, ("", "")),
    ] {
        let mut talk = Talk::new(request);
        out_of_turn(part(&mut talk, 1), Writing::Head, WriteEvent::Body);
        talk.head(length).unwrap();
        talk.out.clear();
        assert!(!talk.http.has_written_all());
        let behind = part(&mut talk, 0x1_0000_000a).unwrap();
        assert_eq!((text(&talk.out).as_str(), text(behind).as_str()), want);
        assert_eq!(talk.http.has_written_all(), matches!(length, BodyLength::Exact(_)));
        talk.finish().unwrap();
        out_of_turn(part(&mut talk, 1), Writing::Whole, WriteEvent::Body);
    }
    let mut talk = Talk::new(GET);
    talk.head(BodyLength::Exact(2)).unwrap();
    talk.out.clear();
    assert_eq!(part(&mut talk, 3), Err(Misuse::TooManyBytes));
    part(&mut talk, 2).unwrap();
    assert_eq!((text(&talk.out), talk.finish()), (String::new(), Ok(After::Close)));
}

#[test]
fn rfc9112_7_1_2_trailers() {
    let trailer = |name| [(HeaderName::from_static(name), HeaderValue::from_static("1"))];
    let mut talk = Talk::new(GET);
    talk.head(BodyLength::Unknown).unwrap();
    assert!(talk.http.sends_body());
    talk.out.clear();
    assert_eq!(talk.http.finish(&trailer("content-length"), &mut talk.out), Err(Misuse::TrailerForbidden));
    assert_eq!(talk.http.finish(&trailer("checksum"), &mut talk.out), Ok(After::Next));
    assert_eq!(text(&talk.out), "0\r\nchecksum: 1\r\n\r\n");
    let mut talk = Talk::new(GET);
    talk.head(EMPTY).unwrap();
    assert_eq!(talk.http.finish(&trailer("checksum"), &mut talk.out), Err(Misuse::TrailersWithoutChunks));
    let mut talk = Talk::new("GET / HTTP/1.0\r\n\r\n");
    talk.head(BodyLength::Unknown).unwrap();
    assert_eq!(talk.http.finish(&trailer("checksum"), &mut talk.out), Ok(After::Close));
}

#[test]
fn trailers_of_one_request_are_gone_in_the_next() {
    let mut talk = Talk::new("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(talk.body("0\r\nA: b\r\n\r\n"), Ok((11, BodyEvent::End)));
    assert_eq!(talk.http.trailers().len(), 1);
    assert_eq!(talk.answer(), After::Next);
    talk.http.next_request();
    assert_eq!(talk.http.trailers().len(), 0);
}

#[test]
fn an_upgrade_waits_for_the_body() {
    let request =
        "POST / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: a\r\nContent-Length: 1\r\n\r\n";
    let (mut talk, mut request_head) = (Talk { http: Http1::new(), out: Vec::new() }, Head::default());
    talk.http.read_head(request.as_bytes(), &Limits::default(), &mut request_head).unwrap();
    let fields = [(HeaderName::from_static("upgrade"), HeaderValue::from_static("a"))];
    let head =
        ResponseHead { status: StatusCode::SWITCHING_PROTOCOLS, fields: &fields, ..ResponseHead::default() };
    let switch = |talk: &mut Talk| {
        let date = Date::at(SystemTime::UNIX_EPOCH);
        talk.http.write_switch(&head, &request_head, request.as_bytes(), &date, &mut talk.out)
    };
    assert_eq!(switch(&mut talk), Err(Misuse::UpgradeNotPossible));
    talk.body("a").unwrap();
    assert_eq!(switch(&mut talk), Ok(()));
    assert!(!talk.http.sends_body());
    assert_eq!(talk.finish(), Ok(After::Close));
}

/// RFC 9110 section 9.3.2.
#[test]
fn a_head_request_with_a_fault_is_refused_without_content() {
    for (request, has_content) in [
        ("HEAD / HTTP/1.1\r\n\r\n", false),
        ("\r\nHEAD / HTTP/1.1\r\nHost : h\r\n\r\n", false),
        ("HEAD / HTTP/2.0\r\n\r\n", false),
        ("GET / HTTP/1.1\r\n\r\n", true),
        ("HEADER / HTTP/1.1\r\n\r\n", true),
        ("head / HTTP/1.1\r\n\r\n", true),
    ] {
        let mut talk = Talk { http: Http1::new(), out: Vec::new() };
        talk.read(request).unwrap_err();
        talk.head(BodyLength::Exact(3)).unwrap();
        talk.write("why").unwrap();
        assert_eq!(talk.finish(), Ok(After::Linger), "{request:?}");
        let said = text(&talk.out);
        assert!(said.contains("Content-Length: 3\r\n"), "{said}");
        assert_eq!(said.ends_with("why"), has_content, "{request:?}: {said}");
    }
}

#[test]
fn a_fault_in_a_body_ends_the_connection_after_the_response_in_progress() {
    let mut talk = Talk::new("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    talk.head(EMPTY).unwrap();
    assert_eq!(talk.body("x"), Err(Fault::ChunkSizeInvalid));
    assert_eq!(talk.body("0\r\n\r\n"), Err(Fault::ChunkSizeInvalid));
    assert_eq!(talk.finish(), Ok(After::Linger));
    talk.http.next_request();
    assert_eq!(talk.read(GET), Err(Fault::ChunkSizeInvalid));
}

#[test]
fn request_is_read() {
    let mut talk = Talk { http: Http1::new(), out: Vec::new() };
    assert!(talk.http.request_is_read());
    talk.read("GET / HT").unwrap();
    assert!(!talk.http.request_is_read());
    talk.read(POST).unwrap();
    assert!(!talk.http.request_is_read());
    talk.body("abc").unwrap();
    assert!(talk.http.request_is_read());
    let mut talk = Talk { http: Http1::new(), out: Vec::new() };
    talk.read("\0").unwrap_err();
    assert!(!talk.http.request_is_read(), "nobody knows where it ends");
}
