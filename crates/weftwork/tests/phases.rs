//! Tests that the engines with a thread for each connection end well, with fewer and with more threads than in
//! the matrix.

#[allow(dead_code)]
mod support;

use support::EngineCase;
use weftwork::Engine;

macro_rules! engines {
    ($($name:ident: $engine:expr;)+) => { $(
        #[path = "cases"]
        // The same file is included once for each engine, on purpose.
        #[allow(clippy::duplicate_mod)]
        mod $name {
            use super::*;

            pub(crate) const CASE: EngineCase = EngineCase { engine: $engine, lacks: &[] };

            mod phases;
        }
    )+ };
}

engines! {
    workers_of_one: Engine::Workers { listeners: Some(1) };
    workers_of_three: Engine::Workers { listeners: Some(3) };
    pool_of_one: Engine::Pool { standby: Some(1) };
    pool_of_four: Engine::Pool { standby: Some(4) };
}
