//! Handlers for the methods of one path.

use std::fmt;
use std::sync::Arc;

use http::Method;

use super::{Entry, Router};
use crate::app::extract::IntoHandler;
use crate::message::Handler;

/// Handlers for the methods of one path, which [`Router::path`] adds. [`get`] and the other functions of this module begin one.
#[derive(Clone)]
#[must_use]
pub struct MethodRouter {
    /// `None` is any method.
    handlers: Vec<(Option<Method>, Arc<dyn Handler>)>,
}

impl MethodRouter {
    /// Adds the handler for `method`, which may be any token.
    pub fn route<M>(self, method: Method, handler: impl IntoHandler<M>) -> MethodRouter {
        self.add(Some(method), handler)
    }

    fn add<M>(mut self, method: Option<Method>, handler: impl IntoHandler<M>) -> MethodRouter {
        self.handlers.push((method, Arc::new(handler.into_handler())));
        self
    }
}

impl fmt::Debug for MethodRouter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let methods = self.handlers.iter().map(|(method, _)| method.as_ref().map_or("any", Method::as_str));
        f.debug_list().entries(methods).finish()
    }
}

macro_rules! methods {
    ($($name:ident, $method:expr, $what:literal;)*) => {
        $(
            #[doc = concat!("Begins the handlers of a path with the one for ", $what, ".")]
            pub fn $name<M>(handler: impl IntoHandler<M>) -> MethodRouter {
                MethodRouter { handlers: Vec::new() }.$name(handler)
            }
        )*

        impl MethodRouter {
            $(
                #[doc = concat!("Adds the handler for ", $what, ".")]
                pub fn $name<M>(self, handler: impl IntoHandler<M>) -> MethodRouter {
                    self.add($method, handler)
                }
            )*
        }
    };
}

methods! {
    get, Some(Method::GET), "GET and HEAD";
    post, Some(Method::POST), "POST";
    put, Some(Method::PUT), "PUT";
    patch, Some(Method::PATCH), "PATCH";
    delete, Some(Method::DELETE), "DELETE";
    head, Some(Method::HEAD), "HEAD, used instead of the one for GET";
    options, Some(Method::OPTIONS), "OPTIONS, used instead of the 204 with `Allow`";
    any, None, "every method that has no handler of its own";
}

impl Router {
    /// Adds the handlers for the methods of one path. `.path("/x", get(list).post(add))` is the same as
    /// `.get("/x", list).post("/x", add)`.
    ///
    /// ```
    /// use weftwork::prelude::*;
    /// use weftwork::routing::get;
    ///
    /// fn show(Path(id): Path<u64>) -> String {
    ///     format!("note {id}\n")
    /// }
    ///
    /// fn remove(Path(_): Path<u64>) -> StatusCode {
    ///     StatusCode::NO_CONTENT
    /// }
    ///
    /// let site = Router::new().path("/notes/{id}", get(show).delete(remove));
    /// # let mut client = weftwork::TestClient::new(site);
    /// # assert_eq!(client.get("/notes/7").send().text(), "note 7\n");
    /// # assert_eq!(client.delete("/notes/7").send().status, StatusCode::NO_CONTENT);
    /// # assert_eq!(client.put("/notes/7").send().header("allow"), Some("GET, HEAD, DELETE, OPTIONS"));
    /// ```
    #[must_use]
    pub fn path(mut self, path: &str, handlers: MethodRouter) -> Router {
        self.routes.extend(handlers.handlers.into_iter().map(|(method, handler)| Entry {
            method,
            path: path.to_owned(),
            handler,
            states: Vec::new(),
        }));
        self.changed()
    }
}
