//! The server of axum's own tests, on Weftwork. The script `scripts/axum-suite` puts this file into a copy of axum.

use super::{Request, Response};
use crate::body::Body;
use std::{
    convert::Infallible,
    sync::{Mutex, PoisonError},
    task::{Context, Poll},
};
use tower_service::Service;
use weftwork_tower::{RequestBody, serve_tower};

/// Serves on the engine that `ENGINE` names, or over hyper without it, until the runtime ends. With `SPAWNED`, each request is a
/// task.
pub(super) async fn serve<S>(listener: tokio::net::TcpListener, service: S)
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    let Ok(engine) = std::env::var("ENGINE") else {
        super::serve(listener, tower::make::Shared::new(service)).await.expect("hyper serves");
        return;
    };
    let mut handler = serve_tower(Shared(Mutex::new(service))).body_bytes_max(u64::MAX);
    if std::env::var_os("SPAWNED").is_some() {
        handler = handler.spawned(tokio::runtime::Handle::current());
    }
    let _running = weftwork::Server::from_listener(listener.into_std().expect("a listener"))
        .expect("a TCP socket")
        .engine(engine.parse().expect("an engine"))
        .settings(|settings| settings.http2_cleartext(true))
        .start(handler)
        .expect("the server starts");
    std::future::pending::<()>().await;
}

/// A service that need not be `Sync`, and whose requests have the body of axum.
struct Shared<S>(Mutex<S>);

impl<S: Clone> Clone for Shared<S> {
    fn clone(&self) -> Shared<S> {
        Shared(Mutex::new(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()))
    }
}

impl<S: Service<Request>> Service<http::Request<RequestBody>> for Shared<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner).poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<RequestBody>) -> S::Future {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner).call(request.map(Body::new))
    }
}
