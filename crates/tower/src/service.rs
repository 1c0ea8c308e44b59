//! A running server as a service of tower, for programs whose listeners belong to axum or hyper.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::fmt;
use std::future::{Future, Ready, ready};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version, header};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tower_service::Service;
use weftwork::{AcceptedSocket, Adopter, Running};

use crate::handler::BoxError;
use crate::response::OF_CONNECTION;

type RequestParts = Pin<Box<dyn Body<Data = Bytes, Error = BoxError> + Send>>;

/// Makes a service of a running server, to mount handlers in an axum `Router` or in another program of hyper.
///
/// Handlers run on the engine of their server, so a handler that blocks holds up no task. All settings of the server apply. A
/// request passes through a socket pair, and a pool keeps the connections. The service must be called in a tokio runtime with
/// I/O and time. Bodies are streamed both ways. An upgrade works over HTTP/1.1, if the outer server is hyper. Clones
/// share the connections, so clone the service rather than call this function twice.
///
/// The handler sees a peer without an address, and no extensions:
///
/// - [`RateLimit`](weftwork::middleware::RateLimit) limits nobody, unless it has a key of its own.
/// - If `trusted_proxies` has `unix`, the outer server must replace the forwarding fields of its clients.
/// - The setting `proxy_protocol` must be off.
///
/// The service has no errors of its own, as axum wants. Its response is 503 if the server has ended, or has
/// [`connections_max`](weftwork::Settings::connections_max) connections. The response is 502 if that of the server breaks off before its
/// head. The service does not keep the server alive.
///
/// ```
/// use tower_service::Service;
/// use weftwork::{Request, Server, http};
/// use weftwork_tower::into_service;
///
/// let running = Server::unbound().start(|req: &mut Request| format!("{} may block\n", req.path()))?;
/// let mut service = into_service(&running); // In axum: Router::new().fallback_service(into_service(&running))
///
/// let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// let request = http::Request::get("/tea").body(String::new()).unwrap();
/// let response = runtime.block_on(service.call(request)).unwrap();
/// assert_eq!(response.status(), 200);
/// # weftwork::Result::<()>::Ok(())
/// ```
pub fn into_service(running: &Running) -> WeftService {
    let connector = Connector(running.adopter());
    WeftService { client: Client::builder(TokioExecutor::new()).build(connector) }
}

/// A running server as a [`Service`]. See [`into_service`].
#[derive(Clone)]
pub struct WeftService {
    client: Client<Connector, RequestParts>,
}

impl<B> Service<http::Request<B>> for WeftService
where
    B: Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = http::Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    /// The service is always ready: the server itself limits its connections.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let client = self.client.clone();
        let (mut head, body) = request.into_parts();
        let outer = head.extensions.remove::<OnUpgrade>();
        head.extensions.clear();
        let is_valid = prepare(&mut head, outer.is_some());
        let body: RequestParts = Box::pin(RequestBytes(Box::pin(body)));
        Box::pin(async move {
            if !is_valid {
                return Ok(refusal(StatusCode::BAD_REQUEST, "the request target is not a valid URI"));
            }
            Ok(match client.request(http::Request::from_parts(head, body)).await {
                Ok(response) => passed_on(response, outer),
                Err(error) if error.is_connect() => {
                    log::warn!("a request does not reach its server: {}", cause(&error));
                    refusal(StatusCode::SERVICE_UNAVAILABLE, "the server of this service takes no requests")
                }
                Err(error) => {
                    log::warn!("a response broke off before its head: {}", cause(&error));
                    refusal(StatusCode::BAD_GATEWAY, "the response broke off")
                }
            })
        })
    }
}

impl fmt::Debug for WeftService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeftService").finish_non_exhaustive()
    }
}

/// Makes the head one of HTTP/1.1. Returns false if its target cannot be sent.
fn prepare(head: &mut http::request::Parts, can_upgrade: bool) -> bool {
    // A request of HTTP/2 has it in its target. Otherwise the target wins too (RFC 9112 section 3.2.2).
    if let Some(authority) = head.uri.authority()
        && let Ok(host) = HeaderValue::try_from(authority.as_str())
    {
        head.headers.insert(header::HOST, host);
    }
    let mut target = std::mem::take(&mut head.uri).into_parts();
    // Names the connections of the pool, and is not sent.
    target.scheme = Some(Scheme::HTTP);
    target.authority = Some(Authority::from_static("weftwork"));
    target.path_and_query.get_or_insert_with(|| PathAndQuery::from_static("/"));
    let protocol = head.headers.remove(header::UPGRADE).filter(|_| can_upgrade);
    remove_fields_of_connection(&mut head.headers);
    if let Some(protocol) = protocol {
        ask_for_upgrade(&mut head.headers, protocol);
    }
    head.version = Version::HTTP_11;
    Uri::from_parts(target).map(|target| head.uri = target).is_ok()
}

fn ask_for_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, protocol);
}

/// Removes the fields of a connection, and those that `Connection` names.
fn remove_fields_of_connection(headers: &mut HeaderMap) {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let names = values.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse().ok());
    // The field TE decides on trailers, which are passed on.
    let named: Vec<HeaderName> = names.filter(|name| *name != header::TE).collect();
    for name in named.iter().chain(&OF_CONNECTION) {
        headers.remove(name);
    }
}

/// Makes the response that of the outer server, and joins both clients after an upgrade.
fn passed_on(
    mut response: http::Response<Incoming>,
    outer: Option<OnUpgrade>,
) -> http::Response<ResponseBody> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS
        && let Some(outer) = outer
    {
        tokio::spawn(join(outer, hyper::upgrade::on(&mut response)));
    } else {
        let is_required = response.status() == StatusCode::UPGRADE_REQUIRED;
        let protocol = response.headers_mut().remove(header::UPGRADE).filter(|_| is_required);
        remove_fields_of_connection(response.headers_mut());
        if let Some(protocol) = protocol {
            ask_for_upgrade(response.headers_mut(), protocol);
        }
    }
    response.map(|body| ResponseBody(Source::Server(body)))
}

async fn join(outer: OnUpgrade, inner: OnUpgrade) {
    // Each side finds the end of the other.
    if let (Ok(outer), Ok(inner)) = (outer.await, inner.await) {
        let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(outer), &mut TokioIo::new(inner)).await;
    }
}

fn refusal(status: StatusCode, why: &'static str) -> http::Response<ResponseBody> {
    let mut response = http::Response::new(ResponseBody(Source::Text(Some(why.into()))));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

/// Returns the innermost error, which says most.
fn cause(error: &dyn StdError) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Connects by a socket pair.
#[derive(Clone)]
struct Connector(Adopter);

impl Connector {
    fn connect(&self) -> Result<TokioIo<tokio::net::UnixStream>, BoxError> {
        let (near, far) = UnixStream::pair()?;
        self.0.adopt(AcceptedSocket::new(far).plain())?;
        near.set_nonblocking(true)?;
        Ok(TokioIo::new(tokio::net::UnixStream::from_std(near)?))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<tokio::net::UnixStream>;
    type Error = BoxError;
    type Future = Ready<Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        ready(self.connect())
    }
}

/// Any body of a request, as bytes.
struct RequestBytes<B>(Pin<Box<B>>);

impl<B> Body for RequestBytes<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = self.0.as_mut().poll_frame(cx).map_err(Into::into);
        frame.map_ok(|frame| frame.map_data(|mut data| data.copy_to_bytes(data.remaining())))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// Body of a response of a [`WeftService`]. It is read from the server as the outer server sends it.
#[derive(Debug)]
pub struct ResponseBody(Source);

#[derive(Debug)]
enum Source {
    Server(Incoming),
    /// None after it was read.
    Text(Option<Bytes>),
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Source::Server(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Source::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Server(body) => body.is_end_stream(),
            Source::Text(text) => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Server(body) => body.size_hint(),
            Source::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, Bytes::len) as u64),
        }
    }
}
