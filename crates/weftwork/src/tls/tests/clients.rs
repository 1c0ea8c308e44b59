//! Tests of client certificates: required, optional, revoked, and resumed.

use std::fs;

use super::*;
use crate::tls::ClientCertificate;

struct Scene {
    server: Authority,
    clients: Authority,
    tls: Tls,
}

fn scene() -> Scene {
    let (server, clients) = (Authority::new("servers"), Authority::new("clients"));
    let own = server.issue("a.test");
    Scene { tls: Tls::from_pem(own.chain(), own.key()).unwrap(), server, clients }
}

impl Scene {
    /// Returns what the server knows of its client, if the handshake succeeds.
    fn shown(
        &self,
        clients: &ClientCertificates,
        own: Option<&Issued>,
    ) -> Result<Option<ClientCertificate>, rustls::Error> {
        let live = live(&self.tls.clone().client_certificates(clients.clone()));
        let client = own.map_or_else(|| client_of(&self.server), |own| client_with(&self.server, own));
        let session = Session::new(&live, &client, "a.test")?;
        Ok(session.server.peer_certificates().map(ClientCertificate::new))
    }
}

#[test]
fn a_required_certificate_leads_to_the_authority() {
    let scene = scene();
    let required = ClientCertificates::required_pem(scene.clients.pem()).unwrap();
    let (good, other) = (scene.clients.issue("ada.test"), scene.server.issue("ada.test"));
    let expired = scene.clients.issue_until("ada.test", SystemTime::now() - DAY);
    let shown = scene.shown(&required, Some(&good)).unwrap().unwrap();
    assert_eq!(shown.common_name(), Some("ada.test"));
    assert_eq!((shown.subject(), shown.issuer()), ("CN=ada.test", "CN=clients"));
    assert_eq!(shown.dns_names(), ["ada.test"]);
    assert_eq!(shown.chain().next().unwrap(), &*good.der());
    assert!(shown.expires().unwrap() > SystemTime::now());
    for own in [None, Some(&other), Some(&expired)] {
        assert!(scene.shown(&required, own).is_err());
    }
}

#[test]
fn an_optional_certificate_may_be_absent_and_not_wrong() {
    let scene = scene();
    let optional = ClientCertificates::optional_pem(scene.clients.pem()).unwrap();
    assert!(scene.shown(&optional, None).unwrap().is_none());
    assert!(scene.shown(&optional, Some(&scene.clients.issue("ada.test"))).unwrap().is_some());
    assert!(scene.shown(&optional, Some(&scene.server.issue("ada.test"))).is_err());
}

#[test]
fn a_revoked_certificate_is_refused_after_a_reload_too() {
    let (scene, folder) = (scene(), tempfile::tempdir().unwrap());
    let (good, revoked) = (scene.clients.issue("ada.test"), scene.clients.issue("bob.test"));
    let (ca, lists) = (folder.path().join("ca.pem"), folder.path().join("lists.pem"));
    fs::write(&ca, scene.clients.pem()).unwrap();
    fs::write(&lists, scene.clients.revoke(&[])).unwrap();
    let clients = ClientCertificates::required(&ca).unwrap().revoked(&lists).unwrap();
    assert!(scene.shown(&clients, Some(&revoked)).is_ok());
    let live = live(&scene.tls.clone().client_certificates(clients));
    fs::write(&lists, scene.clients.revoke(&[&revoked])).unwrap();
    live.reload().unwrap();
    let shake = |own: &Issued| Session::new(&live, &client_with(&scene.server, own), "a.test").map(drop);
    assert!(shake(&good).is_ok());
    assert!(matches!(
        shake(&revoked),
        Err(rustls::Error::InvalidCertificate(rustls::CertificateError::Revoked))
    ));
    fs::write(&lists, "damaged").unwrap();
    let error = live.reload().unwrap_err().to_string();
    assert!(error.contains("lists.pem") && error.contains("no revocation list"), "{error}");
    assert!(shake(&good).is_ok() && shake(&revoked).is_err(), "the former list stays");
}

#[test]
fn sessions_with_clients_resume_only_if_asked_for_and_not_after_a_change() {
    let (scene, folder) = (scene(), tempfile::tempdir().unwrap());
    let (ca, own) = (folder.path().join("ca.pem"), scene.clients.issue("ada.test"));
    fs::write(&ca, scene.clients.pem()).unwrap();
    let clients = ClientCertificates::required(&ca).unwrap();
    let resumed = |live: &Live, client: &Arc<ClientConfig>| {
        let session = Session::new(live, client, "a.test").unwrap();
        assert_eq!(session.server.peer_certificates().unwrap()[0], own.der());
        session.is_resumed()
    };
    let once = live(&scene.tls.clone().client_certificates(clients.clone()));
    let client = client_with(&scene.server, &own);
    assert!(!resumed(&once, &client));
    assert!(!resumed(&once, &client));
    let asked = live(&scene.tls.clone().client_certificates(clients.with_resumption()));
    let client = client_with(&scene.server, &own);
    assert!(!resumed(&asked, &client));
    assert!(resumed(&asked, &client));
    // The certificate still counts, and its session is verified again.
    fs::write(&ca, format!("{}{}", scene.clients.pem(), scene.server.pem())).unwrap();
    asked.reload().unwrap();
    assert!(!resumed(&asked, &client));
}

#[test]
fn unusable_authorities_are_named() {
    let scene = scene();
    let key = scene.clients.issue("ada.test").key();
    let error = ClientCertificates::required_pem(key).unwrap_err().to_string();
    assert!(
        error.contains("given client authorities") && error.contains("one key and no certificate"),
        "{error}"
    );
    let error = ClientCertificates::optional("/nonexistent/ca.pem").unwrap_err().to_string();
    assert!(error.contains("cannot read the client authorities /nonexistent/ca.pem"), "{error}");
}
