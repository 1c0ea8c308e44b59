//! Gets a certificate: account, order, challenge, request and download (RFC 8555 section 7).
//!
//! The futures of `instant-acme` are ready as soon as they are polled, because its HTTP client blocks. Its own waits need
//! the timer of tokio and are never used: [`Order::refresh`] asks once, and the waits between are ours.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, ChallengeType, ExternalAccountKey, HttpClient,
    Identifier, NewAccount, NewOrder, Order, OrderStatus,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use serde::{Deserialize, Serialize};

use super::block_on;
use super::challenges::alpn_certificate;
use super::facts::Facts;
use super::failure::Failure;
use super::schedule::Window;
use super::settings::{AcmeSettings, ChallengeKind};
use super::stop::Stop;
use super::store::{PublishedChallenge, Store};

/// Time for the authority to verify a name, and then to issue.
const ORDER_TIMEOUT: Duration = Duration::from_secs(180);
/// Waits between two looks at an order, if the authority does not say how long.
const POLL_INTERVAL: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// What the HTTP client saw in the last response. `instant-acme` does not pass it on.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes(Arc<Mutex<Option<SystemTime>>>);

impl Notes {
    pub(super) fn set_retry_after(&self, time: Option<SystemTime>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = time;
    }

    pub(super) fn retry_after(&self) -> Option<SystemTime> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the HTTP client of each account.
pub(super) type Connect = Box<dyn Fn() -> Box<dyn HttpClient> + Send>;

/// Works with the authority, as one account.
pub(super) struct Client {
    settings: Arc<AcmeSettings>,
    store: Store,
    stop: Stop,
    notes: Notes,
    connect: Connect,
    account: Option<Account>,
}

/// Content of `account.json`.
#[derive(Serialize, Deserialize)]
struct KeptAccount {
    contact: Vec<String>,
    credentials: AccountCredentials,
}

impl Client {
    pub(super) fn new(
        settings: Arc<AcmeSettings>,
        store: Store,
        stop: Stop,
        notes: Notes,
        connect: Connect,
    ) -> Client {
        Client { settings, store, stop, notes, connect, account: None }
    }

    /// Gets a certificate for `name` and returns chain and key as PEM. The caller has the lock of the store.
    pub(super) fn obtain(
        &mut self,
        name: &str,
        replaces: Option<&Facts>,
        challenge: ChallengeKind,
    ) -> Result<String, Failure> {
        self.notes.set_retry_after(None);
        let account = self.account()?;
        let result = self.order(&account, name, replaces, challenge);
        if result.as_ref().is_err_and(|failure| failure.account_is_unknown) {
            self.account = None;
            self.store.forget_account().map_err(|error| Failure::store(&error))?;
        }
        result
    }

    /// Returns the window for the renewal and the time after which it may be asked for again. None: the authority has no
    /// renewal information, or there is no account yet.
    pub(super) fn renewal_window(&mut self, facts: &Facts) -> Result<Option<(Window, Duration)>, Failure> {
        let Some(id) = facts.renewal_id() else { return Ok(None) };
        let has_account = self.store.read_account().is_ok_and(|account| account.is_some());
        if self.account.is_none() && !has_account {
            return Ok(None);
        }
        let account = self.account()?;
        match block_on(account.renewal_info(&id)).map_err(|error| Failure::store(&error))? {
            Ok((info, retry_after)) => {
                let window = info.suggested_window;
                Ok(Some((Window { start: window.start.into(), end: window.end.into() }, retry_after)))
            }
            Err(instant_acme::Error::Unsupported(_)) => Ok(None),
            Err(error) => Err(self.failed("renewal information", &error)),
        }
    }

    /// Returns the account of the store, or makes one.
    fn account(&mut self) -> Result<Account, Failure> {
        if let Some(account) = &self.account {
            return Ok(account.clone());
        }
        let kept = self.store.read_account().map_err(|error| Failure::store(&error))?;
        let account = match kept {
            Some(json) => self.load_account(&json)?,
            None => self.new_account()?,
        };
        self.account = Some(account.clone());
        Ok(account)
    }

    fn load_account(&self, json: &str) -> Result<Account, Failure> {
        let kept: KeptAccount = serde_json::from_str(json).map_err(|error| {
            Failure::new(
                format!("the file account.json of the store is damaged: {error}"),
                "Restore the file, or remove it: the server then makes a new account",
            )
        })?;
        let KeptAccount { contact, credentials } = kept;
        let again: AccountCredentials = serde_json::to_value(&credentials)
            .and_then(serde_json::from_value)
            .map_err(|error| Failure::new(error.to_string(), ""))?;
        let builder = Account::builder_with_http((self.connect)());
        let account = self.run("account", builder.from_credentials(credentials))?;
        if contact != self.settings.contact {
            let new: Vec<&str> = self.settings.contact.iter().map(String::as_str).collect();
            self.run("contact of the account", account.update_contacts(&new))?;
            self.keep_account(again)?;
        }
        Ok(account)
    }

    fn new_account(&self) -> Result<Account, Failure> {
        let contact: Vec<&str> = self.settings.contact.iter().map(String::as_str).collect();
        let new = NewAccount {
            contact: &contact,
            terms_of_service_agreed: self.settings.terms_are_accepted,
            only_return_existing: false,
        };
        let external = self
            .settings
            .external_account
            .as_ref()
            .map(|external| ExternalAccountKey::new(external.id.clone(), &external.key));
        let builder = Account::builder_with_http((self.connect)());
        let url = self.settings.directory_url.clone();
        let (account, credentials) = self.run("account", builder.create(&new, url, external.as_ref()))?;
        self.keep_account(credentials)?;
        Ok(account)
    }

    fn keep_account(&self, credentials: AccountCredentials) -> Result<(), Failure> {
        let kept = KeptAccount { contact: self.settings.contact.clone(), credentials };
        let json = serde_json::to_string_pretty(&kept).map_err(std::io::Error::other);
        json.and_then(|json| self.store.write_account(&json)).map_err(|error| Failure::store(&error))
    }

    fn order(
        &self,
        account: &Account,
        name: &str,
        replaces: Option<&Facts>,
        challenge: ChallengeKind,
    ) -> Result<String, Failure> {
        let mut order = self.new_order(account, name, replaces)?;
        let until = Instant::now() + ORDER_TIMEOUT;
        let published = self.answer_challenges(&mut order, name, challenge)?;
        if self.poll(&mut order, until, OrderStatus::Pending)? != OrderStatus::Ready {
            return Err(self.authorization_failure(&mut order, challenge));
        }
        drop(published);
        let key = KeyPair::generate().map_err(Failure::key)?;
        let mut params = CertificateParams::new([name.to_owned()]).map_err(Failure::key)?;
        params.distinguished_name = DistinguishedName::new();
        let request = params.serialize_request(&key).map_err(Failure::key)?;
        self.run("certificate request", order.finalize_csr(request.der()))?;
        if order.state().status != OrderStatus::Valid {
            self.poll(&mut order, until, OrderStatus::Processing)?;
        }
        let chain = self.run("certificate", order.certificate())?;
        let chain =
            chain.ok_or_else(|| Failure::new("the authority has not issued in time", "It is tried again"))?;
        Ok(format!("{}\n{}", chain.trim_end(), key.serialize_pem()))
    }

    fn new_order(&self, account: &Account, name: &str, replaces: Option<&Facts>) -> Result<Order, Failure> {
        let identifiers = [Identifier::Dns(name.to_owned())];
        let plain = || {
            let order = NewOrder::new(&identifiers);
            match &self.settings.profile {
                Some(profile) => order.profile(profile),
                None => order,
            }
        };
        if let Some(id) = replaces.and_then(Facts::renewal_id) {
            let order =
                block_on(account.new_order(&plain().replaces(id))).map_err(|error| Failure::store(&error))?;
            match order {
                Ok(order) => return Ok(order),
                // Replaced before, issued by another authority, or no renewal information: an order without that
                // field says what is wrong, if anything is.
                Err(error) if self.notes.retry_after().is_some() => return Err(self.failed("order", &error)),
                Err(_) => {}
            }
        }
        self.run("order", account.new_order(&plain()))
    }

    /// Publishes the answer to each challenge and tells the authority. A name that it has verified before has none.
    fn answer_challenges(
        &self,
        order: &mut Order,
        name: &str,
        challenge: ChallengeKind,
    ) -> Result<Vec<PublishedChallenge>, Failure> {
        let mut published = Vec::new();
        let mut authorizations = order.authorizations();
        while let Some(authorization) =
            block_on(authorizations.next()).map_err(|error| Failure::store(&error))?
        {
            let mut authorization = authorization.map_err(|error| self.failed("authorization", &error))?;
            if authorization.status == AuthorizationStatus::Valid {
                continue;
            }
            let wanted = match challenge {
                ChallengeKind::TlsAlpn01 => ChallengeType::TlsAlpn01,
                ChallengeKind::Http01 => ChallengeType::Http01,
            };
            let mut handle = authorization.challenge(wanted).ok_or_else(|| {
                Failure::new(
                    format!("the authority does not offer the challenge {challenge}"),
                    "Add a plain listener on port 80 for http-01, or choose another authority",
                )
            })?;
            let answer = handle.key_authorization();
            let file = match challenge {
                ChallengeKind::TlsAlpn01 => {
                    let pem = alpn_certificate(name, &answer).map_err(Failure::key)?;
                    self.store.publish_alpn(name, &pem)
                }
                ChallengeKind::Http01 => self.store.publish_token(&handle.token, answer.as_str()),
            };
            published.push(file.map_err(|error| Failure::store(&error))?);
            self.run("challenge", handle.set_ready())?;
        }
        Ok(published)
    }

    /// Waits while the order has the status `passing`, and returns the next one.
    fn poll(&self, order: &mut Order, until: Instant, passing: OrderStatus) -> Result<OrderStatus, Failure> {
        let (mut interval, max) = POLL_INTERVAL;
        loop {
            let status = self.run("order", order.refresh())?.status;
            if status != passing {
                return Ok(status);
            }
            let asked = self.notes.retry_after().and_then(|time| time.duration_since(SystemTime::now()).ok());
            let wait = asked.map_or(interval, |asked| asked.max(POLL_INTERVAL.0));
            interval = (interval * 2).min(max);
            if Instant::now() + wait > until {
                return Err(Failure::new(
                    format!("the authority has not decided within {} s", ORDER_TIMEOUT.as_secs()),
                    "It is tried again",
                ));
            }
            if self.stop.wait(wait) {
                return Err(Failure::new("the server stops", ""));
            }
        }
    }

    /// Asks the authorization why the order is invalid.
    fn authorization_failure(&self, order: &mut Order, challenge: ChallengeKind) -> Failure {
        if let Some(problem) = &order.state().error {
            return Failure::from_problem("order", problem, Some(challenge));
        }
        let mut authorizations = order.authorizations();
        while let Ok(Some(Ok(mut authorization))) = block_on(authorizations.next()) {
            let Ok(Ok(state)) = block_on(authorization.refresh()) else { break };
            if let Some(problem) = state.challenges.iter().find_map(|challenge| challenge.error.as_ref()) {
                return Failure::from_problem(&format!("challenge {challenge}"), problem, Some(challenge));
            }
        }
        Failure::new(
            format!("the authority rejects the challenge {challenge} and gives no reason"),
            "The name must lead to this server",
        )
    }

    fn run<T>(
        &self,
        step: &str,
        call: impl Future<Output = Result<T, instant_acme::Error>>,
    ) -> Result<T, Failure> {
        let result = block_on(call).map_err(|error| Failure::new(error.to_string(), ""))?;
        result.map_err(|error| self.failed(step, &error))
    }

    fn failed(&self, step: &str, error: &instant_acme::Error) -> Failure {
        Failure::from_acme(step, error, self.notes.retry_after())
    }
}
