//! Upgrades for services that call `hyper::upgrade::on`, such as the WebSockets of axum, and proxies that serve CONNECT.
//!
//! Only hyper makes an `OnUpgrade`. So a connection of hyper is upgraded here over a pipe in memory, and its `OnUpgrade` goes
//! to the service. If the service accepts the upgrade, the other end of the pipe is joined with the client.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderValue, Method, StatusCode, Version, header, response};
use hyper::ext::Protocol;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::upgrade::OnUpgrade;
use weftwork::{Feed, FeedSender, Response, UpgradeHandler};

/// What hyper reads, so that it upgrades.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
/// Polls that the upgrade in memory takes at most.
const POLLS_MAX: usize = 16;
/// Bytes that may wait for the service. The connection reads no more beyond it.
const UNREAD_BYTES_MAX: usize = 64 << 10;

/// An upgrade that a service may accept.
pub(crate) struct Upgrade {
    pipe: Arc<Pipe>,
    asked: Asked,
}

/// What the client asks for.
enum Asked {
    /// A protocol of its field Upgrade.
    Upgrade,
    /// The protocol of an extended CONNECT.
    Extended(HeaderValue),
    /// A tunnel, by CONNECT.
    Tunnel,
}

impl Upgrade {
    /// Puts an `OnUpgrade` into a request whose client asks for another protocol.
    pub(crate) fn offer(head: &mut http::Request<()>) -> Option<Upgrade> {
        let asked = match head.version() {
            _ if *head.method() == Method::CONNECT => Asked::Tunnel,
            _ if !head.headers().contains_key(header::UPGRADE) => return None,
            Version::HTTP_2 => extended_connect(head).map_or(Asked::Upgrade, Asked::Extended),
            _ => Asked::Upgrade,
        };
        let pipe = Arc::new(Pipe::default());
        head.extensions_mut().insert(on_upgrade(&pipe)?);
        Some(Upgrade { pipe, asked })
    }

    /// Joins the client with the service, if the response accepts. To CONNECT, that is any 2xx of a service that has kept the
    /// `OnUpgrade`.
    pub(crate) fn accept(self, head: &mut response::Parts) -> Option<Response> {
        let is_kept = matches!(self.pipe.lock().to_client, ToClient::Unanswered);
        let protocol = match &self.asked {
            Asked::Upgrade if head.status == StatusCode::SWITCHING_PROTOCOLS => {
                Some(head.headers.remove(header::UPGRADE)?)
            }
            Asked::Extended(protocol) if is_kept && head.status.is_success() => Some(protocol.clone()),
            Asked::Tunnel if is_kept && head.status.is_success() => None,
            _ => return None,
        };
        // Bytes of the other protocol follow (RFC 9110 section 8.6).
        head.headers.remove(header::CONTENT_LENGTH);
        let (sender, feed) = Feed::new(crate::feed::LIMITS);
        self.pipe.open(sender);
        let client = ClientEnd { pipe: self.pipe.clone() };
        Some(match protocol {
            Some(protocol) => Response::upgrade_fed(protocol, feed, client),
            None => {
                // A tunnel begins with 2xx in place of 101, and names no protocol.
                let mut tunnel = Response::upgrade_fed(HeaderValue::from_static("tunnel"), feed, client);
                tunnel.remove_header(header::UPGRADE);
                tunnel.with_status(head.status)
            }
        })
    }
}

impl Drop for Upgrade {
    /// A service that does not accept and reads on finds the end.
    fn drop(&mut self) {
        self.pipe.refuse();
    }
}

/// Undoes what weftwork makes of an extended CONNECT (RFC 8441 section 4), so that the service sees what hyper makes of it.
fn extended_connect(head: &mut http::Request<()>) -> Option<HeaderValue> {
    head.headers_mut().remove(header::CONNECTION);
    let protocol = head.headers_mut().remove(header::UPGRADE)?;
    *head.method_mut() = Method::CONNECT;
    head.extensions_mut().insert(Protocol::from(protocol.to_str().ok()?));
    Some(protocol)
}

fn on_upgrade(pipe: &Arc<Pipe>) -> Option<OnUpgrade> {
    pipe.lock().unread.extend_from_slice(REQUEST);
    let taken = Arc::new(Mutex::new(None));
    let take = taken.clone();
    let service = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        *take.lock().unwrap_or_else(PoisonError::into_inner) = Some(hyper::upgrade::on(request));
        let mut response = hyper::Response::new(String::new());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let fields = response.headers_mut();
        fields.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        fields.insert(header::UPGRADE, HeaderValue::from_static("x"));
        ready(Ok::<_, Infallible>(response))
    });
    let connection =
        hyper::server::conn::http1::Builder::new().serve_connection(ServiceEnd(pipe.clone()), service);
    let mut connection = pin!(connection.with_upgrades());
    // All of it is in memory, so it is ready after a few polls.
    let mut cx = Context::from_waker(Waker::noop());
    let is_upgraded =
        (0..POLLS_MAX).any(|_| matches!(connection.as_mut().poll(&mut cx), Poll::Ready(Ok(()))));
    let on_upgrade = taken.lock().unwrap_or_else(PoisonError::into_inner).take();
    pipe.lock().to_client = ToClient::Unanswered;
    on_upgrade.filter(|_| is_upgraded)
}

/// Bytes in both directions.
#[derive(Default)]
struct Pipe {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Bytes of the client.
    unread: BytesMut,
    reader: Option<Waker>,
    /// Wakes the connection when there is room for more.
    client: Option<Waker>,
    client_is_over: bool,
    to_client: ToClient,
    writer: Option<Waker>,
}

#[derive(Default)]
enum ToClient {
    /// hyper writes its 101, which the client does not get.
    #[default]
    Discarded,
    /// The service has not answered yet.
    Unanswered,
    Open(FeedSender),
    Closed,
}

impl Pipe {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, sender: FeedSender) {
        let mut state = self.lock();
        // A service that has closed already has nothing to send.
        if matches!(state.to_client, ToClient::Unanswered) {
            state.to_client = ToClient::Open(sender);
            wake(state.writer.take());
        }
    }

    fn refuse(&self) {
        let mut state = self.lock();
        if matches!(state.to_client, ToClient::Unanswered) {
            state.to_client = ToClient::Closed;
            state.client_is_over = true;
            wake(state.writer.take());
            wake(state.reader.take());
        }
    }

    /// Ends the direction to the client, after what waits. The last sender closes the connection.
    fn close(&self) {
        let mut state = self.lock();
        let before = std::mem::replace(&mut state.to_client, ToClient::Closed);
        drop(state);
        drop(before);
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The end that the connection fills.
struct ClientEnd {
    pipe: Arc<Pipe>,
}

impl UpgradeHandler for ClientEnd {
    fn on_data(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.pipe.lock();
        state.unread.extend_from_slice(bytes);
        wake(state.reader.take());
        Ok(bytes.len())
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.pipe.lock();
        if state.unread.len() < UNREAD_BYTES_MAX {
            return Poll::Ready(Ok(()));
        }
        state.client = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The service learns of the stop in its own way, and may send a last message.
    fn on_shutdown(&mut self) -> bool {
        true
    }
}

impl Drop for ClientEnd {
    fn drop(&mut self) {
        let mut state = self.pipe.lock();
        state.client_is_over = true;
        let unused = std::mem::replace(&mut state.to_client, ToClient::Closed);
        wake(state.reader.take());
        wake(state.writer.take());
        drop(state);
        drop(unused);
    }
}

/// The end that hyper hands to the service.
struct ServiceEnd(Arc<Pipe>);

impl Read for ServiceEnd {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.0.lock();
        if state.unread.is_empty() {
            if state.client_is_over {
                return Poll::Ready(Ok(()));
            }
            state.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = state.unread.len().min(into.remaining());
        into.put_slice(&state.unread[..count]);
        state.unread.advance(count);
        if state.unread.len() <= UNREAD_BYTES_MAX / 2 {
            wake(state.client.take());
        }
        if state.unread.is_empty() {
            // An idle connection holds no buffer.
            state.unread = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl Write for ServiceEnd {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.0.lock();
        match &state.to_client {
            ToClient::Discarded => Poll::Ready(Ok(bytes.len())),
            ToClient::Unanswered => {
                state.writer = Some(cx.waker().clone());
                Poll::Pending
            }
            ToClient::Closed => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            ToClient::Open(sender) => {
                let sender = sender.clone();
                drop(state);
                let sent = match sender.poll_ready(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(is_open) => is_open.and_then(|()| sender.send(Bytes::copy_from_slice(bytes))),
                };
                match sent {
                    Ok(()) => Poll::Ready(Ok(bytes.len())),
                    Err(closed) => Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, closed))),
                }
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.close();
        Poll::Ready(Ok(()))
    }
}

impl Drop for ServiceEnd {
    fn drop(&mut self) {
        self.0.close();
    }
}
