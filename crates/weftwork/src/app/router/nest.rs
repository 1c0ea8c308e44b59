//! Puts a router under a prefix of another one, with or without middleware around it.

use super::{Entry, Mount, Router, pattern};
use crate::app::middleware::{Layered, Middleware};
use crate::message::{Handler, Shared};

/// A router that another one can [nest](Router::nest): a [`Router`], or one with middleware around it.
pub trait Nest: Handler + Sized {
    #[doc(hidden)]
    fn add_to(self, outer: Router, prefix: &str) -> Router;
}

impl Nest for Router {
    fn add_to(self, mut outer: Router, prefix: &str) -> Router {
        // A look-up takes the first match. Of two states of one type, that is the one added last.
        let states: Vec<Shared> = self.states.into_iter().rev().collect();
        let inherited = |own: Vec<Shared>| own.into_iter().chain(states.iter().cloned()).collect();
        for Entry { method, path, handler, states } in self.routes {
            let (path, states) = (pattern::join(prefix, &path), inherited(states));
            outer.routes.push(Entry { method, path, handler, states });
        }
        for mount in self.mounts {
            let (prefix, states) = (pattern::join(prefix, &mount.prefix), inherited(mount.states));
            outer.mounts.push(Mount { prefix, states, ..mount });
        }
        if let Some(handler) = self.fallback {
            let (prefix, states) = (prefix.to_owned(), inherited(Vec::new()));
            outer.mounts.push(Mount { prefix, handler, states, strips: false });
        }
        outer.found_errors.extend(self.found_errors);
        outer
    }
}

/// Middleware cannot be around single routes of another router, so the whole is a mount.
impl<H: Nest, M: Middleware> Nest for Layered<H, M> {
    fn add_to(self, outer: Router, prefix: &str) -> Router {
        outer.mount(prefix, self)
    }
}
