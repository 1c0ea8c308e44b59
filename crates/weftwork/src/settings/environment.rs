//! Which variables of the environment are settings, and which only look like one?

use std::io::Write;
use std::sync::Once;

use super::{Settings, Source, nearest};
use crate::error::Error;

/// Read by [`Engine::from_env`](crate::Engine::from_env).
const ENGINE: &str = "WEFT_ENGINE";
/// Kubernetes makes variables of these for a service that is called `weft`.
const NOT_OURS: [&str; 2] = ["WEFT_SERVICE_", "WEFT_PORT_"];

impl Settings {
    /// The defaults, overridden by the `WEFT_...` variables that are set. One that is empty counts as not set, as service
    /// files have it. A `WEFT_...` variable that is no setting is named on stderr, once, with the one that was
    /// probably meant.
    ///
    /// # Errors
    /// A variable whose value does not parse, with its name and what was expected.
    pub fn from_env() -> Result<Settings, Error> {
        Settings::from_env_beside(&[])
    }

    /// As [`from_env`](Settings::from_env), in a program that reads `WEFT_...` variables of its own: these `others` are
    /// known, and not named on stderr. Call it before the first server is bound, which names them.
    ///
    /// # Errors
    /// As [`from_env`](Settings::from_env).
    pub fn from_env_beside(others: &[&str]) -> Result<Settings, Error> {
        static TOLD: Once = Once::new();
        let variables = std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()));
        let (settings, unknown) = Settings::read(variables, others)?;
        TOLD.call_once(|| {
            // Nobody may be there to read it.
            unknown.iter().for_each(|line| _ = writeln!(std::io::stderr(), "weftwork: {line}"));
        });
        Ok(settings)
    }

    /// The settings, and a line for each variable that is none.
    pub(super) fn read(
        variables: impl IntoIterator<Item = (String, String)>,
        others: &[&str],
    ) -> Result<(Settings, Vec<String>), Error> {
        let (mut settings, mut unknown) = (Settings::default(), Vec::new());
        for (variable, value) in variables {
            if !variable.starts_with("WEFT_") || value.is_empty() {
                continue;
            }
            let Some(index) = Settings::NAMES.iter().position(|name| variable_of(name) == variable) else {
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
}

pub(super) fn variable_of(name: &str) -> String {
    format!("WEFT_{}", name.to_uppercase())
}

/// What to say of a variable that nobody reads.
fn explained(variable: &str, others: &[&str]) -> Option<String> {
    let others = others.iter().copied().chain([ENGINE]);
    if others.clone().any(|other| other == variable)
        || NOT_OURS.iter().any(|prefix| variable.starts_with(prefix))
    {
        return None;
    }
    let names: Vec<String> = Settings::NAMES.iter().map(|name| variable_of(name)).collect();
    let known = names.iter().map(String::as_str).chain(others);
    Some(match nearest(variable, known) {
        Some(meant) => format!("unknown variable {variable} ignored, did you mean {meant}?"),
        None => format!("unknown variable {variable} ignored"),
    })
}
