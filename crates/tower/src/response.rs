//! The response of a service of tower as one of Weftwork.

use std::future::poll_fn;
use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use http_body::Body;
use weftwork::Response;

use crate::feed;
use crate::handler::BoxError;
use crate::place::Place;

/// Bytes of a body that are taken before the head is sent.
const GATHERED_BYTES: usize = 64 << 10;

/// Fields that a connection writes itself (RFC 9110 section 7.6.1).
pub(crate) const OF_CONNECTION: [HeaderName; 5] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// What is known of the request of a response.
pub(crate) struct Wanted {
    pub(crate) method: Method,
    pub(crate) place: Place,
    #[cfg(feature = "upgrade")]
    pub(crate) upgrade: Option<crate::upgrade::Upgrade>,
}

/// A body as far as it is ready.
struct Gathered {
    parts: Vec<Bytes>,
    end: End,
}

enum End {
    /// The rest comes later.
    Open,
    Whole(Option<HeaderMap>),
    Failed(BoxError),
}

/// Makes a response. A body that is ready is sent as a whole, and the rest of another one as it comes.
pub(crate) async fn of<B>(response: http::Response<B>, wanted: Wanted) -> Response
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let (mut head, body) = response.into_parts();
    if head.status.is_informational() || head.status == StatusCode::NO_CONTENT {
        // axum adds it to all responses (RFC 9110 section 8.6).
        head.headers.remove(header::CONTENT_LENGTH);
    }
    #[cfg(feature = "upgrade")]
    if let Some(upgrade) = wanted.upgrade
        && let Some(response) = upgrade.accept(&mut head)
    {
        return with_fields(response, head.headers);
    }
    let length = body.size_hint().exact();
    if wanted.method == Method::HEAD {
        return of_head(head, length);
    }
    let mut body = Box::pin(body);
    let Gathered { parts, end } = poll_fn(|cx| Poll::Ready(gather(body.as_mut(), cx))).await;
    let response = match end {
        End::Whole(None) => {
            head.headers.remove(header::CONTENT_LENGTH);
            Response::new(head.status).with_body(joined(parts))
        }
        End::Whole(Some(trailers)) => Response::stream(move |out| {
            write_all(&parts, out)?;
            out.trailers(&fields_of(trailers).collect::<Vec<_>>()).map(drop)
        }),
        End::Failed(error) => Response::stream(move |out| {
            write_all(&parts, out)?;
            Err(io::Error::other(error))
        }),
        End::Open => {
            if let Some(length) = length {
                head.headers.entry(header::CONTENT_LENGTH).or_insert_with(|| length.into());
            }
            let is_endless = is_event_stream(&head.headers);
            let response = feed::start(parts, body, &wanted.place);
            if is_endless { response.endless() } else { response }
        }
    };
    let mut response = response.with_status(head.status);
    // The service says of which type its body is, or that it does not say so.
    response.remove_header(header::CONTENT_TYPE);
    with_fields(response, head.headers)
}

/// Makes the response to HEAD: the length of a body that is not sent. An empty body says nothing of that of a GET.
fn of_head(mut head: http::response::Parts, length: Option<u64>) -> Response {
    if let Some(length) = length.filter(|length| *length > 0) {
        head.headers.entry(header::CONTENT_LENGTH).or_insert_with(|| length.into());
    }
    let mut response = Response::stream(|_| Ok(())).with_status(head.status);
    response.remove_header(header::CONTENT_TYPE);
    with_fields(response, head.headers)
}

fn gather<B>(mut body: Pin<&mut B>, cx: &mut Context<'_>) -> Gathered
where
    B: Body,
    B::Error: Into<BoxError>,
{
    let (mut parts, mut count) = (Vec::new(), 0);
    let end = loop {
        if body.is_end_stream() {
            break End::Whole(None);
        }
        if count >= GATHERED_BYTES {
            break End::Open;
        }
        match poll_part(body.as_mut(), cx) {
            Poll::Pending => break End::Open,
            Poll::Ready(Part::Data(data)) => {
                count += data.len();
                parts.push(data);
            }
            Poll::Ready(Part::End(trailers)) => break End::Whole(trailers),
            Poll::Ready(Part::Failed(error)) => break End::Failed(error),
        }
    };
    Gathered { parts, end }
}

/// What a body has next.
pub(crate) enum Part {
    Data(Bytes),
    /// Nothing follows trailers.
    End(Option<HeaderMap>),
    Failed(BoxError),
}

pub(crate) fn poll_part<B>(body: Pin<&mut B>, cx: &mut Context<'_>) -> Poll<Part>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    body.poll_frame(cx).map(|frame| match frame {
        None => Part::End(None),
        Some(Err(error)) => Part::Failed(error.into()),
        Some(Ok(frame)) => match frame.into_data() {
            Ok(mut data) => Part::Data(data.copy_to_bytes(data.remaining())),
            Err(frame) => Part::End(frame.into_trailers().ok()),
        },
    })
}

fn joined(mut parts: Vec<Bytes>) -> Bytes {
    if parts.len() < 2 {
        return parts.pop().unwrap_or_default();
    }
    let mut whole = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
    for part in parts {
        whole.extend_from_slice(&part);
    }
    whole.freeze()
}

fn write_all(parts: &[Bytes], out: &mut impl Write) -> io::Result<()> {
    parts.iter().try_for_each(|part| out.write_all(part))
}

/// Returns the fields with their names, which a map says once for several values.
pub(crate) fn fields_of(map: HeaderMap) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    let mut last = None;
    map.into_iter().map_while(move |(name, value)| {
        last = name.or(last.take());
        Some((last.clone()?, value))
    })
}

fn with_fields(mut response: Response, map: HeaderMap) -> Response {
    let closes =
        |value: &HeaderValue| value.to_str().is_ok_and(|text| text.to_ascii_lowercase().contains("close"));
    if map.get_all(header::CONNECTION).iter().any(closes) {
        response = response.with_close();
    }
    for (name, value) in fields_of(map) {
        if !OF_CONNECTION.contains(&name) {
            response.append_header(name, value);
        }
    }
    response
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"))
}
