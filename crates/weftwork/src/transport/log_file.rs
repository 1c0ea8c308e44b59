//! Files of log lines, which are opened again after a log rotation.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf, absolute};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::error::{Error, Result};

/// All log files of the process that are in use.
static FILES: Mutex<Vec<Weak<Inner>>> = Mutex::new(Vec::new());

/// A file for log lines that log rotation may rename. SIGHUP and SIGUSR1 open its path again: see
/// [`Server::run`](crate::Server::run). Clones write to the same file.
///
/// The file is created if it is missing, and lines are appended. If the path cannot be opened again, lines go on into
/// the old file, and the log says so.
///
/// ```
/// use weftwork::LogFile;
/// use weftwork::middleware::{AccessLog, LogFormat};
///
/// # let path = std::env::temp_dir().join(format!("weftwork-doc-{}.log", std::process::id()));
/// let log = AccessLog::to(LogFormat::Combined, LogFile::open(&path)?)?;
/// # drop(log);
/// # std::fs::remove_file(path).unwrap();
/// # weftwork::Result::<()>::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct LogFile(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    file: Mutex<File>,
}

impl LogFile {
    /// Opens the file, or creates it.
    ///
    /// # Errors
    /// The file cannot be opened for writing.
    pub fn open(path: impl AsRef<Path>) -> Result<LogFile> {
        let path = path.as_ref();
        let failed = |error| Error::io(format!("cannot open the log file {}", path.display()), error);
        // The program may change its working directory.
        let path = absolute(path).map_err(failed)?;
        let file = Mutex::new(open(&path).map_err(failed)?);
        let inner = Arc::new(Inner { path, file });
        let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|file| file.strong_count() > 0);
        files.push(Arc::downgrade(&inner));
        Ok(LogFile(inner))
    }

    /// Opens the paths of all log files of this process again. Signals do so by themselves.
    ///
    /// # Errors
    /// A path cannot be opened. The other files are open again.
    pub fn reopen_all() -> Result<()> {
        let files: Vec<_> = {
            let files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
            files.iter().filter_map(Weak::upgrade).collect()
        };
        let mut result = Ok(());
        for inner in files {
            match open(&inner.path) {
                Ok(file) => *inner.lock() = file,
                Err(error) => {
                    let what = format!("cannot open the log file {} again", inner.path.display());
                    result = Err(Error::io(what, error));
                }
            }
        }
        result
    }
}

impl Inner {
    fn lock(&self) -> std::sync::MutexGuard<'_, File> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        // Lines of other clones, and the rotation, do not come between.
        self.0.lock().write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.lock().flush()
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_renamed_is_opened_again() {
        let path = std::env::temp_dir().join(format!("weftwork-log-file-{}", std::process::id()));
        let renamed = path.with_extension("1");
        let mut log = LogFile::open(&path).unwrap();
        log.write_all(b"one\n").unwrap();
        std::fs::rename(&path, &renamed).unwrap();
        log.write_all(b"two\n").unwrap();
        LogFile::reopen_all().unwrap();
        log.write_all(b"three\n").unwrap();
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        assert_eq!((read(&renamed), read(&path)), ("one\ntwo\n".into(), "three\n".into()));

        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        let error = LogFile::reopen_all().unwrap_err().to_string();
        assert!(error.contains(&path.display().to_string()), "{error}");
        log.write_all(b"lost, and no error\n").unwrap();
        std::fs::remove_dir(&path).unwrap();
        std::fs::remove_file(&renamed).unwrap();
    }
}
