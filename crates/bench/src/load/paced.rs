//! A load at a fixed rate, whatever the server does. Each request is due at its own time, and its latency counts from then: a server that
//! stalls cannot make the load wait with it, and so hide the stall (coordinated omission).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::generator::{EVENTS_MAX, Generator, SWEEP};
use super::tally::Tally;
use crate::failure::{Failure, Result};

/// How long answers are waited for that no longer count, so that the next time starts clean.
const DRAIN: Duration = Duration::from_millis(200);

impl Generator {
    /// Asks `per_s` times a second for so long, on connections opened as paced. What is due while all of them
    /// are busy waits for the first that is free.
    pub(crate) fn drive_at(&mut self, per_s: f64, time: Duration) -> Result<Tally> {
        self.askings.first_mut().ok_or(Failure::Run("no group asks".to_owned()))?.tally.begin();
        let start = Instant::now();
        let due = |request: u64| start + Duration::from_secs_f64(request as f64 / per_s);
        let mut waiting = VecDeque::new();
        let mut requests = 0;
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let (mut now, mut sweep_at) = (start, start + SWEEP);
        while now < start + time {
            while due(requests) <= now {
                waiting.push_back(due(requests));
                requests += 1;
            }
            self.ask_free(&mut waiting);
            self.turn(&mut events)?;
            now = Instant::now();
            self.sweep_when_due(now, &mut sweep_at)?;
        }
        // What fell due while this thread was held up at the end was asked for too.
        while due(requests) < start + time {
            waiting.push_back(due(requests));
            requests += 1;
        }
        let in_flight = self.connections.iter().filter(|connection| connection.is_busy());
        let unanswered: Vec<Instant> = waiting.into_iter().chain(in_flight.map(|one| one.since())).collect();
        let mut tally = self.askings[0].tally.take(now - start);
        tally.unanswered = unanswered.len() as u64;
        // They took at least so long.
        unanswered.into_iter().for_each(|since| tally.waited(now.saturating_duration_since(since)));
        self.drain(now + DRAIN)?;
        Ok(tally)
    }

    fn ask_free(&mut self, waiting: &mut VecDeque<Instant>) {
        while !waiting.is_empty() {
            let Some(at) = self.free.pop_front() else { return };
            let connection = &mut self.connections[at];
            // It may have been reopened since it was noted as free.
            if connection.is_busy() {
                continue;
            }
            let Some(due) = waiting.pop_front() else { return };
            if connection.ask_now(&self.askings[0], due).is_err() {
                self.askings[0].tally.socket_errors += 1;
                self.reopen(at);
            }
        }
    }

    fn drain(&mut self, end: Instant) -> Result<()> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while self.connections.iter().any(|connection| connection.is_busy()) && Instant::now() < end {
            self.turn(&mut events)?;
        }
        Ok(())
    }
}
