//! Variables that a server reads.

use super::Server;
use super::process::maintenance::ReloadHooks;
use super::status::Slot;
use super::tls::ServerTls;
use crate::engine::Engine;
use crate::error::Result;
use crate::settings::{EnvPrefix, Settings};

impl Server {
    /// Returns a server without addresses. [`and_bind`](Server::and_bind) adds some. A server that is started without an
    /// address serves only the connections that [`Running::adopt`] gives it.
    ///
    /// [`Running::adopt`]: super::Running::adopt
    #[must_use]
    pub fn unbound() -> Server {
        let (engine, settings) = (Engine::from_env(), Settings::from_env());
        let mut server = Server {
            listeners: Vec::new(),
            engine: (None, None),
            settings: Settings::default(),
            admin: None,
            #[cfg(feature = "_tls")]
            redirect: None,
            invalid_variable: None,
            started: Slot::default(),
            reload_hooks: ReloadHooks::default(),
            tls: ServerTls::default(),
            problems: None,
        };
        server.take_environment(engine, settings);
        server
    }

    fn take_environment(&mut self, engine: Result<Option<Engine>>, settings: Result<Settings>) {
        self.invalid_variable = None;
        match engine {
            Ok(engine) => self.engine.1 = engine,
            Err(error) => self.invalid_variable = Some(error),
        }
        match settings {
            Ok(settings) => self.settings = settings,
            Err(error) => self.invalid_variable = Some(error),
        }
    }

    /// Reads the settings and the engine of this server from variables with another prefix than `WEFT_`: with the prefix
    /// `ADMIN`, from `ADMIN_IDLE_TIMEOUT` and so on. All servers of a process read the `WEFT_...` variables, and a second
    /// server often needs other values. Values that are set in code remain, in either order.
    ///
    /// ```
    /// # use weftwork::prelude::*;
    /// // WEFT_PROXY_PROTOCOL=on is for the site. Prometheus connects without a proxy.
    /// let metrics = Server::bind("127.0.0.1:0")?.env_prefix("METRICS")?;
    /// # weftwork::Result::<()>::Ok(())
    /// ```
    ///
    /// # Errors
    /// The prefix is empty or begins with `WEFT_`. An invalid value of a variable is an error of
    /// [`start`](Server::start).
    pub fn env_prefix(mut self, prefix: &str) -> Result<Server> {
        let prefix = EnvPrefix::new(prefix)?;
        let engine = Engine::from_variable(&prefix.variable("ENGINE"));
        let settings = self.settings.clone().with_env(Some(&prefix));
        self.take_environment(engine, settings);
        Ok(self)
    }

    /// Ignores the variables: settings and engine are the defaults and what code sets.
    #[must_use]
    pub fn without_env(mut self) -> Server {
        let settings = self.settings.clone().with_env(None);
        self.take_environment(Ok(None), settings);
        self
    }
}
