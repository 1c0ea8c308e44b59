//! TLS of the command's server: from flags, or from variables.

use clap::{Arg, ArgAction, ValueHint};
use weftwork::Server;
use weftwork::tls::{ClientCertificates, Tls};

use crate::args::{Given, Usage};
use crate::command::option;

/// Variables that replace the flags for a certificate and its key.
pub(crate) const VARIABLES: [&str; 2] = ["WEFT_TLS_CERT", "WEFT_TLS_KEY"];

/// Names of a self-signed certificate.
const SELF_SIGNED: [&str; 1] = ["localhost"];

/// Returns the options for clap.
pub(crate) fn args() -> [Arg; 5] {
    [
        option("tls-cert", "FILE")
            .action(ArgAction::Append)
            .value_hint(ValueHint::FilePath)
            .help("speak TLS with this chain in PEM, may be repeated for further names [WEFT_TLS_CERT]"),
        option("tls-key", "FILE")
            .action(ArgAction::Append)
            .value_hint(ValueHint::FilePath)
            .help("the key of the chain, one for each --tls-cert [WEFT_TLS_KEY]"),
        Arg::new("tls-self-signed")
            .long("tls-self-signed")
            .action(ArgAction::SetTrue)
            .help("speak TLS with a certificate for localhost that browsers do not know, for development"),
        option("tls-client-ca", "FILE")
            .value_hint(ValueHint::FilePath)
            .help("require certificates of clients, signed by an authority in this file"),
        option("redirect-from", "ADDRESS")
            .action(ArgAction::Append)
            .help("answer plain HTTP there with a redirect to HTTPS, such as :80"),
    ]
    .map(|arg| arg.help_heading("HTTPS"))
}

/// Values of the flags.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct TlsOptions {
    pub(crate) chains: Vec<String>,
    pub(crate) keys: Vec<String>,
    pub(crate) is_self_signed: bool,
    pub(crate) client_authorities: Option<String>,
    pub(crate) redirect_from: Vec<String>,
}

impl From<&Given<'_>> for TlsOptions {
    fn from(given: &Given<'_>) -> TlsOptions {
        TlsOptions {
            chains: given.all("tls-cert"),
            keys: given.all("tls-key"),
            is_self_signed: given.has("tls-self-signed"),
            client_authorities: given.one("tls-client-ca"),
            redirect_from: given.all("redirect-from"),
        }
    }
}

impl TlsOptions {
    /// Adds TLS and the redirect listener to the server, if the options or the variables ask for it.
    pub(crate) fn apply(
        &self,
        server: Server,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Server, Usage> {
        let tls = self.tls(variable)?;
        let has_tls = tls.is_some();
        let mut server = match tls {
            Some(tls) => server.tls(tls),
            None => server,
        };
        for address in &self.redirect_from {
            if !has_tls {
                return Err(Usage("--redirect-from needs --tls-cert or --tls-self-signed".into()));
            }
            server = server.redirect_from(address)?;
        }
        Ok(server)
    }

    fn tls(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Option<Tls>, Usage> {
        let [chain, key] = VARIABLES;
        let of_variables = self.chains.is_empty() && self.keys.is_empty() && !self.is_self_signed;
        let (chains, keys) = match of_variables {
            true => (variable(chain).into_iter().collect(), variable(key).into_iter().collect()),
            false => (self.chains.clone(), self.keys.clone()),
        };
        let (chain, key) = if of_variables { (chain, key) } else { ("--tls-cert", "--tls-key") };
        if chains.len() != keys.len() {
            let (chains, keys) = (chains.len(), keys.len());
            return Err(Usage(format!("{chain} and {key} belong together: there are {chains} and {keys}")));
        }
        let tls = match (self.is_self_signed, chains.is_empty()) {
            (true, false) => {
                return Err(Usage("--tls-self-signed and --tls-cert exclude each other".into()));
            }
            (true, true) => Some(Tls::self_signed(SELF_SIGNED)?),
            (false, _) => chains.iter().zip(&keys).try_fold(None, |tls: Option<Tls>, (chain, key)| {
                let with = match tls {
                    Some(tls) => tls.and_files(chain, key),
                    None => Tls::from_files(chain, key),
                };
                with.map(Some)
            })?,
        };
        match (tls, &self.client_authorities) {
            (Some(tls), Some(file)) => Ok(Some(tls.client_certificates(ClientCertificates::required(file)?))),
            (None, Some(_)) => Err(Usage("--tls-client-ca needs --tls-cert or --tls-self-signed".into())),
            (tls, None) => Ok(tls),
        }
    }
}
