//! The handler of a routes enum: it finds the route of each request and calls one function.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::{MatchError, MethodFilter, Route, Routes};
use crate::app::extract::IntoHandler;
use crate::error::Result;
use crate::message::{Blocking, Handler, IntoResponse, Request, RequestLine, RequiredState, Response};

/// Creates a handler that finds the route of each request and calls `handler` with it.
///
/// `handler` is one function with a `match` over all routes. It may be a closure that owns shared values:
/// `routes(move |route, req: &mut Request| app.answer(route, req))`. See [`Routes`].
pub fn routes<T, F, R>(handler: F) -> RoutesHandler<T, F>
where
    T: Routes,
    F: Fn(T, &mut Request<'_>) -> R + Send + Sync + 'static,
    R: IntoResponse,
{
    RoutesHandler { handler, fallback: None, routes: PhantomData }
}

/// The handler that [`routes`] creates.
pub struct RoutesHandler<T, F> {
    handler: F,
    fallback: Option<Arc<dyn Handler>>,
    routes: PhantomData<fn() -> T>,
}

impl<T, F> RoutesHandler<T, F> {
    /// Sets the handler for requests that no route matches, or whose handler [declines](Response::decline). It
    /// replaces the 404, but not the 405 or 400.
    ///
    /// ```
    /// # use weftwork::prelude::*;
    /// # #[derive(Routes)]
    /// # enum Site { #[get("/")] Home }
    /// # fn site(_: Site, _: &mut Request) -> &'static str { "home" }
    /// let handler = routes(site).fallback(|| (StatusCode::NOT_FOUND, "no such page\n"));
    /// # let mut client = weftwork::TestClient::new(handler);
    /// # assert_eq!(client.get("/x").send().text(), "no such page\n");
    /// # assert_eq!(client.get("/").send().text(), "home");
    /// ```
    #[must_use]
    pub fn fallback<M>(self, handler: impl IntoHandler<M>) -> RoutesHandler<T, F> {
        RoutesHandler { fallback: Some(Arc::new(handler.into_handler())), ..self }
    }
}

impl<T, F, R> Handler for RoutesHandler<T, F>
where
    T: Routes,
    F: Fn(T, &mut Request<'_>) -> R + Send + Sync + 'static,
    R: IntoResponse,
{
    fn call(&self, req: &mut Request<'_>) -> Response {
        match T::from_request(req) {
            Ok(route) => {
                let mut response = (self.handler)(route, req).into_response();
                req.blame(&mut response);
                if response.is_declined() {
                    self.fall_back(&mut response, req);
                }
                response
            }
            Err(error) => self.refuse(error, req, T::ROUTES),
        }
    }

    /// Returns the blocking behaviour of a request's route. Engines learn each route separately.
    fn blocking(&self, line: &RequestLine<'_>) -> Blocking {
        let own = T::blocking_of(MethodFilter::of(line.method()), line.path_bytes());
        own.or_else(|| Some(self.fallback.as_ref()?.blocking(line))).unwrap_or(Blocking::Never)
    }

    fn reads_ahead(&self, line: &RequestLine<'_>) -> bool {
        match (T::reads_ahead(MethodFilter::of(line.method()), line.path_bytes()), &self.fallback) {
            (Some(ahead), _) => ahead,
            (None, Some(fallback)) => fallback.reads_ahead(line),
            (None, None) => true,
        }
    }

    fn pattern(&self, line: &RequestLine<'_>) -> Option<Cow<'_, str>> {
        let own = T::pattern(MethodFilter::of(line.method()), line.path_bytes());
        own.or_else(|| self.fallback.as_ref()?.pattern(line))
    }

    fn normal_path(&self, line: &RequestLine<'_>) -> Option<String> {
        let is_own = T::pattern(MethodFilter::of(line.method()), line.path_bytes()).is_some();
        self.fallback.as_ref().filter(|_| !is_own)?.normal_path(line)
    }

    fn check(&self) -> Result<()> {
        self.fallback.as_ref().map_or(Ok(()), |fallback| fallback.check())
    }

    fn needs(&self) -> Vec<RequiredState> {
        self.fallback.as_ref().map_or(Vec::new(), |fallback| fallback.needs())
    }
}

impl<T, F> RoutesHandler<T, F> {
    #[cold]
    fn fall_back(&self, declined: &mut Response, req: &mut Request<'_>) {
        if let Some(fallback) = &self.fallback {
            *declined = fallback.call(req);
        }
    }

    #[cold]
    fn refuse(&self, error: MatchError, req: &mut Request<'_>, routes: &[Route]) -> Response {
        match (error, &self.fallback) {
            // RFC 9110 section 9.3.7: `*` asks about the server as a whole.
            (MatchError::NotFound, _) if req.path() == "*" => {
                MatchError::MethodNotAllowed(all(routes)).answer(req)
            }
            (MatchError::NotFound, Some(fallback)) => fallback.call(req),
            (error, _) => error.answer(req),
        }
    }
}

fn all(routes: &[Route]) -> MethodFilter {
    let methods = routes
        .iter()
        .fold(MethodFilter::NONE, |methods, route| methods.or(route.methods).or(all(route.nested)));
    if methods.intersects(MethodFilter::GET) { methods.or(MethodFilter::HEAD) } else { methods }
}

impl<T, F> fmt::Debug for RoutesHandler<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoutesHandler").finish_non_exhaustive()
    }
}
