//! Limits the number of concurrent requests in some handlers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HeaderValue, StatusCode, header};

use super::{Middleware, Next, refusal};
use crate::message::{BodyWriter, Request, Response, StreamFilter};

/// Limits how many requests may be in the inner handlers at the same time. Others get 503 with `Retry-After: 1`
/// at once.
///
/// Use it for scarce resources, such as database connections or a model that computes. A streamed response
/// keeps its permit until it is written. A response that is whole, comes from a feed, or is deferred releases
/// its permit when the handler returns, because waiting needs no permit. So does an upgrade: a WebSocket has no
/// permit after the 101. Its limits are `threads_max`, or `connections_max` in a hub.
///
/// ```
/// use weftwork::middleware::ConcurrencyLimit;
/// use weftwork::prelude::*;
///
/// fn takes(_: impl Handler) {}
/// takes((|_: &mut Request| "a long report").with(ConcurrencyLimit::new(8)));
/// ```
#[derive(Clone, Debug)]
pub struct ConcurrencyLimit {
    free: Arc<AtomicUsize>,
}

impl ConcurrencyLimit {
    /// Allows at most `max` requests at the same time. Clones share the permits.
    pub fn new(max: usize) -> ConcurrencyLimit {
        ConcurrencyLimit { free: Arc::new(AtomicUsize::new(max)) }
    }

    fn try_acquire(&self) -> Option<Permit> {
        let taken = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(1));
        taken.is_ok().then(|| Permit(self.free.clone()))
    }
}

impl Middleware for ConcurrencyLimit {
    fn handle(&self, req: &mut Request<'_>, next: Next<'_>) -> Response {
        match self.try_acquire() {
            Some(permit) => match next.run(req) {
                response if response.is_to_come() => response,
                response => response.filter_stream(permit),
            },
            None => refusal(StatusCode::SERVICE_UNAVAILABLE, "too many requests in progress")
                .with_header(header::RETRY_AFTER, HeaderValue::from_static("1")),
        }
    }
}

/// Released on drop, even if the handler panics.
struct Permit(Arc<AtomicUsize>);

impl StreamFilter for Permit {
    fn write(&mut self, data: &[u8], out: &mut BodyWriter<'_>) -> io::Result<()> {
        io::Write::write_all(out, data)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    //! Tests that permits are acquired, refused, and released on every path.

    use std::io::Write;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::time::Duration;

    use super::*;
    use crate::app::middleware::HandlerExt;
    use crate::message::Handler;
    use crate::message::testing::{Canned, get};

    const BUSY: StatusCode = StatusCode::SERVICE_UNAVAILABLE;

    #[test]
    fn a_request_over_the_limit_is_refused_and_later_allowed() {
        let (inside, leave) = (Arc::new(Barrier::new(3)), Arc::new(Barrier::new(3)));
        let (enter, go) = (inside.clone(), leave.clone());
        let wait = move |req: &mut Request<'_>| {
            if req.path() == "/wait" {
                enter.wait();
                go.wait();
            }
        };
        let limited = wait.with(ConcurrencyLimit::new(2));
        std::thread::scope(|scope| {
            let waiting = [0, 1].map(|_| scope.spawn(|| get("/wait", &limited).status()));
            inside.wait();
            let refused = get("/", &limited);
            assert_eq!((refused.status(), refused.header(header::RETRY_AFTER)), (BUSY, Some("1")));
            leave.wait();
            for thread in waiting {
                assert_eq!(thread.join().unwrap(), StatusCode::NO_CONTENT);
            }
        });
        assert_eq!(get("/", &limited).status(), StatusCode::NO_CONTENT);
    }

    #[test]
    fn a_response_that_is_to_come_has_no_seat() {
        const HOUR: Duration = Duration::from_secs(3600);
        let handlers: [fn(&mut Request<'_>) -> Response; 2] =
            [|_| Response::text("refused").with_delay(HOUR), |_| Response::later(HOUR, "nothing").1];
        for handler in handlers {
            let limited = handler.with(ConcurrencyLimit::new(1));
            let waiting = [0, 1].map(|_| get("/", &limited));
            assert!(waiting.iter().all(Response::is_to_come));
        }
    }

    #[test]
    fn a_stream_keeps_its_seat_until_it_is_over() {
        let limited = (|_: &mut Request<'_>| Response::stream(|out| out.write_all(b"x")))
            .with(ConcurrencyLimit::new(1));
        let mut canned = Canned::asking("GET", "/", &[]);
        let first = canned.call(&limited);
        assert_eq!(get("/", &limited).status(), BUSY);
        assert_eq!(canned.body_of(first), b"x");
        let never_written = get("/", &limited);
        assert_eq!(never_written.status(), StatusCode::OK);
        drop(never_written);
        assert_eq!(get("/", &limited).status(), StatusCode::OK);
    }

    #[test]
    fn a_panic_gives_the_seat_back() {
        let limited =
            (|_: &mut Request<'_>| -> Response { panic!("as asked") }).with(ConcurrencyLimit::new(1));
        for _ in 0..3 {
            let mut canned = Canned::asking("GET", "/", &[]);
            assert!(catch_unwind(AssertUnwindSafe(|| canned.call(&limited))).is_err(), "not refused");
        }
    }

    #[test]
    fn clones_share_their_seats() {
        let limit = ConcurrencyLimit::new(0);
        let one: Box<dyn Handler> = Box::new((|_: &mut Request<'_>| "x").with(limit.clone()));
        assert_eq!(one.call(&mut Canned::asking("GET", "/", &[]).request(0)).status(), BUSY);
        limit.free.store(1, Ordering::Relaxed);
        assert_eq!(one.call(&mut Canned::asking("GET", "/", &[]).request(0)).status(), StatusCode::OK);
    }
}
