//! An authority as a value. It speaks ACME, and each test chooses what it does wrong.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use instant_acme::{BodyWrapper, BytesResponse, Error as AcmeError, HttpClient};
use rcgen::{CertificateParams, Issuer, KeyPair, PublicKeyData, SerialNumber, SignatureAlgorithm};
use serde_json::{Value, json};
use x509_cert::der::Decode;
use x509_cert::request::CertReq;

use super::super::block_on;
use super::super::client::Notes;

pub(super) const DIRECTORY: &str = "https://ca.test/directory";

/// Looks at a challenge as the authority would: its kind, name and token.
type Verify = Box<dyn FnMut(&str, &str, &str) -> bool + Send>;

pub(super) struct State {
    pub(super) now: SystemTime,
    pub(super) requests: Vec<String>,
    /// Answers for the next requests whose path begins so.
    pub(super) faults: Vec<(&'static str, Response<Bytes>)>,
    pub(super) verify: Verify,
    pub(super) life: Duration,
    pub(super) has_renewal_info: bool,
    /// The window, in seconds from now.
    pub(super) window: (i64, i64),
    /// Signs for another key than the one that the request has.
    pub(super) signs_wrong_key: bool,
    pub(super) external_account: Option<String>,
    pub(super) replaced: Vec<String>,
    orders: Vec<FakeOrder>,
    serial: u64,
    issuer: Issuer<'static, KeyPair>,
}

#[derive(Default)]
struct FakeOrder {
    name: String,
    kind: Option<&'static str>,
    is_verified: bool,
    replaces: Option<Value>,
    certificate: Option<String>,
}

#[derive(Clone)]
pub(super) struct FakeCa {
    state: Arc<Mutex<State>>,
    notes: Notes,
}

impl FakeCa {
    pub(super) fn new(notes: Notes) -> FakeCa {
        let mut params = CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let state = State {
            now: SystemTime::now(),
            requests: Vec::new(),
            faults: Vec::new(),
            verify: Box::new(|_, _, _| true),
            life: Duration::from_secs(90 * 86400),
            has_renewal_info: false,
            window: (0, 0),
            signs_wrong_key: false,
            external_account: None,
            replaced: Vec::new(),
            orders: Vec::new(),
            serial: 0,
            issuer: Issuer::new(params, KeyPair::generate().unwrap()),
        };
        FakeCa { state: Arc::new(Mutex::new(state)), notes }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The same authority for another process.
    pub(super) fn with_notes(&self, notes: Notes) -> FakeCa {
        FakeCa { state: self.state.clone(), notes }
    }

    pub(super) fn count(&self, path: &str) -> usize {
        self.state().requests.iter().filter(|request| request.starts_with(path)).count()
    }

    fn answer(&self, request: Request<BodyWrapper<Bytes>>) -> Result<Response<Bytes>, AcmeError> {
        let (parts, body) = request.into_parts();
        let body = block_on(BytesResponse::from(Response::new(body)).body.into_bytes()).unwrap().unwrap();
        let path = parts.uri.path().trim_start_matches('/').to_owned();
        let mut state = self.state();
        state.requests.push(path.clone());
        if let Some(at) = state.faults.iter().position(|(prefix, _)| path.starts_with(prefix)) {
            let (_, response) = state.faults.remove(at);
            return match response.status() {
                // What the HTTP client says if nothing answers.
                StatusCode::BAD_GATEWAY => Err(AcmeError::Other("connection refused".into())),
                _ => Ok(response),
            };
        }
        let payload = if parts.method == Method::POST { payload(&body) } else { Value::Null };
        Ok(state.route(&path, &payload))
    }
}

impl HttpClient for FakeCa {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, AcmeError>> + Send>> {
        self.notes.set_retry_after(None);
        let result = self.answer(request).map(|response| {
            let seconds =
                response.headers().get("retry-after").map(|value| value.to_str().unwrap().parse().unwrap());
            let now = self.state().now;
            self.notes.set_retry_after(seconds.map(|seconds| now + Duration::from_secs(seconds)));
            let (parts, body) = response.into_parts();
            BytesResponse { parts, body: Box::new(body) }
        });
        Box::pin(std::future::ready(result))
    }
}

impl State {
    fn route(&mut self, path: &str, payload: &Value) -> Response<Bytes> {
        let (what, id) = path.split_once('/').unwrap_or((path, ""));
        let number: usize = id.parse().unwrap_or_default();
        match what {
            "directory" => {
                let mut directory = json!({ "newNonce": url("nonce"), "newAccount": url("account"), "newOrder": url("new-order") });
                if self.has_renewal_info {
                    directory["renewalInfo"] = json!(url("renewal"));
                }
                respond(200, directory)
            }
            "nonce" => respond(200, Value::Null),
            "account" => {
                self.external_account = payload.get("externalAccountBinding").map(|_| "bound".to_owned());
                located(respond(201, json!({ "status": "valid" })), "account/1")
            }
            "new-order" => {
                let name = payload["identifiers"][0]["value"].as_str().unwrap().to_owned();
                let replaces = payload.get("replaces").cloned();
                self.replaced.extend(replaces.iter().map(|id| id.as_str().unwrap().to_owned()));
                self.orders.push(FakeOrder { name, replaces, ..FakeOrder::default() });
                let number = self.orders.len() - 1;
                located(respond(201, self.order(number)), &format!("order/{number}"))
            }
            "order" => respond(200, self.order(number)),
            "authorization" => respond(200, self.authorization(number)),
            "tls-alpn-01" => self.validate(number, "tls-alpn-01"),
            "http-01" => self.validate(number, "http-01"),
            "finalize" => {
                let request = URL_SAFE_NO_PAD.decode(payload["csr"].as_str().unwrap()).unwrap();
                self.orders[number].certificate = Some(self.issue(number, &request));
                respond(200, self.order(number))
            }
            "certificate" => {
                let pem = self.orders[number].certificate.clone().unwrap();
                Response::builder().header("replay-nonce", "n").body(pem.into()).unwrap()
            }
            "renewal" => {
                let at = |offset: i64| {
                    let at = time::OffsetDateTime::from(self.now) + time::Duration::seconds(offset);
                    at.format(&time::format_description::well_known::Rfc3339).unwrap()
                };
                let window =
                    json!({ "suggestedWindow": { "start": at(self.window.0), "end": at(self.window.1) } });
                let mut response = respond(200, window);
                response.headers_mut().insert("retry-after", "3600".parse().unwrap());
                response
            }
            _ => problem(404, "malformed", &format!("no resource {path}")),
        }
    }

    fn order(&self, number: usize) -> Value {
        let order = &self.orders[number];
        let status = match (&order.certificate, order.kind, order.is_verified) {
            (Some(_), ..) => "valid",
            (None, None, _) => "pending",
            (None, Some(_), true) => "ready",
            (None, Some(_), false) => "invalid",
        };
        let mut value = json!({
            "status": status,
            "identifiers": [{ "type": "dns", "value": order.name }],
            "authorizations": [url(&format!("authorization/{number}"))],
            "finalize": url(&format!("finalize/{number}")),
            "certificate": url(&format!("certificate/{number}")),
        });
        if let Some(replaces) = &order.replaces {
            value["replaces"] = replaces.clone();
        }
        value
    }

    fn authorization(&self, number: usize) -> Value {
        let order = &self.orders[number];
        let challenge = |kind: &str| {
            let mut value = json!({
                "type": kind, "url": url(&format!("{kind}/{number}")), "token": format!("token-{number}"), "status": "pending"
            });
            if order.kind == Some(kind) && !order.is_verified {
                value["status"] = json!("invalid");
                value["error"] = json!({
                    "type": "urn:ietf:params:acme:error:connection",
                    "detail": format!("cannot connect to {}", order.name),
                });
            }
            value
        };
        let status = match order.kind {
            None => "pending",
            Some(_) if order.is_verified => "valid",
            Some(_) => "invalid",
        };
        json!({
            "identifier": { "type": "dns", "value": order.name },
            "status": status,
            "challenges": [challenge("http-01"), challenge("tls-alpn-01")],
        })
    }

    fn validate(&mut self, number: usize, kind: &'static str) -> Response<Bytes> {
        let name = self.orders[number].name.clone();
        let token = format!("token-{number}");
        let is_verified = (self.verify)(kind, &name, &token);
        let order = &mut self.orders[number];
        (order.kind, order.is_verified) = (Some(kind), is_verified);
        respond(200, json!({ "type": kind, "url": url(kind), "token": token, "status": "processing" }))
    }

    fn issue(&mut self, number: usize, request: &[u8]) -> String {
        self.serial += 1;
        let mut params = CertificateParams::new([self.orders[number].name.clone()]).unwrap();
        params.not_before = self.now.into();
        params.not_after = params.not_before + self.life;
        params.serial_number = Some(SerialNumber::from(self.serial));
        params.use_authority_key_identifier_extension = true;
        let certificate = match self.signs_wrong_key {
            true => params.signed_by(&KeyPair::generate().unwrap(), &self.issuer),
            false => params.signed_by(&RequestedKey::of(request), &self.issuer),
        };
        certificate.unwrap().pem()
    }
}

/// The key of a certificate request (RFC 2986 section 4).
struct RequestedKey(Vec<u8>);

impl RequestedKey {
    fn of(request: &[u8]) -> RequestedKey {
        let request = CertReq::from_der(request).unwrap();
        RequestedKey(request.info.public_key.subject_public_key.raw_bytes().to_vec())
    }
}

impl PublicKeyData for RequestedKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

fn url(path: &str) -> String {
    format!("https://ca.test/{path}")
}

fn respond(status: u16, value: Value) -> Response<Bytes> {
    let response = Response::builder().status(status).header("replay-nonce", "n");
    response.header("content-type", "application/json").body(value.to_string().into()).unwrap()
}

fn located(mut response: Response<Bytes>, path: &str) -> Response<Bytes> {
    response.headers_mut().insert("location", url(path).parse().unwrap());
    response
}

pub(super) fn problem(status: u16, kind: &str, detail: &str) -> Response<Bytes> {
    respond(status, json!({ "type": format!("urn:ietf:params:acme:error:{kind}"), "detail": detail }))
}

pub(super) fn unreachable_ca() -> Response<Bytes> {
    respond(502, Value::Null)
}

fn payload(body: &[u8]) -> Value {
    let message: HashMap<String, String> = serde_json::from_slice(body).unwrap();
    let payload = URL_SAFE_NO_PAD.decode(&message["payload"]).unwrap();
    if payload.is_empty() { Value::Null } else { serde_json::from_slice(&payload).unwrap() }
}
