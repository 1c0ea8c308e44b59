//! The thread that gets and renews certificates. It also finds those that another process has put into the store.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, SystemTime};

use super::AcmeCertificates;
use super::certificate::Certificate;
use super::client::Client;
use super::facts::Facts;
use super::failure::Failure;
use super::schedule::{self, Window};
use super::settings::ChallengeKind;
use super::stop::Stop;
use super::store::{Attempts, FileStamp};
use crate::transport::log_queue::log_line;

/// Interval of the lines about one failure.
const LOG_INTERVAL: Duration = Duration::from_secs(3600);
/// Wait while another process has the lock of the store.
const LOCKED_INTERVAL: Duration = Duration::from_secs(2);

/// Renews the certificates until it is dropped.
#[derive(Debug)]
pub(crate) struct AcmeThread(Stop);

impl Drop for AcmeThread {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// What is known about one name.
#[derive(Default)]
struct NameState {
    stamp: Option<FileStamp>,
    window: Option<Window>,
    /// None: at once.
    ask_window_at: Option<SystemTime>,
    logged_at: Option<SystemTime>,
    /// Failures of this process. The store has them too, if it works.
    attempts: Attempts,
}

pub(super) struct Worker {
    certificates: Arc<AcmeCertificates>,
    client: Client,
    stop: Stop,
    challenges: Vec<ChallengeKind>,
    started_at: SystemTime,
    names: HashMap<String, NameState>,
}

impl Worker {
    pub(super) fn new(
        certificates: Arc<AcmeCertificates>,
        client: Client,
        stop: Stop,
        challenges: Vec<ChallengeKind>,
        started_at: SystemTime,
    ) -> Worker {
        Worker { certificates, client, stop, challenges, started_at, names: HashMap::new() }
    }

    /// Reads the files, works on a thread of its own, and returns what ends it.
    pub(super) fn start(mut self) -> std::io::Result<AcmeThread> {
        let stop = self.stop.clone();
        self.load_all();
        Builder::new().name("weft-acme".into()).spawn(move || self.work())?;
        Ok(AcmeThread(stop))
    }

    fn work(mut self) {
        loop {
            let wait = self.step(SystemTime::now());
            if self.stop.wait(wait) {
                return;
            }
        }
    }

    /// Does what is due, and returns how long nothing more is.
    pub(super) fn step(&mut self, now: SystemTime) -> Duration {
        self.load_all();
        let names = self.certificates.names().to_vec();
        let due: Vec<&String> = names.iter().filter(|name| self.is_due(name, now)).collect();
        if !due.is_empty() {
            match self.certificates.store.try_lock() {
                Ok(Some(_lock)) => {
                    self.certificates.store.remove_old_challenges(now);
                    due.into_iter().for_each(|name| self.renew(name, now));
                }
                // The other process is at work, maybe for these names.
                Ok(None) => return LOCKED_INTERVAL,
                Err(error) => {
                    let failure = Failure::store(&error);
                    due.into_iter().for_each(|name| self.failed(name, &failure, now));
                }
            }
        }
        let facts: Vec<Option<Facts>> = names.iter().map(|name| self.certificates.facts(name)).collect();
        schedule::look_interval(facts.iter().map(Option::as_ref))
    }

    /// Takes over each file that has changed.
    pub(super) fn load_all(&mut self) {
        let certificates = self.certificates.clone();
        for name in certificates.names() {
            self.load(name);
        }
    }

    fn load(&mut self, name: &str) {
        let state = self.names.entry(name.to_owned()).or_default();
        let stamp = self.certificates.store.certificate_stamp(name);
        if stamp == state.stamp {
            return;
        }
        state.stamp = stamp;
        // If it was removed by hand, the certificate in use stays.
        if self.certificates.load(name) {
            (state.window, state.ask_window_at) = (None, None);
            state.attempts = Attempts::default();
        }
    }

    /// Returns the failures of all processes since the last success.
    fn attempts(&self, name: &str) -> Attempts {
        let kept = self.certificates.store.attempts(name);
        match self.names.get(name) {
            Some(state) if state.attempts.failed_at > kept.failed_at => state.attempts.clone(),
            _ => kept,
        }
    }

    /// Returns whether a certificate is missing or at the time of its renewal, and no failure delays the attempt.
    fn is_due(&mut self, name: &str, now: SystemTime) -> bool {
        let attempts = self.attempts(name);
        if now < schedule::next_attempt(&attempts, self.started_at) {
            return false;
        }
        let Some(facts) = self.certificates.facts(name) else { return true };
        self.ask_window(name, &facts, now);
        let window = self.names.get(name).and_then(|state| state.window);
        now >= schedule::renewal_time(&facts, window)
    }

    /// Asks for renewal information if it is time. Without an answer, the former one stays.
    fn ask_window(&mut self, name: &str, facts: &Facts, now: SystemTime) {
        let state = self.names.entry(name.to_owned()).or_default();
        if state.ask_window_at.is_some_and(|at| now < at) {
            return;
        }
        let (window, retry_after) = match self.client.renewal_window(facts) {
            Ok(Some((window, retry_after))) => (Some(window), retry_after),
            Ok(None) => (None, Duration::MAX),
            Err(failure) => {
                log::debug!("ACME: no renewal information for {name}: {failure}");
                (state.window, LOG_INTERVAL)
            }
        };
        state.window = window;
        state.ask_window_at = Some(schedule::next_renewal_info(now, retry_after));
    }

    /// Gets a certificate. The lock of the store is held.
    fn renew(&mut self, name: &str, now: SystemTime) {
        if self.stop.is_set() {
            return;
        }
        // Another process may have done so while this one waited for the lock.
        self.load(name);
        if !self.is_due(name, now) {
            return;
        }
        let facts = self.certificates.facts(name);
        let failures = self.attempts(name).failures as usize;
        let challenge = self.challenges[failures % self.challenges.len()];
        let result =
            self.client.obtain(name, facts.as_ref(), challenge).and_then(|pem| self.keep(name, &pem));
        match result {
            Ok(facts) => {
                self.certificates.store.clear_attempts(name);
                if let Some(state) = self.names.get_mut(name) {
                    state.logged_at = None;
                }
                let (until, renewal) = (facts.not_after, schedule::renewal_time(&facts, None));
                log_line!(
                    Info,
                    "ACME: a certificate for {name}, valid until {}, renewal about {}",
                    httpdate::fmt_http_date(until),
                    httpdate::fmt_http_date(renewal)
                );
            }
            Err(_) if self.stop.is_set() => {}
            Err(failure) => self.failed(name, &failure, now),
        }
    }

    /// Checks a new certificate, takes it over, and keeps it in the store.
    fn keep(&mut self, name: &str, pem: &str) -> Result<Facts, Failure> {
        let certificate = Certificate::from_pem(pem, name, &self.certificates.provider).map_err(|error| {
            Failure::new(
                format!("the authority sent a certificate that cannot be used: {error}"),
                "Tell the authority",
            )
        })?;
        let facts = certificate.facts.clone();
        // It is used even if it cannot be kept: the next one would count towards the rate limits.
        self.certificates.set(name, certificate);
        self.certificates.store.write_certificate(name, pem).map_err(|error| Failure::store(&error))?;
        self.load(name);
        Ok(facts)
    }

    /// Notes a failure, and logs it once an hour. The certificate in use stays.
    fn failed(&mut self, name: &str, failure: &Failure, now: SystemTime) {
        let store = &self.certificates.store;
        let attempts = Attempts {
            failures: self.attempts(name).failures.saturating_add(1),
            failed_at: schedule::unix(now),
            not_before: failure.not_before.map_or(0, schedule::unix),
            reason: failure.reason.clone(),
        };
        // If that fails, the wait is kept in memory.
        let _ = store.write_attempts(name, &attempts);
        let next = schedule::next_attempt(&attempts, self.started_at);
        let facts = self.certificates.facts(name);
        let state = self.names.entry(name.to_owned()).or_default();
        state.attempts = attempts;
        if state.logged_at.is_some_and(|at| now.duration_since(at).is_ok_and(|age| age < LOG_INTERVAL)) {
            return;
        }
        state.logged_at = Some(now);
        let next = httpdate::fmt_http_date(next);
        match facts.filter(|facts| facts.not_after > now) {
            Some(facts) => log_line!(
                Warn,
                "ACME: cannot renew the certificate for {name}, which is valid until {}: {failure}. The next attempt is at {next}",
                httpdate::fmt_http_date(facts.not_after)
            ),
            None => log_line!(
                Error,
                "ACME: no certificate for {name}, so that handshakes for it fail: {failure}. The next attempt is at {next}"
            ),
        }
    }
}
