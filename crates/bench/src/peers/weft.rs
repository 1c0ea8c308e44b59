//! Where is the weft to measure, and how is its demo started?

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::failure::{Failure, Result};

/// Builds the command as its users do, and says where cargo put it.
pub(super) fn build() -> Result<PathBuf> {
    eprintln!("building weftwork-cli, release");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args([
            "build",
            "--release",
            "--package",
            "weftwork-cli",
            "--message-format",
            "json-render-diagnostics",
        ])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Failure::step("cargo build", error))?;
    if !output.status.success() {
        return Err(Failure::Run(
            "weftwork-cli does not build; --weft PATH measures a binary you have".to_owned(),
        ));
    }
    let executable = String::from_utf8_lossy(&output.stdout).lines().find_map(executable);
    executable.ok_or_else(|| Failure::Run("cargo build named no binary called weft".to_owned()))
}

/// The path in cargo's message about the binary.
fn executable(line: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(line).ok()?;
    let path = Path::new(message["executable"].as_str()?);
    (path.file_stem()? == "weft").then(|| path.to_owned())
}

pub(super) fn command(weft: &Path, port: u16, engine: Option<&String>) -> Command {
    let mut command = Command::new(weft);
    command.args(["demo", "--host", "127.0.0.1", "--port", &port.to_string()]);
    if let Some(engine) = engine {
        command.args(["--engine", engine]);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_is_found_among_the_messages() {
        let line = r#"{"reason":"compiler-artifact","executable":"/target/release/weft"}"#;
        assert_eq!(executable(line), Some(PathBuf::from("/target/release/weft")));
        assert_eq!(
            executable(r#"{"reason":"compiler-artifact","executable":"/target/release/other"}"#),
            None
        );
        assert_eq!(executable(r#"{"reason":"compiler-artifact","executable":null}"#), None);
        assert_eq!(executable("warning: no JSON"), None);
    }
}
