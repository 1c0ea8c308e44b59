//! Reads settings from the environment, and reports variables that look like a setting but are unknown.

use std::io::Write;
use std::sync::Once;

use super::{Settings, Source, nearest};
use crate::error::Error;

/// Prefix of the variables, unless a server has a prefix of its own.
const PREFIX: &str = "WEFT_";
/// Read by [`Engine::from_env`](crate::Engine::from_env).
const ENGINE: &str = "WEFT_ENGINE";
/// Prefixes of the variables that Kubernetes makes for a service with the name `weft`.
const NOT_OURS: [&str; 2] = ["WEFT_SERVICE_", "WEFT_PORT_"];

impl Settings {
    /// Returns the defaults, overridden by the `WEFT_...` variables. An empty variable counts as not set, as service
    /// files expect. An unknown `WEFT_...` variable is reported on stderr once, with the nearest known name.
    ///
    /// # Errors
    /// A value is invalid. The error names the variable and what was expected.
    pub fn from_env() -> Result<Settings, Error> {
        Settings::from_env_beside(&[])
    }

    /// Reads the environment as [`from_env`](Settings::from_env) does, for a program with `WEFT_...` variables of its own.
    /// The variables in `others` are not reported on stderr. Call this function before the first server is bound, because
    /// that also reports unknown variables.
    ///
    /// # Errors
    /// See [`from_env`](Settings::from_env).
    pub fn from_env_beside(others: &[&str]) -> Result<Settings, Error> {
        static WARNED: Once = Once::new();
        let (settings, unknown) = Settings::read(variables(), others)?;
        WARNED.call_once(|| {
            // stderr may be closed.
            unknown.iter().for_each(|line| _ = writeln!(std::io::stderr(), "weftwork: {line}"));
        });
        Ok(settings)
    }

    /// Returns the settings, and a line for each unknown variable.
    pub(super) fn read(
        variables: impl IntoIterator<Item = (String, String)>,
        others: &[&str],
    ) -> Result<(Settings, Vec<String>), Error> {
        Settings::read_prefixed(PREFIX, variables, others)
    }

    fn read_prefixed(
        prefix: &str,
        variables: impl IntoIterator<Item = (String, String)>,
        others: &[&str],
    ) -> Result<(Settings, Vec<String>), Error> {
        let (mut settings, mut unknown) = (Settings::default(), Vec::new());
        settings.prefix = prefix.into();
        for (variable, value) in variables {
            if !variable.starts_with(prefix) || value.is_empty() {
                continue;
            }
            let Some(index) = Settings::NAMES.iter().position(|name| settings.variable_of(name) == variable)
            else {
                unknown.extend(explained(&variable, others));
                continue;
            };
            let assigned = settings.assign(index, &value);
            assigned.map_err(|error| Error::usage(format!("{variable}: {}", error.message())))?;
            settings.sources[index] = Source::Environment;
        }
        settings.sourced = settings.texts().into();
        Ok((settings, unknown))
    }

    /// Returns the same settings with the values of other variables, or of no variables. A value that was set in code
    /// stays.
    pub(crate) fn with_env(self, prefix: Option<&EnvPrefix>) -> Result<Settings, Error> {
        self.with_variables(prefix, variables())
    }

    pub(super) fn with_variables(
        self,
        prefix: Option<&EnvPrefix>,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Settings, Error> {
        let mut settings = match prefix {
            // An unknown variable with this prefix may be the program's own.
            Some(EnvPrefix(prefix)) => Settings::read_prefixed(prefix, variables, &[])?.0,
            None => Settings::default(),
        };
        for (index, setting) in self.list().into_iter().enumerate() {
            if setting.source == Source::Code {
                settings.copy(index, &self);
                settings.sources[index] = Source::Code;
            }
        }
        settings.sourced = settings.texts().into();
        Ok(settings)
    }

    pub(super) fn variable_of(&self, name: &str) -> String {
        let prefix = if self.prefix.is_empty() { PREFIX } else { &*self.prefix };
        format!("{prefix}{}", name.to_uppercase())
    }
}

/// Prefix of the variables of one server, with the underscore.
#[derive(Clone, Debug)]
pub(crate) struct EnvPrefix(Box<str>);

impl EnvPrefix {
    pub(crate) fn new(text: &str) -> Result<EnvPrefix, Error> {
        let name = text.strip_suffix('_').unwrap_or(text);
        let is_name = !name.is_empty() && !name.contains(['=', '\0']);
        if !is_name || (name.starts_with(PREFIX) && name.len() > PREFIX.len()) {
            let wanted =
                "a name such as ADMIN that does not begin with WEFT_, whose variables every server reads";
            return Err(Error::usage(format!("invalid prefix {text:?} of variables: expected {wanted}")));
        }
        Ok(EnvPrefix(format!("{name}_").into()))
    }

    /// Returns the name of a variable of this server.
    pub(crate) fn variable(&self, name: &str) -> String {
        format!("{}{name}", self.0)
    }
}

impl Default for EnvPrefix {
    fn default() -> EnvPrefix {
        EnvPrefix(PREFIX.into())
    }
}

fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
}

/// Returns the line to report about an unknown variable, or nothing if the variable belongs to another program.
fn explained(variable: &str, others: &[&str]) -> Option<String> {
    let others = others.iter().copied().chain([ENGINE]);
    if others.clone().any(|other| other == variable)
        || NOT_OURS.iter().any(|prefix| variable.starts_with(prefix))
    {
        return None;
    }
    let names: Vec<String> =
        Settings::NAMES.iter().map(|name| Settings::default().variable_of(name)).collect();
    let known = names.iter().map(String::as_str).chain(others);
    Some(match nearest(variable, known) {
        Some(meant) => format!("unknown variable {variable} ignored, did you mean {meant}?"),
        None => format!("unknown variable {variable} ignored"),
    })
}
