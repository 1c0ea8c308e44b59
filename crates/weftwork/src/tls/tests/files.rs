//! Tests of certificate files, and of the errors about those that cannot be used.

use std::fs;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::*;

fn write(folder: &Path, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, content).unwrap();
    path
}

/// Returns the key inside of PKCS#8, in PEM: PKCS#1 or SEC1.
fn older_form(pkcs8: &str, label: &str) -> String {
    let PrivateKeyDer::Pkcs8(key) =
        PrivateKeyDer::from(PrivatePkcs8KeyDer::from_pem_slice(pkcs8.as_bytes()).unwrap())
    else {
        unreachable!()
    };
    // The last octet string holds the key: its tag, a length of one or three bytes, and a sequence.
    let der = key.secret_pkcs8_der();
    let start = (0..der.len())
        .find(|at| {
            der[*at] == 4 && matches!((der[at + 1], der[at + 2], der[at + 4]), (_, 0x30, _) | (0x82, _, 0x30))
        })
        .unwrap();
    let inner = &der[start + if der[start + 1] == 0x82 { 4 } else { 2 }..];
    pem(label, inner)
}

fn pem(label: &str, der: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for part in der.chunks(3) {
        let bits = part
            .iter()
            .enumerate()
            .fold(0u32, |bits, (place, byte)| bits | u32::from(*byte) << (16 - 8 * place));
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= part.len() { digit as char } else { '=' });
        }
    }
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}

#[test]
fn keys_of_all_forms_are_taken() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new("root"));
    let client = client_of(&authority);
    let rsa_pem = include_str!("rsa-key.pem");
    let rsa_key = rcgen::KeyPair::from_pkcs8_pem_and_sign_algo(rsa_pem, &rcgen::PKCS_RSA_SHA256).unwrap();
    let (ecdsa, rsa) =
        (authority.issue("a.test"), authority.issue_with("a.test", SystemTime::now() + DAY, rsa_key));
    let keys = [
        (&ecdsa, ecdsa.key()),
        (&ecdsa, older_form(&ecdsa.key(), "EC PRIVATE KEY")),
        (&rsa, rsa_pem.to_owned()),
        (&rsa, older_form(rsa_pem, "RSA PRIVATE KEY")),
    ];
    for (issued, key) in keys {
        let (chain, key) = (write(folder.path(), "chain", issued.chain()), write(folder.path(), "key", key));
        let tls = Tls::from_files(chain, key).unwrap();
        let session = Session::new(&live(&tls), &client, "a.test").unwrap();
        assert_eq!(session.certificate(), issued.der());
    }
    let both = write(folder.path(), "both.pem", format!("{}{}", ecdsa.key(), ecdsa.chain()));
    assert!(Tls::from_files(&both, &both).is_ok(), "one file has both");
}

#[test]
fn an_unusable_pair_is_named_with_what_it_has() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new("root"));
    let (good, other) = (authority.issue("a.test"), authority.issue("b.test"));
    let expired = authority.issue_until("a.test", SystemTime::now() - 3 * DAY);
    let reversed = format!("{}{}", authority.pem(), good.alone());
    let date = httpdate::fmt_http_date(SystemTime::now() - 3 * DAY);
    let damaged = pem("CERTIFICATE", &[0x30, 3, 2, 1, 1]);
    let cases: [(String, String, &[&str]); 8] = [
        (good.chain(), good.chain(), &["cannot use the key", "key.pem", "two certificates and no key"]),
        (
            good.key(),
            good.key(),
            &["cannot use the certificate chain", "chain.pem", "one key and no certificate"],
        ),
        (
            good.chain(),
            other.key(),
            &["key.pem", "does not belong to the first certificate", "chain.pem", "CN=a.test"],
        ),
        (reversed, good.key(), &["key.pem", "belongs to certificate 2 of", "must come first"]),
        (
            expired.chain(),
            expired.key(),
            &["chain.pem", "certificate 1 of CN=a.test expired on", &date[..16]],
        ),
        (damaged, good.key(), &["chain.pem", "its first certificate is malformed"]),
        (good.chain(), pem("PRIVATE KEY", &[0x30, 0]), &["key.pem", "no supported kind"]),
        (
            good.chain(),
            pem("ENCRYPTED PRIVATE KEY", &[0x30, 0]),
            &["key.pem", "an encrypted key", "openssl pkey"],
        ),
    ];
    for (chain, key, expected) in cases {
        let (chain, key) = (write(folder.path(), "chain.pem", chain), write(folder.path(), "key.pem", key));
        let error = Tls::from_files(chain, key).unwrap_err().to_string();
        assert!(expected.iter().all(|part| error.contains(part)), "{error}\nexpected {expected:?}");
    }
    let chain = write(folder.path(), "chain.pem", good.chain());
    let error = Tls::from_files(&chain, folder.path().join("absent.pem")).unwrap_err().to_string();
    assert!(error.contains("cannot read the key") && error.contains("absent.pem"), "{error}");
    let error = Tls::from_files(folder.path(), &chain).unwrap_err().to_string();
    assert!(error.contains("cannot read the certificate chain"), "{error}");
}

#[test]
fn a_certificate_near_its_end_is_warned_of() {
    let authority = Authority::new("root");
    let days = |days: u32| {
        let server = authority.issue_until("a.test", SystemTime::now() + days * DAY);
        Tls::from_pem(server.chain(), server.key()).unwrap()
    };
    let lines = |tls: &Tls, now: SystemTime| live(tls).expiry_warnings(now);
    let now = SystemTime::now();
    assert!(lines(&days(15), now).is_empty());
    let line = lines(&days(14), now).remove(0);
    assert!(
        line.contains("a.test (given PEM) expires in 13 days, on ") && line.ends_with("renew it"),
        "{line}"
    );
    for (after, words) in
        [(12, "expires in 2 days"), (13, "expires in one day"), (14, "expires within a day")]
    {
        let line = lines(&days(15), now + after * DAY + DAY / 2).remove(0);
        assert!(line.contains(words), "{line}");
    }
    assert!(lines(&days(2), now + 3 * DAY)[0].contains("has expired"));
}
