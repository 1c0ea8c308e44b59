//! The thread, one step after another, at times that the tests choose.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::super::client::{Client, Connect, Notes};
use super::super::settings::ChallengeKind;
use super::super::stop::Stop;
use super::super::worker::Worker;
use super::super::{Acme, AcmeCertificates};
use super::fake_ca::{DIRECTORY, FakeCa, problem, unreachable_ca};
use crate::transport::tls::provider;

const NAME: &str = "example.org";
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86400);

/// A process with a store.
pub(super) struct Process {
    pub(super) certificates: Arc<AcmeCertificates>,
    pub(super) worker: Worker,
}

pub(super) struct World {
    pub(super) ca: FakeCa,
    folder: tempfile::TempDir,
    start: SystemTime,
}

impl World {
    pub(super) fn new() -> World {
        World {
            ca: FakeCa::new(Notes::default()),
            folder: tempfile::tempdir().unwrap(),
            start: SystemTime::now(),
        }
    }

    fn process(&self) -> Process {
        self.process_with(|acme| acme)
    }

    pub(super) fn process_with(&self, change: impl FnOnce(Acme) -> Acme) -> Process {
        let acme = change(self.acme());
        self.process_of(acme.open(provider::default_provider()).unwrap())
    }

    pub(super) fn acme(&self) -> Acme {
        let acme = Acme::new([NAME]).contact("mailto:ops@example.org").accept_terms();
        acme.directory(DIRECTORY).store(self.folder.path())
    }

    pub(super) fn process_of(&self, certificates: Arc<AcmeCertificates>) -> Process {
        let (stop, notes) = (Stop::default(), Notes::default());
        let ca = self.ca.with_notes(notes.clone());
        let connect: Connect = Box::new(move || Box::new(ca.clone()));
        let (settings, store) = (certificates.settings.clone(), certificates.store.clone());
        let client = Client::new(settings, store, stop.clone(), notes, connect);
        let challenges = vec![ChallengeKind::TlsAlpn01, ChallengeKind::Http01];
        let worker = Worker::new(certificates.clone(), client, stop, challenges, self.start);
        Process { certificates, worker }
    }

    pub(super) fn step(&self, process: &mut Process, later: Duration) {
        let now = self.start + later;
        self.ca.state().now = now;
        process.worker.step(now);
    }
}

impl Process {
    pub(super) fn leaf(&self) -> Option<Vec<u8>> {
        self.certificates.get(NAME).map(|key| key.cert[0].to_vec())
    }

    fn reason(&self) -> String {
        self.certificates.store.attempts(NAME).reason
    }
}

#[test]
fn a_certificate_is_obtained_kept_and_renewed_at_two_thirds_of_its_life() {
    let world = World::new();
    let mut process = world.process();
    assert_eq!(process.leaf(), None);
    world.step(&mut process, Duration::ZERO);
    let first = process.leaf().expect("a certificate");
    world.step(&mut process, 54 * DAY);
    assert_eq!(process.leaf().as_ref(), Some(&first));
    assert_eq!(world.ca.count("new-order"), 1);
    world.step(&mut process, 60 * DAY);
    assert_ne!(process.leaf(), Some(first));
    assert_eq!((world.ca.count("new-order"), world.ca.count("account")), (2, 1));
    // A new process needs no authority.
    let mut other = world.process();
    other.worker.load_all();
    assert_eq!(other.leaf(), process.leaf());
    assert_eq!(world.ca.count("directory"), 1);
}

#[test]
fn every_process_with_the_store_answers_a_tls_challenge_and_only_while_it_lasts() {
    let world = World::new();
    let (mut process, other) = (world.process(), world.process());
    let seen = other.certificates.clone();
    world.ca.state().verify = Box::new(move |kind, name, _| {
        assert_eq!(kind, "tls-alpn-01");
        assert!(seen.challenge("other.test").is_none());
        let key = seen.challenge(&name.to_uppercase()).expect("a certificate for the challenge");
        // id-pe-acmeIdentifier (RFC 8737 section 3), critical.
        let identifier = [0x06, 0x08, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x01, 0x1f, 0x01, 0x01, 0xff];
        key.cert[0].windows(identifier.len()).any(|bytes| bytes == identifier)
    });
    world.step(&mut process, Duration::ZERO);
    assert!(process.leaf().is_some());
    assert!(other.certificates.challenge(NAME).is_none());
}

#[test]
fn a_failed_challenge_waits_then_tries_http_and_keeps_the_old_certificate() {
    let world = World::new();
    let mut process = world.process();
    world.step(&mut process, Duration::ZERO);
    let first = process.leaf().unwrap();
    let http01 = process.certificates.http01();
    world.ca.state().verify = Box::new(move |kind, _, token| {
        kind == "http-01" && http01.response(token).is_some_and(|text| text.starts_with(token))
    });
    world.step(&mut process, 61 * DAY);
    assert_eq!(process.leaf().as_ref(), Some(&first));
    let reason = process.reason();
    assert!(reason.contains("tls-alpn-01") && reason.contains("cannot connect to example.org"), "{reason}");
    // The first wait is a minute, also for a process that starts now.
    for process in [&mut process, &mut world.process()] {
        world.step(process, 61 * DAY + Duration::from_secs(59));
    }
    assert_eq!(world.ca.count("new-order"), 2);
    world.step(&mut process, 61 * DAY + Duration::from_secs(61));
    assert_ne!(process.leaf(), Some(first));
    assert_eq!(process.certificates.store.attempts(NAME).failures, 0);
    assert!(process.certificates.http01().response("token-2").is_none(), "the challenge is over");
}

#[test]
fn a_rate_limit_is_respected() {
    let world = World::new();
    let mut process = world.process();
    let mut limited = problem(429, "rateLimited", "too many certificates already issued");
    limited.headers_mut().insert("retry-after", "7200".parse().unwrap());
    world.ca.state().faults.push(("new-order", limited));
    world.step(&mut process, Duration::ZERO);
    assert!(process.reason().contains("too many certificates"), "{}", process.reason());
    world.step(&mut process, HOUR + HOUR / 2);
    // A start makes no difference.
    world.step(&mut world.process(), HOUR + HOUR / 2);
    assert_eq!(world.ca.count("new-order"), 1);
    world.step(&mut process, 2 * HOUR + Duration::from_secs(60));
    assert!(process.leaf().is_some());
}

#[test]
fn each_fault_of_the_authority_is_a_reason_and_nothing_is_lost() {
    let page = http::Response::builder().status(503).body("<html>".into()).unwrap();
    let faults = [
        ("directory", unreachable_ca(), "account: connection refused"),
        ("directory", page, "account: the response is not that of an ACME server"),
        (
            "account",
            problem(403, "userActionRequired", "new terms"),
            "account: new terms (userActionRequired)",
        ),
        (
            "new-order",
            problem(403, "rejectedIdentifier", "forbidden by policy"),
            "order: forbidden by policy",
        ),
        ("authorization", problem(500, "serverInternal", "oh"), "authorization: oh (serverInternal)"),
        ("tls-alpn-01", problem(400, "malformed", "no"), "challenge: no (malformed)"),
        ("order", unreachable_ca(), "order: connection refused"),
        ("finalize", problem(403, "caa", "CAA forbids"), "certificate request: CAA forbids (caa)"),
        ("certificate", unreachable_ca(), "certificate: connection refused"),
    ];
    for (path, response, wanted) in faults {
        let world = World::new();
        let mut process = world.process();
        world.ca.state().faults.push((path, response));
        world.step(&mut process, Duration::ZERO);
        assert!(process.reason().starts_with(wanted), "{path}: {}", process.reason());
        assert_eq!(process.leaf(), None);
        assert_eq!(process.certificates.store.attempts(NAME).failures, 1);
        world.step(&mut process, 2 * HOUR);
        assert!(process.leaf().is_some(), "{path}");
    }
}

#[test]
fn a_refused_nonce_is_no_failure() {
    let world = World::new();
    let mut process = world.process();
    for path in ["new-order", "authorization", "finalize", "account"] {
        world.ca.state().faults.push((path, problem(400, "badNonce", "stale")));
    }
    world.step(&mut process, Duration::ZERO);
    assert!(process.leaf().is_some());
}

#[test]
fn an_account_that_the_authority_has_lost_is_made_again() {
    let world = World::new();
    let mut process = world.process();
    world.step(&mut process, Duration::ZERO);
    world.ca.state().faults.push(("new-order", problem(400, "accountDoesNotExist", "unknown account")));
    world.step(&mut process, 61 * DAY);
    world.step(&mut process, 61 * DAY + HOUR);
    assert_eq!(world.ca.count("account"), 2);
    assert_eq!(process.certificates.store.attempts(NAME).failures, 0);
}

#[test]
fn a_certificate_for_another_key_is_refused() {
    let world = World::new();
    let mut process = world.process();
    world.ca.state().signs_wrong_key = true;
    world.step(&mut process, Duration::ZERO);
    assert_eq!(process.leaf(), None);
    assert!(process.reason().contains("do not belong together"), "{}", process.reason());
}

#[test]
fn renewal_information_of_the_authority_is_followed_and_the_order_names_what_it_replaces() {
    let world = World::new();
    let mut process = world.process();
    world.ca.state().has_renewal_info = true;
    world.ca.state().window = (30 * 86400, 31 * 86400);
    world.step(&mut process, Duration::ZERO);
    let first = process.leaf();
    world.step(&mut process, 10 * DAY);
    assert_eq!((process.leaf(), world.ca.count("renewal")), (first.clone(), 1));
    // The authority wants to revoke the certificate.
    world.ca.state().window = (-7200, -3600);
    world.step(&mut process, 11 * DAY);
    assert_ne!(process.leaf(), first);
    assert_eq!(world.ca.state().replaced.len(), 1);
}

#[test]
fn an_order_that_may_not_replace_is_an_ordinary_one() {
    let world = World::new();
    let mut process = world.process();
    world.ca.state().has_renewal_info = true;
    world.ca.state().window = (-7200, -3600);
    world.step(&mut process, Duration::ZERO);
    let first = process.leaf();
    world.ca.state().faults.push(("new-order", problem(409, "alreadyReplaced", "replaced")));
    world.step(&mut process, 11 * DAY);
    assert_ne!(process.leaf(), first);
    assert_eq!(process.certificates.store.attempts(NAME).failures, 0);
}

#[test]
fn two_processes_get_one_certificate() {
    let world = World::new();
    let (mut one, mut two) = (world.process(), world.process());
    let lock = one.certificates.store.try_lock().unwrap().unwrap();
    world.step(&mut two, Duration::ZERO);
    assert_eq!(world.ca.count("directory"), 0, "the other process is at work");
    drop(lock);
    world.step(&mut one, Duration::ZERO);
    world.step(&mut two, Duration::from_secs(2));
    assert_eq!(one.leaf(), two.leaf());
    assert_eq!(world.ca.count("new-order"), 1);
    world.step(&mut one, 61 * DAY);
    world.step(&mut two, 61 * DAY);
    assert_eq!(one.leaf(), two.leaf());
    assert_eq!(world.ca.count("new-order"), 2);
}

#[test]
fn a_damaged_or_removed_file_leaves_the_certificate_in_use() {
    let world = World::new();
    let mut process = world.process();
    world.step(&mut process, Duration::ZERO);
    let first = process.leaf();
    let path = process.certificates.store.certificate_path(NAME);
    fs::write(&path, "no PEM").unwrap();
    world.step(&mut process, HOUR);
    assert_eq!(process.leaf(), first);
    fs::remove_file(&path).unwrap();
    world.step(&mut process, 2 * HOUR);
    assert_eq!(process.leaf(), first);
}

#[test]
fn without_a_store_that_works_the_certificate_is_used_and_the_authority_is_left_alone() {
    let world = World::new();
    let mut process = world.process();
    let folder = process.certificates.store.folder.clone();
    let removed = folder.clone();
    // The folder goes away just before the certificate is kept.
    world.ca.state().verify = Box::new(move |_, _, _| {
        fs::remove_dir_all(&removed).unwrap();
        true
    });
    world.step(&mut process, Duration::ZERO);
    assert!(process.leaf().is_some());
    for minutes in 1..120 {
        world.step(&mut process, Duration::from_secs(60 * minutes));
    }
    assert_eq!(world.ca.count("new-order"), 1);
}

#[test]
fn the_external_account_and_a_changed_contact_reach_the_authority() {
    let world = World::new();
    let mut process =
        world.process_with(|acme| acme.external_account("kid-1", "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"));
    world.step(&mut process, Duration::ZERO);
    assert_eq!(world.ca.state().external_account.as_deref(), Some("bound"));
    assert_eq!(world.ca.count("account/1"), 0);
    let mut changed = world.process_with(|acme| acme.contact("mailto:more@example.org"));
    world.step(&mut changed, 61 * DAY);
    assert_eq!((world.ca.count("account/1"), world.ca.count("account")), (1, 2));
    let mut same = world.process_with(|acme| acme.contact("mailto:more@example.org"));
    world.step(&mut same, 122 * DAY);
    assert_eq!(world.ca.count("account/1"), 1);
}

#[test]
fn a_key_that_is_no_base64_is_an_error_at_the_start() {
    let acme = Acme::new([NAME]).store("/tmp").accept_terms().external_account("kid", "no base64!");
    let error = acme.open(provider::default_provider()).unwrap_err().to_string();
    assert!(error.contains("base64url"), "{error}");
}
