//! Where is the weft to measure, and how is its demo started?

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::failure::{Failure, Result};

/// Builds the command as its users do, and says where cargo put it.
pub(crate) fn build() -> Result<PathBuf> {
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
    built(&output.stdout, "weft")
        .ok_or_else(|| Failure::Run("cargo build named no binary called weft".to_owned()))
}

/// The path in cargo's messages about the binary of a name.
pub(super) fn built(messages: &[u8], name: &str) -> Option<PathBuf> {
    String::from_utf8_lossy(messages).lines().find_map(|line| executable(line, name))
}

fn executable(line: &str, name: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(line).ok()?;
    let path = Path::new(message["executable"].as_str()?);
    (path.file_stem()? == name).then(|| path.to_owned())
}

/// The demo; or the files of a directory, where files are asked for.
pub(crate) fn command(weft: &Path, port: u16, engine: Option<&String>, files: Option<&Path>) -> Command {
    let mut command = Command::new(weft);
    match files {
        Some(files) => command.arg("serve").arg(files),
        None => command.arg("demo"),
    };
    command.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
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
        assert_eq!(executable(line, "weft"), Some(PathBuf::from("/target/release/weft")));
        assert_eq!(
            executable(r#"{"reason":"compiler-artifact","executable":"/target/release/other"}"#, "weft"),
            None
        );
        assert_eq!(executable(r#"{"reason":"compiler-artifact","executable":null}"#, "weft"), None);
        assert_eq!(executable("warning: no JSON", "weft"), None);
    }
}
