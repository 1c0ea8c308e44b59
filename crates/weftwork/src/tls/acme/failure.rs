//! Describes a failure at the authority, and what an administrator can do.

use std::fmt;
use std::io;
use std::time::{Duration, SystemTime};

use instant_acme::{Error as AcmeError, Problem};

use super::settings::ChallengeKind;

/// Wait after an answer that names a rate limit without a time.
const RATE_LIMIT_WAIT: Duration = Duration::from_secs(3600);
/// Prefix of the types of RFC 8555 section 6.7.
const TYPE_PREFIX: &str = "urn:ietf:params:acme:error:";

/// A failed attempt.
#[derive(Debug)]
pub(super) struct Failure {
    /// What failed, with the words of the authority.
    pub(super) reason: String,
    /// What to do.
    pub(super) advice: String,
    /// The authority wants no other attempt before.
    pub(super) not_before: Option<SystemTime>,
    /// The authority does not know the account.
    pub(super) account_is_unknown: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. {}", self.reason.trim_end_matches('.'), self.advice)
    }
}

impl Failure {
    pub(super) fn new(reason: impl Into<String>, advice: impl Into<String>) -> Failure {
        Failure { reason: reason.into(), advice: advice.into(), not_before: None, account_is_unknown: false }
    }

    /// The store does not work.
    pub(super) fn store(error: &io::Error) -> Failure {
        Failure::new(
            format!("the store cannot be used: {error}"),
            "Look at the rights and the free space of the folder",
        )
    }

    /// A key or a request could not be made.
    pub(super) fn key(error: rcgen::Error) -> Failure {
        Failure::new(format!("cannot make a key or a request: {error}"), "This is a fault of this program")
    }

    /// A request to the authority failed. `retry_after` is what its last response said.
    pub(super) fn from_acme(step: &str, error: &AcmeError, retry_after: Option<SystemTime>) -> Failure {
        let failure = match error {
            AcmeError::Api(problem) => Failure::from_problem(step, problem, None),
            AcmeError::Other(cause) => Failure::new(
                format!("{step}: {cause}"),
                "If the authority is up, look at the network, the name service, and directory_ca_file",
            ),
            AcmeError::Json(cause) => Failure::new(
                format!("{step}: the response is not that of an ACME server: {cause}"),
                "Compare the directory URL with the one that the authority names",
            ),
            error => Failure::new(
                format!("{step}: {error}"),
                "Compare the directory URL and the account with what the authority names",
            ),
        };
        Failure { not_before: retry_after.max(failure.not_before), ..failure }
    }

    /// The authority answers with a problem. `challenge` is the one that it concerns.
    pub(super) fn from_problem(step: &str, problem: &Problem, challenge: Option<ChallengeKind>) -> Failure {
        let kind = problem.r#type.as_deref().unwrap_or_default();
        let kind = kind.strip_prefix(TYPE_PREFIX).unwrap_or(kind);
        let mut reason = format!("{step}: {}", problem.detail.as_deref().unwrap_or("no reason is given"));
        for part in &problem.subproblems {
            reason.push_str(&format!("; {part}"));
        }
        if !kind.is_empty() {
            reason.push_str(&format!(" ({kind})"));
        }
        Failure {
            not_before: (kind == "rateLimited").then(|| SystemTime::now() + RATE_LIMIT_WAIT),
            account_is_unknown: kind == "accountDoesNotExist",
            ..Failure::new(reason, advice(kind, challenge))
        }
    }
}

fn advice(kind: &str, challenge: Option<ChallengeKind>) -> String {
    let text = match kind {
        "dns" => "Look at the A, AAAA and CAA records of the name",
        "connection" | "tls" | "unauthorized" | "incorrectResponse" => {
            let port = match challenge {
                Some(ChallengeKind::Http01) => "80 (http-01)",
                Some(ChallengeKind::TlsAlpn01) => "443 (tls-alpn-01)",
                None => "443 or 80",
            };
            return format!(
                "The name must lead to this server, and its port {port} must be reachable from the internet, without a proxy that ends TLS or answers itself"
            );
        }
        "caa" => "A CAA record of the name forbids this authority: change the record, or the directory URL",
        "rateLimited" => "Wait, and try the staging directory while you look for the cause",
        "rejectedIdentifier" | "unsupportedIdentifier" => {
            "The authority does not certify this name: remove it from the list"
        }
        "externalAccountRequired" => {
            "The authority wants an account of its own: set external_account with the values that it gave you"
        }
        "userActionRequired" => "The authority has new terms: read them where the reason says",
        "invalidContact" | "unsupportedContact" => {
            "Correct the contact: mailto: and an address that gets mail"
        }
        "accountDoesNotExist" => "The account is made again at the next attempt",
        "serverInternal" => "The fault is at the authority: look at its status page if it stays",
        "invalidProfile" => "Choose a profile that the authority has",
        _ => "Ask the authority if the reason does not say what to do",
    };
    text.to_owned()
}
