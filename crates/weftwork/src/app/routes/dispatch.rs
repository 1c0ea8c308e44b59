//! From a request to its route, and from there to one function.

use std::fmt;
use std::marker::PhantomData;

use super::{Miss, Routes, Verbs};
use crate::message::{Asked, Blocking, Handler, IntoResponse, Request, Response};

/// A handler that finds the route of each request and calls `handler` with it.
///
/// `handler` is one function over a `match` that has to name every route. It may be a closure that owns what the
/// routes share: `routes(move |route, req: &mut Request| app.answer(route, req))`. See [`Routes`].
pub fn routes<T, F, R>(handler: F) -> Dispatch<T, F>
where
    T: Routes,
    F: Fn(T, &mut Request<'_>) -> R + Send + Sync + 'static,
    R: IntoResponse,
{
    Dispatch { handler, routes: PhantomData }
}

/// Made by [`routes`].
pub struct Dispatch<T, F> {
    handler: F,
    routes: PhantomData<fn() -> T>,
}

impl<T, F, R> Handler for Dispatch<T, F>
where
    T: Routes,
    F: Fn(T, &mut Request<'_>) -> R + Send + Sync + 'static,
    R: IntoResponse,
{
    fn call(&self, req: &mut Request<'_>) -> Response {
        match T::from_request(req) {
            Ok(route) => (self.handler)(route, req).into_response(),
            Err(miss) => answer(miss, req, T::ROUTES),
        }
    }

    /// Each route is learned by itself.
    fn blocking(&self, asked: &Asked<'_>) -> Blocking {
        T::habit(Verbs::of(asked.method()), asked.path())
    }
}

#[cold]
fn answer(miss: Miss, req: &Request<'_>, routes: &[super::Route]) -> Response {
    match miss {
        // RFC 9110 section 9.3.7: the server as a whole.
        Miss::NotFound if req.path() == "*" => Miss::Method(all(routes)).answer(req),
        miss => miss.answer(req),
    }
}

fn all(routes: &[super::Route]) -> Verbs {
    let verbs = routes.iter().fold(Verbs::NONE, |verbs, route| verbs.or(route.methods).or(all(route.nested)));
    if verbs.meets(Verbs::GET) { verbs.or(Verbs::HEAD) } else { verbs }
}

impl<T, F> fmt::Debug for Dispatch<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatch").finish_non_exhaustive()
    }
}
