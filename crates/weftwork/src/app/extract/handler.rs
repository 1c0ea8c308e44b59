//! Turns functions with typed arguments into handlers.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::{Extract, State};
use crate::message::{Handler, IntoResponse, Request, RequiredState, Response};

/// Types that a [`Router`](crate::Router) accepts as handlers. These are [`Handler`]s, including functions of
/// `&mut Request`, and functions whose arguments implement [`Extract`]. The compiler infers `M`, which tells
/// the kinds apart.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a handler",
    label = "not a handler",
    note = "a handler is a function of `&mut Request`, or of extractors: `Path<T>`, `Query<T>`, `Json<T>`, `Form<T>`, `Header<T>`, `Cookies<T>`, `State<T>`, `Bytes`, `String`; `&mut Request` comes last",
    note = "the `T` of `Path<T>`, `Query<T>`, `Json<T>`, `Form<T>`, `Header<T>` or `Cookies<T>` needs `#[derive(serde::Deserialize)]`",
    note = "an argument may be an `Option` or a `Result` of an extractor; two arguments cannot both read the body",
    note = "a handler returns a `Response`, text, bytes, a `StatusCode`, or a `weftwork::Result` of one; a closure must name the types of its arguments: `|req: &mut Request| ..`",
    note = "in a `weftwork::Result`, `?` converts every error (for a box, use `.map_err(Error::boxed)`, for `anyhow`, its feature); a handler may block and must not be an `async fn`"
)]
pub trait IntoHandler<M> {
    #[doc(hidden)]
    type Handler: Handler;

    #[doc(hidden)]
    fn into_handler(self) -> Self::Handler;
}

/// Makes a [`Handler`] of a function with typed arguments. A server, a router and a [`TestClient`](crate::TestClient) take
/// such functions as they are. Use this function to put middleware around one: `handler(function).with(middleware)`.
pub fn handler<M>(function: impl IntoHandler<M>) -> Arc<dyn Handler> {
    Arc::new(function.into_handler())
}

/// Marks a type that is a [`Handler`] already.
#[derive(Debug)]
pub struct Plain;

impl<H: Handler> IntoHandler<Plain> for H {
    type Handler = H;

    fn into_handler(self) -> H {
        self
    }
}

/// Marks a function of typed arguments.
#[derive(Debug)]
pub struct OfArguments<A>(PhantomData<A>);

/// Marks a function of typed arguments and the request.
#[derive(Debug)]
pub struct OfArgumentsAndRequest<A>(PhantomData<A>);

/// Marks a method of a state.
#[derive(Debug)]
pub struct OfState<S, A>(PhantomData<(S, A)>);

/// Marks a method of a state that also takes the request.
#[derive(Debug)]
pub struct OfStateAndRequest<S, A>(PhantomData<(S, A)>);

/// A function of typed arguments as a handler.
pub struct Function<F, M> {
    function: F,
    kind: PhantomData<fn() -> M>,
}

impl<F, M> fmt::Debug for Function<F, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").finish_non_exhaustive()
    }
}

/// Extracts one argument, or returns the error as the response.
macro_rules! take {
    ($type:ty, $req:ident) => {
        match <$type as Extract>::extract($req) {
            Ok(value) => value,
            Err(error) => return blamed(error.into_response(), $req),
        }
    };
}

/// Marks the response as the client's fault if the request body caused the error.
#[inline]
fn blamed(mut response: Response, req: &Request<'_>) -> Response {
    req.blame(&mut response);
    response
}

/// Rejects a second body at compile time. `are_bodies` tells for each argument whether it reads the body.
const fn check_one_body(mut are_bodies: &[bool]) {
    let mut count = 0;
    while let [is_body, rest @ ..] = are_bodies {
        count += *is_body as u8;
        are_bodies = rest;
    }
    assert!(
        count < 2,
        "two arguments read the body (Json, Form, Bytes, String), which can be read only once"
    );
}

macro_rules! functions {
    ($kind:ty, [$($state:ident)?], [$($argument:ident)*], [$($request:ty)?]) => {
        #[allow(non_snake_case, unused_variables)]
        impl<F, R, $($state,)? $($argument),*> Handler for Function<F, $kind>
        where
            F: Fn($(&$state,)? $($argument,)* $($request)?) -> R + Send + Sync + 'static,
            R: IntoResponse,
            $($state: Send + Sync + 'static,)?
            $($argument: Extract + 'static,)*
        {
            fn call(&self, req: &mut Request<'_>) -> Response {
                $(let $state = take!(State<$state>, req);)?
                $(let $argument = take!($argument, req);)*
                functions!(@call self, [$($state)?], [$($argument)*], [$($request)?], req)
            }

            fn needs(&self) -> Vec<RequiredState> {
                let all: &[Vec<RequiredState>] = &[
                    $(<State<$state> as Extract>::required_states(),)?
                    $(<$argument as Extract>::required_states(),)*
                ];
                all.concat()
            }
        }

        impl<F, R, $($state,)? $($argument),*> IntoHandler<$kind> for F
        where
            F: Fn($(&$state,)? $($argument,)* $($request)?) -> R + Send + Sync + 'static,
            R: IntoResponse,
            $($state: Send + Sync + 'static,)?
            $($argument: Extract + 'static,)*
        {
            type Handler = Function<F, $kind>;

            fn into_handler(self) -> Self::Handler {
                const { check_one_body(&[$($argument::IS_BODY),*]) };
                Function { function: self, kind: PhantomData }
            }
        }
    };
    (@call $self:ident, [$($state:ident)?], [$($argument:ident)*], [], $req:ident) => {
        blamed(($self.function)($(&$state,)? $($argument,)*).into_response(), $req)
    };
    (@call $self:ident, [$($state:ident)?], [$($argument:ident)*], [$request:ty], $req:ident) => {
        blamed(($self.function)($(&$state,)? $($argument,)* $req).into_response(), $req)
    };
}

macro_rules! each_kind {
    ($($argument:ident)*) => {
        functions!(OfArguments<($($argument,)*)>, [], [$($argument)*], []);
        functions!(OfState<S, ($($argument,)*)>, [S], [$($argument)*], []);
        functions!(OfStateAndRequest<S, ($($argument,)*)>, [S], [$($argument)*], [&mut Request<'_>]);
    };
}

macro_rules! each_kind_and_request {
    ($($argument:ident)+) => {
        each_kind!($($argument)+);
        // Without arguments, the function is a plain handler.
        functions!(OfArgumentsAndRequest<($($argument,)+)>, [], [$($argument)+], [&mut Request<'_>]);
    };
}

each_kind!();
each_kind_and_request!(A);
each_kind_and_request!(A B);
each_kind_and_request!(A B C);
each_kind_and_request!(A B C D);
each_kind_and_request!(A B C D E);
each_kind_and_request!(A B C D E G);
