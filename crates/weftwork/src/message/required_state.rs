//! States that a handler extracts and that a router must provide.

use std::any::{TypeId, type_name};
use std::fmt;
use std::sync::Arc;

use super::route_match::Shared;

/// A state that a handler or an extractor takes, and that a router must provide. See
/// [`Extract::required_states`](crate::Extract::required_states).
#[derive(Clone, Debug)]
pub struct RequiredState {
    /// Type identifiers of the state and of an `Arc` of it.
    ids: [TypeId; 2],
    /// Name of the type.
    pub(crate) state: &'static str,
    /// Route of the handler, or empty without a router.
    pub(crate) path: String,
}

impl RequiredState {
    pub(crate) fn of<T: 'static>() -> RequiredState {
        RequiredState {
            ids: [TypeId::of::<T>(), TypeId::of::<Arc<T>>()],
            state: type_name::<T>(),
            path: String::new(),
        }
    }

    /// Returns whether `state` is the required state.
    pub(crate) fn is_met_by(&self, state: &Shared) -> bool {
        self.ids.contains(&(**state).type_id())
    }
}

impl fmt::Display for RequiredState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RequiredState { state, path, .. } = self;
        match path.as_str() {
            "" => write!(f, "a handler takes State<{state}>: give its router one, with .state(...)"),
            path => {
                write!(f, "the handler of {path} takes State<{state}>: add it to the router with .state(...)")
            }
        }
    }
}
