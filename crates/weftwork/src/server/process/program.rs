//! Finds the program, the arguments and the directory with which this process was started, to start it again.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// How this process was started.
#[derive(Debug)]
struct Program {
    /// A path, such as a symbolic link that a deployment switches to the next version.
    path: PathBuf,
    arguments: Vec<OsString>,
    /// The working directory at the start. The program may change it.
    directory: Option<PathBuf>,
}

static PROGRAM: OnceLock<Program> = OnceLock::new();

/// Notes the program while its path and its directory are those of the start.
pub(crate) fn remember() {
    PROGRAM.get_or_init(Program::find);
}

/// Returns the command that starts the program again, and its path.
pub(crate) fn again() -> (Command, PathBuf) {
    let program = PROGRAM.get_or_init(Program::find);
    let mut command = Command::new(&program.path);
    let mut arguments = program.arguments.iter();
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command.args(arguments);
    if let Some(directory) = &program.directory {
        command.current_dir(directory);
    }
    (command, program.path.clone())
}

impl Program {
    fn find() -> Program {
        let arguments: Vec<OsString> = std::env::args_os().collect();
        let directory = directory();
        let named = arguments.first().and_then(|name| named(Path::new(name), directory.as_deref()));
        let path = named.or_else(running).unwrap_or_default();
        Program { path, arguments, directory }
    }
}

/// Returns the path by which the program was started, with its symbolic links. A shell looks in `PATH` for a plain name.
fn named(name: &Path, directory: Option<&Path>) -> Option<PathBuf> {
    let is_this = |path: &PathBuf| match (path.metadata(), std::fs::metadata("/proc/self/exe")) {
        (Ok(found), Ok(own)) => (found.dev(), found.ino()) == (own.dev(), own.ino()),
        // Other systems do not have the file.
        (found, Err(_)) => found.is_ok_and(|found| found.is_file()),
        (Err(_), Ok(_)) => false,
    };
    let full = |path: PathBuf| directory.map_or(path.clone(), |directory| directory.join(path));
    if name.components().count() > 1 || name.is_absolute() {
        return Some(full(name.to_owned())).filter(is_this);
    }
    let folders = std::env::var_os("PATH")?;
    let mut paths = std::env::split_paths(&folders).map(|folder| full(folder.join(name)));
    paths.find(is_this)
}

/// Returns the path of the running program, without the mark of Linux for a file that was replaced.
fn running() -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?;
    Some(without_mark(path))
}

fn without_mark(path: PathBuf) -> PathBuf {
    match path.to_str().and_then(|text| text.strip_suffix(" (deleted)")) {
        Some(text) if !path.exists() => text.into(),
        _ => path,
    }
}

/// Returns the working directory, with the symbolic links of the shell (`PWD`) if they lead there.
fn directory() -> Option<PathBuf> {
    let real = std::env::current_dir().ok();
    let same = |a: &Path, b: &Path| -> io::Result<bool> {
        let (a, b) = (a.metadata()?, b.metadata()?);
        Ok((a.dev(), a.ino()) == (b.dev(), b.ino()))
    };
    let shell = std::env::var_os("PWD").map(PathBuf::from).filter(|path| path.is_absolute());
    match (shell, real) {
        (Some(shell), Some(real)) if same(&shell, &real).unwrap_or(false) => Some(shell),
        (_, real) => real,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_program_is_found_at_its_path() {
        assert_eq!(without_mark("/srv/app (deleted)".into()), Path::new("/srv/app"));
        assert_eq!(without_mark("/srv/app".into()), Path::new("/srv/app"));
        let odd = std::env::temp_dir().join(format!("weftwork-{} (deleted)", std::process::id()));
        std::fs::write(&odd, "").unwrap();
        assert_eq!(without_mark(odd.clone()), odd);
        std::fs::remove_file(odd).unwrap();
    }

    /// A deployment switches the link to the next version.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_symbolic_link_to_the_program_stays_a_link() {
        let own = std::env::current_exe().unwrap();
        let link = std::env::temp_dir().join(format!("weftwork-program-{}", std::process::id()));
        std::os::unix::fs::symlink(&own, &link).unwrap();
        let directory = link.parent();
        assert_eq!(named(&link, None), Some(link.clone()));
        let relative = Path::new(".").join(link.file_name().unwrap());
        assert_eq!(named(&relative, directory).unwrap().canonicalize().unwrap(), own.canonicalize().unwrap());
        assert_eq!(named(Path::new("/bin/sh"), None), None, "another program with this name");
        assert_eq!(named(Path::new("no-such-program"), directory), None);
        std::fs::remove_file(link).unwrap();
    }
}
