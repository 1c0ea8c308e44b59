//! The side listener: a small server of its own for probes and metrics, beside the site.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::tls::RunningTls;
use super::{Address, Running, Server};
use crate::app::extract::IntoHandler;
use crate::engine::Engine;
use crate::error::Result;
use crate::message::Handler;
use crate::settings::Settings;

/// Threads for probes. A readiness probe may ask a database.
const THREADS_MAX: usize = 4;
/// Connections of probes and scrapers.
const CONNECTIONS_MAX: usize = 128;
/// Requests that wait for a thread.
const QUEUE_MAX: usize = 64;
/// Time for a request that is in flight when the site has ended.
const DRAIN: Duration = Duration::from_millis(500);

/// The side listener of a server that is not started.
pub(super) struct Admin {
    server: Server,
    handler: Arc<dyn Handler>,
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").field("addresses", &self.server.addresses()).finish_non_exhaustive()
    }
}

impl Server {
    /// Adds a side listener for probes and metrics, with a handler of its own. It answers whatever the site does: while all
    /// threads of the site are busy, while it turns connections away, and while it drains.
    ///
    /// The side listener has its own event loop, 4 threads and 128 connections. It reads no `WEFT_...` variables and expects
    /// no PROXY protocol. When the server is told to stop, [`Request::is_stopping`](crate::Request::is_stopping) is true here too. The listener closes
    /// after the site has ended. It speaks TLS only if its address begins with `tls+`. Bind it to an address that clients of the site cannot reach.
    ///
    /// ```
    /// use weftwork::prelude::*;
    ///
    /// fn ready(req: &mut Request) -> StatusCode {
    ///     if req.is_stopping() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }
    /// }
    /// let probes = Router::new().get("/health", || "OK").get("/ready", ready);
    /// let running = Server::bind("127.0.0.1:0")?.admin("127.0.0.1:0", probes)?.start(|_: &mut Request| "hello")?;
    /// println!("probes at {}", running.admin_addresses()[0]);
    /// # weftwork::Result::<()>::Ok(())
    /// ```
    ///
    /// # Errors
    /// See [`bind`](Server::bind). [`start`](Server::start) reports a handler that cannot answer.
    pub fn admin<M>(mut self, address: impl fmt::Display, handler: impl IntoHandler<M>) -> Result<Server> {
        let settings = |settings: Settings| {
            settings
                .threads_max(THREADS_MAX)
                .connections_max(CONNECTIONS_MAX)
                .queue_max(QUEUE_MAX)
                .standby_kept(1)
        };
        let server = Server::unbound().without_env().and_bind(address)?;
        let server = server.engine(Engine::Adaptive { loops: Some(1) }).settings(settings);
        self.admin = Some(Box::new(Admin { server, handler: Arc::new(handler.into_handler()) }));
        Ok(self)
    }
}

impl Admin {
    /// Starts the side listener. At an address with `tls+`, it has the certificates of the site.
    pub(super) fn start(mut self, site: &RunningTls) -> Result<Running> {
        self.server.share_tls(site);
        self.server.start(self.handler)
    }
}

impl Running {
    /// Returns the addresses of the [side listener](Server::admin), with their real ports. Without a side listener, the list is empty.
    pub fn admin_addresses(&self) -> &[Address] {
        self.admin.as_ref().map_or(&[], |admin| admin.addresses())
    }

    /// Tells handlers of the site and of its other listeners that the server stops.
    pub(super) fn announce_stop(&self) {
        #[cfg(feature = "_tls")]
        if let Some(redirect) = &self.redirect {
            redirect.announce_stop();
        }
        if let Some(admin) = &self.admin {
            admin.announce_stop();
        }
        self.cx.announce_stop();
    }

    /// Ends the side listener, after the site.
    pub(super) fn end_admin(&mut self) {
        if let Some(admin) = self.admin.take() {
            admin.shutdown(DRAIN);
        }
    }
}
