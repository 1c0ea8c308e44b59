//! Gives the listeners of a server their TLS, and reads the prefixes of addresses.

use super::process::maintenance::ReloadHooks;
use crate::error::{Error, Result};
use crate::transport::context::Context;
use crate::transport::listener::{Listener, ListenerTls};

/// An address without the prefixes that say what its clients speak.
pub(super) struct Prefixed<'a> {
    pub(super) is_proxied: bool,
    pub(super) tls: ListenerTls,
    pub(super) address: &'a str,
}

impl Prefixed<'_> {
    /// Reads the prefixes `proxy+`, `tls+` and `plain+`, in any order.
    pub(super) fn parse(text: &str) -> Result<Prefixed<'_>> {
        let mut found = Prefixed { is_proxied: false, tls: ListenerTls::Default, address: text };
        loop {
            let tls = if let Some(rest) = found.address.strip_prefix("proxy+") {
                (found.is_proxied, found.address) = (true, rest);
                continue;
            } else if let Some(rest) = found.address.strip_prefix("tls+") {
                found.address = rest;
                ListenerTls::On
            } else if let Some(rest) = found.address.strip_prefix("plain+") {
                found.address = rest;
                ListenerTls::Off
            } else {
                return Ok(found);
            };
            if found.tls != ListenerTls::Default && found.tls != tls {
                return Err(Error::usage(format!(
                    "invalid address {text:?}: expected either tls+ or plain+"
                )));
            }
            found.tls = tls;
        }
    }
}

#[cfg(not(feature = "_tls"))]
pub(super) use without::*;

#[cfg(not(feature = "_tls"))]
mod without {
    use super::*;

    /// TLS of a server without the feature.
    #[derive(Debug, Default)]
    pub(in super::super) struct ServerTls {}

    impl ServerTls {
        pub(in super::super) fn start(
            &self,
            listeners: &mut [Listener],
            _: &crate::Settings,
        ) -> Result<RunningTls> {
            match listeners.iter().find(|listener| listener.wish() == ListenerTls::On) {
                Some(listener) => Err(Error::usage(format!(
                    "cannot listen at tls+{}: weftwork is built without the feature tls or tls-ring",
                    listener.address()
                ))),
                None => Ok(RunningTls),
            }
        }
    }

    #[derive(Clone, Debug, Default)]
    pub(in super::super) struct RunningTls;

    impl RunningTls {
        pub(in super::super) fn add_reload_hook(&self, _: &mut ReloadHooks) {}
        pub(in super::super) fn log_start(&self, _: &crate::Settings) {}
        pub(in super::super) fn add_to(&self, cx: Context) -> Context {
            cx
        }
        pub(in super::super) fn without_watch(&self) -> RunningTls {
            RunningTls
        }
    }

    impl crate::Server {
        pub(in super::super) fn share_tls(&mut self, _: &RunningTls) {}
    }
}

#[cfg(feature = "_tls")]
pub(super) use with::*;

#[cfg(feature = "_tls")]
mod with {
    use std::fmt;
    use std::sync::Arc;

    use super::*;
    use crate::message::Handler;
    use crate::server::process::predecessor;
    use crate::server::{Running, Server, ServerStatus};
    use crate::settings::Settings;
    use crate::tls::{self, AcmeThread, CertificateInfo, Live, Place, Reachable, Tls, Watch};
    use crate::transport::address::Address;
    use crate::transport::log_queue::log_line;

    /// TLS of a server that is not started.
    #[derive(Debug, Default)]
    pub(in super::super) struct ServerTls {
        /// For all listeners without TLS of their own.
        all: Option<Tls>,
        /// For single listeners.
        own: Vec<Tls>,
        /// What the site has started, for its side listener.
        site: Option<Arc<Live>>,
    }

    /// TLS of a running server.
    #[derive(Clone, Debug, Default)]
    pub(in super::super) struct RunningTls {
        /// The first is that of all listeners without TLS of their own.
        live: Vec<Arc<Live>>,
        /// Addresses with TLS.
        addresses: Vec<Address>,
        /// Ends with the server.
        _watch: Option<Arc<Watch>>,
        _acme: Vec<Arc<AcmeThread>>,
        shared: Option<Arc<Live>>,
    }

    impl Server {
        /// Serves TLS at all addresses of [`bind`](Server::bind) and [`and_bind`](Server::and_bind), in any order of the
        /// calls. An address with the prefix `plain+` stays without, such as `plain+127.0.0.1:8080`. The
        /// [side listener](Server::admin) is without TLS unless its address has the prefix `tls+`.
        ///
        /// ```no_run
        /// use weftwork::Tls;
        /// use weftwork::prelude::*;
        ///
        /// fn main() -> weftwork::Result<()> {
        ///     let tls = Tls::from_files("fullchain.pem", "privkey.pem")?;
        ///     let probes = Router::new().get("/health", || "OK");
        ///     Server::bind("[::]:443")?
        ///         .and_bind("plain+unix:/run/site.sock")?
        ///         .admin("127.0.0.1:9090", probes)?
        ///         .tls(tls)
        ///         .run(|req: &mut Request| format!("{}://{}\n", req.scheme(), req.host().unwrap_or_default()))
        /// }
        /// ```
        ///
        /// [`start`](Server::start) loads the files again. It fails if an address has the prefix `tls+` and this method was
        /// not called.
        #[must_use]
        pub fn tls(mut self, tls: impl Into<Tls>) -> Server {
            self.tls.all = Some(tls.into());
            self
        }

        /// Binds to a further address with TLS of its own, such as other rules for client certificates.
        ///
        /// ```no_run
        /// use weftwork::prelude::*;
        /// use weftwork::tls::{ClientCertificates, Tls};
        ///
        /// let site = Tls::from_files("fullchain.pem", "privkey.pem")?;
        /// let partners = site.clone().client_certificates(ClientCertificates::required("partners-ca.pem")?);
        /// let server = Server::bind("[::]:443")?.tls(site).and_bind_tls("[::]:8443", partners)?;
        /// # weftwork::Result::<()>::Ok(())
        /// ```
        ///
        /// # Errors
        /// See [`bind`](Server::bind).
        pub fn and_bind_tls(mut self, address: impl fmt::Display, tls: impl Into<Tls>) -> Result<Server> {
            self.tls.own.push(tls.into());
            let index = self.tls.own.len() - 1;
            self.bind_as(&address.to_string(), Some(ListenerTls::Own(index)))
        }

        /// Lets the side listener use the certificates of the site.
        pub(in super::super) fn share_tls(&mut self, site: &RunningTls) {
            self.tls.site.clone_from(&site.shared);
        }
    }

    impl ServerTls {
        /// Loads the certificates, and gives them to the listeners.
        pub(in super::super) fn start(
            &self,
            listeners: &mut [Listener],
            settings: &Settings,
        ) -> Result<RunningTls> {
            let load = |tls: &Tls, wish: &dyn Fn(ListenerTls) -> bool| {
                let of = listeners.iter().filter(|listener| wish(listener.wish()));
                let addresses = of.map(|listener| listener.name()).collect::<Vec<_>>().join(" ");
                let former_ticket_keys = predecessor::ticket_keys(&addresses);
                tls.start(settings, &Place { addresses, former_ticket_keys })
            };
            let takes_all = |wish: ListenerTls| matches!(wish, ListenerTls::Default | ListenerTls::On);
            let all = self.all.as_ref().map(|tls| load(tls, &takes_all)).transpose()?;
            let own = self.own.iter().enumerate();
            let own = own.map(|(index, tls)| load(tls, &|wish| wish == ListenerTls::Own(index)));
            let own = own.collect::<Result<Vec<_>>>()?;
            for listener in listeners.iter_mut() {
                let live = match listener.wish() {
                    ListenerTls::Default => all.as_ref(),
                    ListenerTls::On => Some(all.as_ref().or(self.site.as_ref()).ok_or_else(|| {
                        let address = listener.address();
                        Error::usage(format!(
                            "cannot listen at tls+{address}: the server has no certificate, give it one (Server::tls) or remove tls+"
                        ))
                    })?),
                    ListenerTls::Off => None,
                    ListenerTls::Own(index) => own.get(index),
                };
                if let Some(live) = live {
                    listener.set_tls(live.acceptor().clone());
                }
            }
            let secured = listeners.iter().filter(|listener| listener.tls().is_some());
            let addresses = secured.map(|listener| listener.address().clone()).collect();
            let live: Vec<Arc<Live>> = all.iter().chain(&own).cloned().collect();
            let refused = |error| Error::io("cannot start the thread for certificate files", error);
            let watch = match live.is_empty() {
                true => None,
                false => {
                    Some(Arc::new(Watch::start(live.clone(), settings.tls_check_interval).map_err(refused)?))
                }
            };
            Ok(RunningTls { shared: all, live, addresses, _watch: watch, _acme: Vec::new() })
        }
    }

    impl RunningTls {
        /// Logs certificates, and what is dangerous.
        pub(in super::super) fn log_start(&self, settings: &Settings) {
            self.live.iter().for_each(|live| live.log_start());
            let file =
                std::env::var_os("SSLKEYLOGFILE").filter(|_| settings.tls_key_log && !self.live.is_empty());
            if let Some(file) = file {
                log_line!(
                    Warn,
                    "TLS: secrets of all connections are written to {} (tls_key_log)",
                    file.to_string_lossy()
                );
            }
        }

        /// Lets a handler answer the requests of certificate authorities.
        pub(in super::super) fn answer_challenges(&self, handler: Arc<dyn Handler>) -> Arc<dyn Handler> {
            let certificates: Vec<_> = self.live.iter().filter_map(|live| live.acme().cloned()).collect();
            tls::answer_challenges(&certificates, handler)
        }

        /// Begins to get and renew certificates.
        pub(in super::super) fn start_acme(
            mut self,
            listeners: &[Listener],
            redirects: bool,
        ) -> Result<RunningTls> {
            let plain = redirects || listeners.iter().any(|listener| listener.tls().is_none());
            let of_acme: Vec<_> = self.live.iter().filter(|live| live.acme().is_some()).collect();
            let tls = of_acme.iter().any(|live| !live.requires_client_certificates());
            let started = of_acme
                .iter()
                .filter_map(|live| live.acme())
                .map(|acme| Ok(Arc::new(acme.start(Reachable { tls, plain })?)));
            self._acme = started.collect::<Result<_>>()?;
            Ok(self)
        }

        /// Lets SIGHUP read all files again, if there are any.
        pub(in super::super) fn add_reload_hook(&self, hooks: &mut ReloadHooks) {
            let live = self.live.clone();
            if !live.is_empty() {
                hooks.push(move || reload(&live));
            }
        }

        /// Returns the same for a status, which may outlive the server.
        pub(in super::super) fn without_watch(&self) -> RunningTls {
            RunningTls { _watch: None, _acme: Vec::new(), ..self.clone() }
        }

        /// Lets adopted connections begin TLS, as those at addresses without a prefix do.
        pub(in super::super) fn add_to(&self, cx: Context) -> Context {
            cx.with_tls(self.shared.as_ref().map(|live| live.acceptor().clone()))
        }

        pub(in super::super) fn certificates(&self) -> Vec<CertificateInfo> {
            self.live.iter().flat_map(|live| live.certificates()).collect()
        }
    }

    fn reload(live: &[Arc<Live>]) -> Result<()> {
        let errors: Vec<String> =
            live.iter().filter_map(|live| live.reload().err()).map(|error| error.to_string()).collect();
        if errors.is_empty() { Ok(()) } else { Err(Error::usage(errors.join("; "))) }
    }

    impl Running {
        /// Reads all certificate files again, as SIGHUP does: see [`TlsHandle::reload`](crate::tls::TlsHandle::reload). Without
        /// TLS it does nothing.
        ///
        /// # Errors
        /// Something cannot be used. What was loaded before stays in use instead of it.
        pub fn reload_tls(&self) -> Result<()> {
            reload(&self.tls.live)
        }

        /// Returns whether clients of one of the [`addresses`](Running::addresses), or of the
        /// [side listener](Running::admin_addresses), speak TLS.
        pub fn has_tls(&self, address: &Address) -> bool {
            let of_side = self.admin.as_ref().is_some_and(|side| side.has_tls(address));
            self.tls.addresses.contains(address) || of_side
        }
    }

    impl ServerStatus {
        /// Returns the certificates in use, without those of the side listener. Before the start, the list is empty.
        pub fn certificates(&self) -> Vec<CertificateInfo> {
            self.tls().map_or(Vec::new(), RunningTls::certificates)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_come_in_any_order() {
        let cases = [
            ("127.0.0.1:80", false, ListenerTls::Default, "127.0.0.1:80"),
            ("proxy+:80", true, ListenerTls::Default, ":80"),
            ("tls+proxy+:80", true, ListenerTls::On, ":80"),
            ("proxy+plain+unix:/a+b", true, ListenerTls::Off, "unix:/a+b"),
        ];
        for (text, is_proxied, tls, address) in cases {
            let found = Prefixed::parse(text).unwrap();
            assert_eq!((found.is_proxied, found.tls, found.address), (is_proxied, tls, address), "{text}");
        }
        let error = Prefixed::parse("tls+plain+:80").err().unwrap().to_string();
        assert!(error.contains("either tls+ or plain+"), "{error}");
    }
}
