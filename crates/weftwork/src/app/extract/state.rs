//! State that handlers share.

use std::ops::Deref;
use std::sync::Arc;

use super::Extract;
use crate::error::{Error, Result};
use crate::message::{Request, RequiredState};

/// Takes a value that [`state`](crate::Router::state) gave to the [`Router`](crate::Router), as `T` or as an
/// `Arc` of it. It dereferences to `T`.
///
/// ```
/// use weftwork::prelude::*;
/// use weftwork::State;
///
/// struct Greeting(&'static str);
///
/// fn greet(State(greeting): State<Greeting>) -> &'static str {
///     greeting.0
/// }
///
/// let site = Router::new().get("/", greet).state(Greeting("hello\n"));
/// # assert_eq!(weftwork::TestClient::new(site).get("/").send().text(), "hello\n");
/// ```
#[derive(Debug)]
pub struct State<T>(pub Arc<T>);

impl<T> Clone for State<T> {
    fn clone(&self) -> State<T> {
        State(self.0.clone())
    }
}

impl<T> Deref for State<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Send + Sync + 'static> Extract for State<T> {
    fn extract(req: &mut Request<'_>) -> Result<Self> {
        let states = req.route_match().map_or(&[][..], |found| &found.states);
        let found = states.iter().rev().find_map(|state| match state.downcast_ref::<Arc<T>>() {
            Some(given) => Some(given.clone()),
            None => state.clone().downcast().ok(),
        });
        found.map(State).ok_or_else(|| Error::internal(RequiredState::of::<T>().to_string()))
    }

    fn required_states() -> Vec<RequiredState> {
        vec![RequiredState::of::<T>()]
    }
}
