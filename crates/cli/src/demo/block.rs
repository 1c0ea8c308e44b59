//! "Block 8 handlers": measures quick clients of two engines while eight handlers block, and tells pages about it.

mod picture;
mod subject;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use serde::Serialize;
use weftwork::http::{HeaderValue, StatusCode, header};
use weftwork::{Event, EventHub, IntoResponse, Problem, Request, Response};

use self::subject::{Subject, Window};

/// Time from one sample to the next.
const INTERVAL: Duration = Duration::from_millis(250);
/// Time before the clients block, while they block, and after it.
const PHASES: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(8), Duration::from_secs(2)];
/// Engines that are compared, with one event loop each. A page draws them in this order.
const ENGINES: [&str; 2] = ["adaptive:1", "reactor:1"];

/// The measurement, one run at a time.
#[derive(Clone)]
pub(super) struct Block {
    shared: Arc<Shared>,
}

struct Shared {
    hub: EventHub,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    is_running: bool,
    /// Of the last run, or of the one that runs.
    run: Run,
}

/// A run as pages see it. The times are in seconds, and the latencies in microseconds.
#[derive(Clone, Default, Serialize)]
struct Run {
    engines: [&'static str; 2],
    /// Clients that block, and quick ones, of each engine.
    clients: [usize; 2],
    seconds: f64,
    /// When the clients begin to block, and when they stop.
    blocking: [f64; 2],
    samples: Vec<Sample>,
    /// At the end of the run: what the engines did while the clients blocked.
    results: Option<[Outcome; 2]>,
    error: Option<String>,
}

/// The slowest quick request of each engine in [`INTERVAL`]. A request without a response counts with its age.
#[derive(Clone, Copy, Serialize)]
struct Sample {
    at: f64,
    slowest: [u64; 2],
}

#[derive(Clone, Copy, Default, Serialize)]
struct Outcome {
    /// Quick requests that were answered.
    answered: u64,
    slowest: u64,
}

impl Block {
    pub(super) fn new() -> Block {
        let hub = EventHub::new(weftwork::FeedLimits::default());
        Block { shared: Arc::new(Shared { hub, state: Mutex::default(), ended: Condvar::new() }) }
    }

    /// Handles `POST /block`: starts a run. With `?wait=true`, the response is the picture at its end.
    pub(super) fn start(&self, wait: bool) -> Response {
        let mut state = self.shared.state();
        if state.is_running {
            return Problem::new(StatusCode::CONFLICT).detail("a run is in progress").into_response();
        }
        let shared = self.shared.clone();
        if let Err(error) = Builder::new().name("demo-block".into()).spawn(move || shared.run()) {
            log::error!("cannot start a thread for /block: {error}");
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
        state.is_running = true;
        state.run = Run::new();
        self.shared.tell("start", &state.run);
        if !wait {
            return (StatusCode::ACCEPTED, "started\n").into_response();
        }
        let ended = self.shared.ended.wait_while(state, |state| state.is_running);
        drop(ended.unwrap_or_else(PoisonError::into_inner));
        self.picture()
    }

    /// Handles `/block/events`: the last run as a whole, and then what happens.
    pub(super) fn events(&self, req: &Request<'_>) -> Response {
        let state = self.shared.state();
        // The lock is held, so that no sample is missed or sent twice.
        self.shared.hub.join_with(req, (), event("start", &state.run))
    }

    /// Handles `/block.svg`: the picture of the last run.
    pub(super) fn picture(&self) -> Response {
        let run = self.shared.state().run.clone();
        if run.results.is_none() {
            let detail = "no run has ended: POST /block starts one";
            return Problem::new(StatusCode::NOT_FOUND).detail(detail).into_response();
        }
        Response::text(picture::svg(&run))
            .with_content_type(HeaderValue::from_static("image/svg+xml"))
            .with_header(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell<T: Serialize>(&self, name: &str, value: &T) {
        event(name, value).iter().for_each(|event| _ = self.hub.send(event));
    }

    fn run(&self) {
        let measured = self.measure();
        let mut state = self.state();
        state.is_running = false;
        match measured {
            Ok(results) => state.run.results = Some(results),
            Err(error) => state.run.error = Some(error.to_string()),
        }
        self.tell("end", &state.run);
        self.ended.notify_all();
    }

    fn measure(&self) -> weftwork::Result<[Outcome; 2]> {
        let subjects = [Subject::start(ENGINES[0])?, Subject::start(ENGINES[1])?];
        let mut results = [Outcome::default(); 2];
        let start = Instant::now();
        let [quiet, blocking, after] = PHASES;
        let mut due = INTERVAL;
        while due <= quiet + blocking + after {
            std::thread::sleep((start + due).saturating_duration_since(Instant::now()));
            let is_blocking = (quiet..quiet + blocking).contains(&due);
            let windows = [subjects[0].take(is_blocking), subjects[1].take(is_blocking)];
            // The window that just ended is the last one before `due`.
            if due > quiet && due <= quiet + blocking {
                for (result, window) in results.iter_mut().zip(&windows) {
                    result.answered += window.answered;
                    result.slowest = result.slowest.max(window.slowest);
                }
            }
            let sample =
                Sample { at: due.as_secs_f64(), slowest: windows.map(|Window { slowest, .. }| slowest) };
            let mut state = self.state();
            state.run.samples.push(sample);
            self.tell("sample", &sample);
            drop(state);
            due += INTERVAL;
        }
        subjects.into_iter().for_each(Subject::stop);
        Ok(results)
    }
}

impl Run {
    fn new() -> Run {
        let [quiet, blocking, after] = PHASES;
        Run {
            engines: ENGINES,
            clients: [subject::BLOCKING_CLIENTS, subject::QUICK_CLIENTS],
            seconds: (quiet + blocking + after).as_secs_f64(),
            blocking: [quiet.as_secs_f64(), (quiet + blocking).as_secs_f64()],
            ..Run::default()
        }
    }
}

/// Returns the event, or nothing if the value cannot be written.
fn event<T: Serialize>(name: &str, value: &T) -> Option<Event> {
    Event::json(value).map(|event| event.name(name)).ok()
}
