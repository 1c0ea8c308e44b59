//! Against Pebble, an authority for tests that is strict where Let's Encrypt is. It runs on loopback, and ends with
//! its test. `WEFT_PEBBLE` is the path of its program. Without that variable, the tests are left out.

mod authority;
mod servers;
pub(super) mod site;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;

use super::super::{Acme, AcmeCertificates, AcmeThread, Reachable};
use crate::transport::tls::provider;
use authority::Pebble;
use site::Site;

/// Time for anything that has to happen.
const TIMEOUT: Duration = Duration::from_secs(120);
const TLS: Reachable = Reachable { tls: true, plain: false };
const PLAIN: Reachable = Reachable { tls: false, plain: true };

/// A process with listeners for the authority.
struct Process {
    certificates: Arc<AcmeCertificates>,
    changed: Receiver<()>,
    _thread: AcmeThread,
}

impl Process {
    fn start(acme: Acme, site: &Site, reachable: Reachable) -> Process {
        let certificates = acme.open(provider::default_provider()).unwrap();
        let (sender, changed) = channel();
        certificates.on_change(move || {
            let _ = sender.send(());
        });
        site.serve(&certificates);
        let thread = certificates.start(reachable).unwrap();
        Process { certificates, changed, _thread: thread }
    }

    fn leaf(&self, name: &str) -> Option<Vec<u8>> {
        self.certificates.get(name).map(|key| key.cert[0].to_vec())
    }

    /// Checks that a client gets the certificate in use, and returns it.
    fn shown(&self, site: &Site, root: &CertificateDer<'static>, name: &str) -> Vec<u8> {
        loop {
            let facts = self.certificates.facts(name).unwrap();
            let leaf = self.leaf(name).unwrap();
            let shown = site.shown(name, root, facts.not_before + facts.life() / 2);
            // It may be renewed at any time.
            if self.leaf(name).as_ref() == Some(&leaf) {
                assert_eq!(shown, leaf);
                return leaf;
            }
        }
    }

    /// Waits for a certificate of each name that is not `former`.
    fn wait(&self, names: &[&str], former: Option<&[u8]>) {
        let until = Instant::now() + TIMEOUT;
        while names.iter().any(|name| self.leaf(name).is_none_or(|leaf| Some(&leaf[..]) == former)) {
            let left = until.saturating_duration_since(Instant::now());
            let reasons: Vec<String> =
                names.iter().map(|name| self.certificates.store.attempts(name).reason).collect();
            self.changed.recv_timeout(left).unwrap_or_else(|_| panic!("no certificate: {reasons:?}"));
        }
    }
}

#[test]
fn tls_alpn_01_and_a_renewal_before_the_end() {
    let Some(pebble) = Pebble::start(40) else { return };
    let store = tempfile::tempdir().unwrap();
    let names = ["example.org", "www.example.org"];
    let site = Site::new(&pebble);
    let process = Process::start(pebble.acme(&names, store.path()), &site, TLS);
    process.wait(&names, None);
    let first = process.shown(&site, &pebble.root(), "example.org");
    process.wait(&["example.org"], Some(&first));
    assert_ne!(process.shown(&site, &pebble.root(), "example.org"), first);
    process.shown(&site, &pebble.root(), "www.example.org");
}

#[test]
fn http_01_with_an_external_account_and_a_profile() {
    let Some(pebble) = Pebble::with_external_accounts() else { return };
    let store = tempfile::tempdir().unwrap();
    let site = Site::new(&pebble);
    let acme = pebble.acme(&["example.org"], store.path()).profile("long");
    let process = Process::start(acme.external_account("kid-1", authority::HMAC_KEY), &site, PLAIN);
    process.wait(&["example.org"], None);
    process.shown(&site, &pebble.root(), "example.org");
    let facts = process.certificates.facts("example.org").unwrap();
    assert!(facts.life() > Duration::from_secs(86400) && facts.renewal_id().is_some());
    // A process that starts again has all of it.
    drop((process, pebble));
    let certificates = Acme::new(["example.org"]).store(store.path()).accept_terms();
    assert!(certificates.open(provider::default_provider()).is_ok());
}

#[test]
fn without_the_authority_the_old_certificate_stays() {
    let Some(pebble) = Pebble::start(10) else { return };
    let store = tempfile::tempdir().unwrap();
    let site = Site::new(&pebble);
    let process = Process::start(pebble.acme(&["example.org"], store.path()), &site, TLS);
    process.wait(&["example.org"], None);
    let root = pebble.root();
    drop(pebble);
    let until = Instant::now() + TIMEOUT;
    // The store has the failure as soon as the log has it.
    while process.certificates.store.attempts("example.org").failures == 0 {
        assert!(Instant::now() < until, "no attempt has failed");
        std::thread::sleep(Duration::from_millis(100));
    }
    process.shown(&site, &root, "example.org");
    let reason = process.certificates.store.attempts("example.org").reason;
    assert!(reason.contains("refused"), "{reason}");
}

#[test]
fn two_processes_with_one_store_have_the_same_certificates() {
    let Some(pebble) = Pebble::start(40) else { return };
    let store = tempfile::tempdir().unwrap();
    let site = Site::new(&pebble);
    let acme = || pebble.acme(&["example.org"], store.path());
    // The authority reaches only the second one, whichever of them orders.
    let (one, two) = (Process::start(acme(), &Site::new(&pebble), TLS), Process::start(acme(), &site, TLS));
    one.wait(&["example.org"], None);
    two.wait(&["example.org"], None);
    let first = one.leaf("example.org").unwrap();
    one.wait(&["example.org"], Some(&first));
    two.wait(&["example.org"], Some(&first));
}

#[test]
fn a_name_that_leads_elsewhere_does_not_hold_up_the_others() {
    let Some(pebble) = Pebble::start(3600) else { return };
    let store = tempfile::tempdir().unwrap();
    let site = Site::new(&pebble);
    // The stub of the DNS knows no address for names in `invalid`.
    let process = Process::start(pebble.acme(&["lost.invalid", "example.org"], store.path()), &site, TLS);
    process.wait(&["example.org"], None);
    let attempts = process.certificates.store.attempts("lost.invalid");
    assert_eq!(attempts.failures, 1);
    assert!(attempts.reason.contains("lost.invalid"), "{}", attempts.reason);
    assert!(process.leaf("lost.invalid").is_none());
}
