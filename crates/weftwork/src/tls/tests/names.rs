//! Tests that a client gets the certificate of its name.

use rcgen::{KeyPair, PKCS_RSA_SHA256};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme};

use super::*;

#[test]
fn a_client_gets_the_certificate_of_its_name() {
    let authority = Authority::new("root");
    let [first, wildcard, exact] = ["first.test", "*.b.test", "www.b.test"].map(|name| authority.issue(name));
    let tls = Tls::from_pem(first.chain(), first.key())
        .and_then(|tls| tls.and_pem(wildcard.chain(), wildcard.key()))
        .and_then(|tls| tls.and_pem(exact.chain(), exact.key()))
        .unwrap();
    let client = client_of(&authority);
    let certificate =
        |tls: &Tls, name: &str| Session::new(&live(tls), &client, name).map(|session| session.certificate());
    assert_eq!(certificate(&tls, "www.b.test").unwrap(), exact.der());
    assert_eq!(certificate(&tls, "api.b.test").unwrap(), wildcard.der());
    assert_eq!(certificate(&tls, "first.test").unwrap(), first.der());
    // The client refuses the first certificate, which it gets for any other name.
    for name in ["a.api.b.test", "unknown.test", "127.0.0.1"] {
        let error = certificate(&tls, name).unwrap_err();
        assert!(matches!(error, rustls::Error::InvalidCertificate(_)), "{name}: {error}");
    }
    let strict = tls.strict_names();
    assert_eq!(certificate(&strict, "api.b.test").unwrap(), wildcard.der());
    for name in ["a.api.b.test", "unknown.test", "127.0.0.1"] {
        let error = certificate(&strict, name).unwrap_err().to_string();
        assert!(error.contains("no server certificate chain"), "{name}: {error}");
    }
}

#[test]
fn an_old_client_gets_the_rsa_certificate_of_its_name() {
    let authority = Authority::new("root");
    let key = KeyPair::from_pkcs8_pem_and_sign_algo(include_str!("rsa-key.pem"), &PKCS_RSA_SHA256).unwrap();
    let (ecdsa, rsa) =
        (authority.issue("a.test"), authority.issue_with("a.test", SystemTime::now() + DAY, key));
    let tls = Tls::from_pem(ecdsa.chain(), ecdsa.key())
        .and_then(|tls| tls.and_pem(rsa.chain(), rsa.key()))
        .unwrap();
    let mut provider = (*provider::default_provider()).clone();
    // Clients say by their cipher suites that they know RSA alone.
    provider.cipher_suites.retain(|suite| format!("{:?}", suite.suite()).contains("ECDHE_RSA"));
    let mut roots = RootCertStore::empty();
    roots.add(authority.der()).unwrap();
    let old = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&version::TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let certificate = |client| Session::new(&live(&tls), &client, "a.test").unwrap().certificate();
    assert_eq!(certificate(client_of(&authority)), ecdsa.der());
    assert_eq!(certificate(Arc::new(old)), rsa.der());
}

/// A key that takes its time, as one in another machine does.
#[derive(Debug)]
struct SlowKey(Arc<dyn SigningKey>);

#[derive(Debug)]
struct SlowSigner(Box<dyn Signer>);

impl SigningKey for SlowKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        Some(Box::new(SlowSigner(self.0.choose_scheme(offered)?)))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.0.algorithm()
    }
}

impl Signer for SlowSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        std::thread::sleep(Duration::from_millis(2));
        self.0.sign(message)
    }

    fn scheme(&self) -> SignatureScheme {
        self.0.scheme()
    }
}

#[test]
fn a_key_of_the_program_that_signs_slowly_is_noticed() {
    let authority = Authority::new("root");
    let server = authority.issue("a.test");
    let fast = provider::default_provider().key_provider.load_private_key(server.key_der()).unwrap();
    let slow = CertifiedKey::new(vec![server.der()], Arc::new(SlowKey(fast)));
    let tls = Tls::from_key(Arc::new(slow)).unwrap();
    let live = live(&tls);
    assert!(live.acceptor().current().signs_slowly);
    Session::new(&live, &client_of(&authority), "a.test").unwrap().talk();
    let expired = authority.issue_until("a.test", SystemTime::now() - DAY);
    let key = provider::default_provider().key_provider.load_private_key(expired.key_der()).unwrap();
    let error = Tls::from_key(Arc::new(CertifiedKey::new(vec![expired.der()], key))).unwrap_err().to_string();
    assert!(error.contains("expired on"), "{error}");
}
