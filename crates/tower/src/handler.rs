//! A service of tower as a handler.

use std::error::Error as StdError;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use http_body::Body;
use tower_service::Service;
use weftwork::{Error, Handler, IntoResponse, Request, RequestLine, Response};

use crate::body::RequestBody;
use crate::place::Place;
use crate::request;
use crate::response::{self, Wanted};

/// Errors of services and of bodies.
pub(crate) type BoxError = Box<dyn StdError + Send + Sync>;

type Extend = dyn Fn(&Request<'_>, &mut Extensions) + Send + Sync;

/// Makes a handler of a service, such as an axum `Router` or the `Routes` of tonic.
///
/// The service is cloned for each request. With the feature `tokio`, it is polled in the context of the runtime on whose thread
/// this is called, as in `#[tokio::main]`. Elsewhere that is `weftwork_tokio::Tokio::shared`. See `TowerHandler::tokio`.
pub fn serve_tower<S: 'static>(service: S) -> TowerHandler<S> {
    #[cfg(feature = "axum")]
    let service = with_routes(service);
    TowerHandler {
        service,
        extend: Vec::new(),
        timeout: None,
        body_bytes_max: None,
        is_detached: false,
        place: Place::here(),
    }
}

/// Makes the routes of an axum `Router` once. Without a state, axum makes them for each request, and its layers with them: a
/// limit of concurrency would limit nothing.
#[cfg(feature = "axum")]
fn with_routes<S: 'static>(mut service: S) -> S {
    let any: &mut dyn std::any::Any = &mut service;
    if let Some(router) = any.downcast_mut::<axum::Router>() {
        *router = std::mem::take(router).with_state(());
    }
    service
}

/// A service of tower as a [`Handler`]. See [`serve_tower`].
#[derive(Clone)]
pub struct TowerHandler<S> {
    service: S,
    extend: Vec<Arc<Extend>>,
    timeout: Option<Duration>,
    body_bytes_max: Option<u64>,
    is_detached: bool,
    place: Place,
}

impl<S> TowerHandler<S> {
    /// Calls `extend` for each request, to add extensions that the service looks for. The extensions that middleware has
    /// added are there already.
    #[must_use]
    pub fn extensions(
        mut self,
        extend: impl Fn(&Request<'_>, &mut Extensions) + Send + Sync + 'static,
    ) -> TowerHandler<S> {
        self.extend.push(Arc::new(extend));
        self
    }

    /// Sets the time until the head of the response must be there. After it, the client gets 503, and the future is
    /// dropped. Default: the setting [`request_timeout`](weftwork::Settings::request_timeout), or 60 s if that is 0.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> TowerHandler<S> {
        TowerHandler { timeout: Some(timeout), ..self }
    }

    /// Sets the maximum number of bytes of a request body. Default: the setting
    /// [`body_bytes_max`](weftwork::Settings::body_bytes_max), 2 MiB. `u64::MAX` leaves the limit to the service.
    #[must_use]
    pub fn body_bytes_max(self, bytes: u64) -> TowerHandler<S> {
        TowerHandler { body_bytes_max: Some(bytes), ..self }
    }

    /// Lets the service finish a request whose client has left, or whose time is up. By default, its future is dropped then,
    /// at whichever `.await` it waits. Use it for routes that must not stop halfway, such as a payment.
    #[must_use]
    pub fn detached(self) -> TowerHandler<S> {
        TowerHandler { is_detached: true, ..self }
    }

    /// Polls the service in the context of this runtime, which timers, sockets and `tokio::spawn` need. Bodies of responses
    /// that are not ready at once are sent by a task of the runtime.
    ///
    /// The runtime must be driven: a multi-thread one, or a current-thread one whose `block_on` runs. Otherwise a timer
    /// never ends, and the server says so in the log when it starts.
    #[cfg(feature = "tokio")]
    #[must_use]
    pub fn tokio(self, runtime: impl Into<weftwork_tokio::Tokio>) -> TowerHandler<S> {
        TowerHandler { place: self.place.on(runtime.into()), ..self }
    }

    /// Runs each request as a task of this runtime. Use it for services that need a task: `tokio::task::id`,
    /// `block_in_place`, tokio's budget. It takes two messages between threads more than the default.
    #[cfg(feature = "tokio")]
    #[must_use]
    pub fn spawned(self, runtime: impl Into<weftwork_tokio::Tokio>) -> TowerHandler<S> {
        TowerHandler { place: self.place.on(runtime.into()).spawned(), ..self }
    }
}

impl<S, B> Handler for TowerHandler<S>
where
    S: Service<http::Request<RequestBody>, Response = http::Response<B>> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    /// The service reads the body as it arrives, so the connection does not wait for it.
    fn reads_ahead(&self, _: &RequestLine<'_>) -> bool {
        false
    }

    fn call(&self, req: &mut Request<'_>) -> Response {
        if let Some(bytes) = self.body_bytes_max {
            req.set_body_bytes_max(bytes);
        }
        let mut head = match request::take_head(req) {
            Ok(head) => head,
            Err(problem) => return problem.into_response(),
        };
        #[cfg(feature = "axum")]
        if let Some(peer) = req.peer_addr() {
            head.extensions_mut().insert(axum::extract::ConnectInfo(peer));
        }
        for extend in &self.extend {
            extend(req, head.extensions_mut());
        }
        #[cfg(feature = "upgrade")]
        let upgrade = crate::upgrade::Upgrade::offer(&mut head);
        let wanted = Wanted {
            method: req.method().clone(),
            place: self.place.clone(),
            #[cfg(feature = "upgrade")]
            upgrade,
        };
        let request = request::with_body(head, RequestBody::take(req));
        let future = answer(self.service.clone(), request, wanted);
        self.place.poll(future, self.is_detached, self.timeout)
    }
}

/// Calls the service when it is ready.
async fn answer<S, B>(mut service: S, request: http::Request<RequestBody>, wanted: Wanted) -> Response
where
    S: Service<http::Request<RequestBody>, Response = http::Response<B>>,
    S::Error: Into<BoxError>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let answered = async {
        poll_fn(|cx| service.poll_ready(cx)).await.map_err(S::Error::into)?;
        service.call(request).await.map_err(S::Error::into)
    };
    match answered.await {
        Ok(response) => response::of(response, wanted).await,
        Err(error) => {
            let error: BoxError = error;
            Error::boxed(error).into_response()
        }
    }
}

impl<S> fmt::Debug for TowerHandler<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TowerHandler").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
