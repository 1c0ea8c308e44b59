//! The crate `h2` beside this codec, in both roles: what one writes, the other reads the same.

use std::collections::VecDeque;
use std::future::Future;
use std::io::Result as IoResult;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::SystemTime;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version};
use proptest::collection::vec;
use proptest::prelude::*;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::stream_response::StreamResponse;
use super::*;
use crate::{BodyLength, Date, ResponseHead};

/// The side of `h2` of a connection in memory.
#[derive(Clone, Default)]
struct Wire(Arc<Mutex<Ends>>);

#[derive(Default)]
struct Ends {
    to_h2: VecDeque<u8>,
    from_h2: Vec<u8>,
}

impl Wire {
    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<IoResult<()>> {
        let mut ends = self.ends();
        if ends.to_h2.is_empty() {
            return Poll::Pending;
        }
        let len = ends.to_h2.len().min(buf.remaining());
        buf.put_slice(&ends.to_h2.drain(..len).collect::<Vec<u8>>());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<IoResult<usize>> {
        self.ends().from_h2.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<IoResult<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<IoResult<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Polls once. No waker is needed: the tests know when there is something to read.
fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Our side of the connection.
struct Ours {
    http: Http2,
    input: Vec<u8>,
    head: Head,
    text: Vec<u8>,
    wire: Wire,
}

impl Ours {
    fn new(http: Http2, wire: &Wire) -> Ours {
        let mut ours =
            Ours { http, input: Vec::new(), head: Head::default(), text: Vec::new(), wire: wire.clone() };
        ours.write(|http, out| http.write_preface(out));
        ours
    }

    fn write<T>(&mut self, write: impl FnOnce(&mut Http2, &mut Vec<u8>) -> T) -> T {
        let mut out = Vec::new();
        let result = write(&mut self.http, &mut out);
        self.wire.ends().to_h2.extend(out);
        result
    }

    /// All that `h2` has written since. Its SETTINGS are acknowledged.
    fn read(&mut self) -> Vec<Seen> {
        self.input.append(&mut self.wire.ends().from_h2);
        let mut talk = Talk::default();
        loop {
            let limits = Limits::default();
            let read = self.http.read(&self.input, &limits, &mut self.head, &mut self.text);
            let (used, frame) = read.unwrap();
            if frame == Frame::NeedMore {
                break;
            }
            if matches!(frame, Frame::Settings { .. }) {
                self.write(|_, out| Http2::write_settings_ack(out));
            }
            note(frame, &self.input[..used], &self.head, &self.text, &mut talk);
            self.input.drain(..used);
        }
        talk.events.retain(|event| !matches!(event, Seen::Other(_)));
        talk.events
    }
}

fn pairs(map: &HeaderMap) -> Vec<(String, String)> {
    map.iter().map(|(name, value)| (name.to_string(), text(value.as_bytes()))).collect()
}

fn map(fields: &[(HeaderName, HeaderValue)]) -> HeaderMap {
    fields.iter().cloned().collect()
}

fn content(events: &[Seen]) -> (String, bool) {
    let (mut all, mut ended) = (String::new(), false);
    for event in events {
        if let Seen::Data { content, ends, .. } = event {
            all += content;
            ended = *ends;
        }
    }
    (all, ended)
}

/// Fields in the order that a map has them: each name once.
fn any_fields() -> impl Strategy<Value = Vec<(HeaderName, HeaderValue)>> {
    let names = prop_oneof!["x-[a-z0-9_-]{1,20}", Just("user-agent".to_owned()), Just("etag".to_owned())];
    let values = prop_oneof!["([!-~]([ -~]{0,60}[!-~])?)?", "[!-~]{200,400}", "é{1,20}"];
    vec((names, values), 0..8).prop_map(|fields| {
        let mut unique: Vec<(HeaderName, HeaderValue)> = Vec::new();
        for (name, value) in fields {
            let (name, value) =
                (HeaderName::try_from(name).unwrap(), HeaderValue::from_bytes(value.as_bytes()).unwrap());
            if unique.iter().all(|(other, _)| *other != name) {
                unique.push((name, value));
            }
        }
        unique
    })
}

fn any_body() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![Just(vec![]), vec(any::<u8>(), 1..100), vec(any::<u8>(), 20_000..40_000)]
}

/// The fields that are not the codec's own.
fn sorted(mut fields: Vec<(String, String)>) -> Vec<(String, String)> {
    fields.retain(|(name, _)| !matches!(name.as_str(), "date" | "host" | "content-length"));
    fields.sort();
    fields
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// `h2` sends requests, and reads our responses.
    #[test]
    fn h2_as_client(
        exchanges in vec((any_fields(), any_body(), "/[a-z/._~-]{0,30}(\\?[a-z=&]{0,20})?", any_fields(), any_body(), 200u16..500), 1..4),
    ) {
        let wire = Wire::default();
        let mut ours = Ours::new(Http2::server(&Http2Settings::default()), &wire);
        let mut handshake = pin!(h2::client::handshake(wire.clone()));
        let Poll::Ready(Ok((mut sender, connection))) = poll(handshake.as_mut()) else { panic!("no handshake") };
        let mut connection = pin!(connection);
        for (fields, body, path, reply_fields, reply_body, status) in exchanges {
            prop_assert!(poll(connection.as_mut()).is_pending());
            let uri = format!("http://example.org:81{path}");
            let mut request = Request::post(uri).version(Version::HTTP_2).body(()).unwrap();
            *request.headers_mut() = map(&fields);
            let (response, mut stream) = sender.send_request(request, false).unwrap();
            stream.send_data(Bytes::from(body.clone()), true).unwrap();
            prop_assert!(poll(connection.as_mut()).is_pending());
            let events = ours.read();
            let Seen::Head { stream: id, ends: false, head, .. } = &events[0] else { panic!("{events:?}") };
            prop_assert_eq!(&head.target, &path);
            prop_assert_eq!((head.method.as_str(), head.authority.as_deref()), ("POST", Some("example.org:81")));
            prop_assert_eq!(sorted(head.fields.clone()), sorted(pairs(&map(&fields))));
            prop_assert_eq!(content(&events), (text(&body), true));

            let status = StatusCode::from_u16(status).unwrap();
            let head = ResponseHead { status, fields: &reply_fields, length: BodyLength::Unknown, ..ResponseHead::default() };
            let trailers = [(HeaderName::from_static("x-sum"), HeaderValue::from_static("7"))];
            let mut reply = StreamResponse::new(*id, Method::POST);
            reply.write(|http, out| {
                http.write_interim(StatusCode::EARLY_HINTS, &reply_fields, out).unwrap();
                http.write_head(&head, &Date::at(SystemTime::UNIX_EPOCH), out).unwrap();
                http.write_body(&reply_body, out).unwrap();
                let trailers: &[_] = if http.sends_body() { &trailers } else { &[] };
                http.finish(trailers, out).unwrap();
            });
            ours.write(|_, out| {
                out.extend(reply.frames());
                // What the client sent is granted again.
                Http2::write_window_update(0, body.len().max(1) as u32, out);
            });
            prop_assert!(poll(connection.as_mut()).is_pending());
            let Poll::Ready(Ok(answer)) = poll(pin!(response)) else { panic!("no response") };
            let (parts, mut answer) = answer.into_parts();
            prop_assert_eq!(parts.status, status);
            prop_assert_eq!(sorted(pairs(&parts.headers)), sorted(pairs(&map(&reply_fields))));
            if status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED || status == StatusCode::RESET_CONTENT {
                prop_assert!(answer.is_end_stream());
                continue;
            }
            let mut received = Vec::new();
            while let Poll::Ready(Some(part)) = poll(pin!(std::future::poll_fn(|context| answer.poll_data(context)))) {
                let part = part.unwrap();
                answer.flow_control().release_capacity(part.len()).unwrap();
                received.extend_from_slice(&part);
            }
            prop_assert_eq!(received, reply_body);
            let Poll::Ready(Ok(Some(end))) = poll(pin!(std::future::poll_fn(|context| answer.poll_trailers(context)))) else {
                panic!("no trailers")
            };
            prop_assert_eq!(pairs(&end), [("x-sum".to_owned(), "7".to_owned())]);
        }
    }

    /// `h2` reads our requests, and sends responses.
    #[test]
    fn h2_as_server(
        exchanges in vec((any_fields(), any_body(), "/[a-z/._~-]{0,30}(\\?[a-z=&]{0,20})?", any_fields(), any_body(), 200u16..500), 1..4),
    ) {
        let wire = Wire::default();
        let mut ours = Ours::new(Http2::client(&Http2Settings::default()), &wire);
        let mut handshake = pin!(h2::server::handshake(wire.clone()));
        let Poll::Ready(Ok(mut connection)) = poll(handshake.as_mut()) else { panic!("no handshake") };
        for (fields, body, path, reply_fields, reply_body, status) in exchanges {
            let head = RequestHead {
                method: &Method::PUT,
                scheme: Some("https"),
                path: Some(&path),
                authority: Some("example.org"),
                protocol: None,
                fields: &fields,
            };
            let id = ours.write(|http, out| {
                let id = http.write_request(&head, false, out).unwrap();
                Http2::write_data(id, &body, true, out);
                id
            });
            let accepted = poll(pin!(std::future::poll_fn(|context| connection.poll_accept(context))));
            let Poll::Ready(Some(Ok((request, mut respond)))) = accepted else { panic!("no request") };
            prop_assert_eq!(request.uri().to_string(), format!("https://example.org{path}"));
            prop_assert_eq!(request.method(), Method::PUT);
            prop_assert_eq!(sorted(pairs(request.headers())), sorted(pairs(&map(&fields))));
            let (mut received, mut incoming) = (Vec::new(), request.into_body());
            while let Poll::Ready(Some(part)) = poll(pin!(std::future::poll_fn(|context| incoming.poll_data(context)))) {
                let part = part.unwrap();
                incoming.flow_control().release_capacity(part.len()).unwrap();
                received.extend_from_slice(&part);
            }
            prop_assert_eq!(received, body);

            let mut response = Response::builder().status(status).body(()).unwrap();
            *response.headers_mut() = map(&reply_fields);
            let mut sending = respond.send_response(response, false).unwrap();
            sending.send_data(Bytes::from(reply_body.clone()), false).unwrap();
            sending.send_trailers(map(&[(HeaderName::from_static("x-sum"), HeaderValue::from_static("7"))])).unwrap();
            let next = poll(pin!(std::future::poll_fn(|context| connection.poll_accept(context))));
            prop_assert!(next.is_pending());
            let events = ours.read();
            let Seen::Response { stream, status: seen, ends: false, fields } = &events[0] else { panic!("{events:?}") };
            prop_assert_eq!((*stream, *seen), (id, status));
            prop_assert_eq!(sorted(fields.clone()), sorted(pairs(&map(&reply_fields))));
            prop_assert_eq!(content(&events), (text(&reply_body), false));
            let trailers = vec![("x-sum".to_owned(), "7".to_owned())];
            prop_assert_eq!(events.last(), Some(&Seen::Trailers { stream: id, fields: trailers }));
            ours.write(|_, out| Http2::write_window_update(0, reply_body.len().max(1) as u32, out));
        }
    }
}

/// Heads that are nearly right.
fn any_head() -> impl Strategy<Value = Vec<(String, String)>> {
    const PSEUDO: [&str; 6] = [":path", ":method", ":scheme", ":authority", ":protocol", ":status"];
    let more = (proptest::sample::select(&PSEUDO[..]), "[ -~]{0,4}")
        .prop_map(|(name, value)| vec![(name.to_owned(), value)]);
    let pseudo = prop_oneof![9 => Just(vec![]), 1 => more];
    let path = prop_oneof![4 => "/[!-~]{0,8}", 1 => "/[ -~]{0,8}", 1 => "[/*?#%0-9a-f]{0,6}"];
    let authority = prop_oneof![
        6 => "[a-z.]{1,5}(:[0-9]{0,5})?",
        1 => "[a-z:@0-9\\[\\]]{0,6}",
        1 => "\\[[0-9a-f:]{2,9}\\](:8)?",
    ];
    let method = prop_oneof![9 => "GET|OPTIONS|X-[!-~]", 1 => Just("CONNECT".to_owned()), 1 => "[ -~]{0,3}"];
    let names = prop_oneof![
        20 => "[a-z-]{1,5}",
        1 => "[ -~]{0,3}",
        1 => "te|connection|host|content-length|upgrade|cookie",
    ];
    let values = prop_oneof![20 => "[!-~]{0,4}", 1 => "[\\t-~]{0,3}", 1 => "trailers", 1 => "[0-9]{1,2}"];
    let fields = vec((names, values), 0..4);
    (method, path, authority, pseudo, fields, any::<bool>()).prop_map(
        |(method, path, authority, pseudo, fields, late)| {
            let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
            let mut head = vec![pair(":method", &method), pair(":scheme", "https")];
            head.extend([pair(":path", &path), pair(":authority", &authority)]);
            let (first, last) = if late { (fields, pseudo) } else { (pseudo, fields) };
            head.into_iter().chain(first).chain(last).collect()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// A head that is accepted here is accepted there, with the same parts.
    #[test]
    fn h2_accepts_what_is_accepted_here(head in any_head()) {
        let fields: Vec<_> = head.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let bytes = headers(1, false, &fields);
        let talk = talk_within(&Limits::default(), &bytes);
        let [Seen::Head { head: ours, .. }] = &talk.events[..] else { return Ok(()) };
        let wire = Wire::default();
        wire.ends().to_h2.extend([PREFACE, &frame(kind::SETTINGS, 0, 0, b""), &bytes].concat());
        let mut builder = h2::server::Builder::new();
        let mut handshake = pin!(builder.enable_connect_protocol().handshake::<_, Bytes>(wire.clone()));
        let Poll::Ready(Ok(mut connection)) = poll(handshake.as_mut()) else { panic!("no handshake") };
        let accepted = poll(pin!(std::future::poll_fn(|context| connection.poll_accept(context))));
        let Poll::Ready(Some(Ok((request, _)))) = accepted else { panic!("{head:?} is refused by h2") };
        prop_assert_eq!(request.method().as_str(), &ours.method);
        let (uri, protocol) = (request.uri(), request.extensions().get::<h2::ext::Protocol>());
        prop_assert_eq!(protocol.map(|protocol| protocol.as_str()), ours.protocol.as_deref());
        if ours.path != "*" {
            prop_assert_eq!((uri.path(), uri.query()), (ours.path.as_str(), ours.query.as_deref()));
        }
        prop_assert_eq!(uri.authority().map(|authority| authority.as_str()), ours.authority.as_deref());
        let theirs = pairs(request.headers());
        let not_synthetic = |(name, _): &&(String, String)| name != "host" || request.headers().contains_key("host");
        let mut ours: Vec<_> = ours.fields.iter().filter(not_synthetic).cloned().collect();
        let mut theirs = theirs;
        ours.sort();
        theirs.sort();
        prop_assert_eq!(ours, theirs);
    }
}
