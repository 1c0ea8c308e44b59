//! Files of log lines, which are opened again after a log rotation.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf, absolute};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

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
    /// Held for a moment, so that the path can be opened again while a write waits, as for a pipe that nobody reads.
    file: Mutex<Arc<File>>,
    /// Held during a write. Lines of other clones do not come between.
    writes: Mutex<()>,
}

impl LogFile {
    /// Opens the file, or creates it.
    ///
    /// # Errors
    /// The file cannot be opened for writing. A pipe that no process reads is such a file.
    pub fn open(path: impl AsRef<Path>) -> Result<LogFile> {
        let path = path.as_ref();
        let failed = |error| Error::io(format!("cannot open the log file {}", path.display()), error);
        // The program may change its working directory.
        let path = absolute(path).map_err(failed)?;
        let file = Mutex::new(open(&path).map_err(failed)?.into());
        let inner = Arc::new(Inner { path, file, writes: Mutex::default() });
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
                Ok(file) => *inner.lock() = file.into(),
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
    fn lock(&self) -> MutexGuard<'_, Arc<File>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_file<T>(&self, write: impl FnOnce(&File) -> T) -> T {
        let _alone = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        let file = self.lock().clone();
        write(&file)
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.with_file(|mut file| file.write(bytes))
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.with_file(|mut file| file.write_all(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.with_file(|mut file| file.flush())
    }
}

/// Opens a path without a wait for a process that reads it (fifo(7)).
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().create(true).append(true).custom_flags(flags).open(path);
    let file = file.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NXIO) => io::Error::new(error.kind(), "it is a pipe or a socket that no process reads"),
        _ => error,
    })?;
    // A write may wait, because a thread of its own writes.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Held by tests that open all log files of their process again.
#[cfg(test)]
pub(crate) static REOPENS: Mutex<()> = Mutex::new(());

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// A reload must not wait until a process reads the log.
    #[test]
    fn a_pipe_that_nobody_reads_holds_up_no_reopening() {
        let _alone = REOPENS.lock().unwrap_or_else(PoisonError::into_inner);
        let path = std::env::temp_dir().join(format!("weftwork-log-pipe-{}", std::process::id()));
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let error = LogFile::open(&path).unwrap_err().to_string();
        assert!(error.contains("that no process reads"), "{error}");
        // Opened for both, so that this end waits for no other one.
        let mut reader = File::options().read(true).write(true).open(&path).unwrap();
        let mut log = LogFile::open(&path).unwrap();
        let mut stuck = log.clone();
        let writer = std::thread::spawn(move || stuck.write_all(&vec![b'x'; 1 << 20]));
        reader.read_exact(&mut [0]).unwrap();
        std::fs::remove_file(&path).unwrap();
        LogFile::reopen_all().unwrap();
        assert!(path.metadata().unwrap().is_file());
        drop(reader);
        assert_eq!(writer.join().unwrap().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        log.write_all(b"a line\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"a line\n");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_that_was_renamed_is_opened_again() {
        let _alone = REOPENS.lock().unwrap_or_else(PoisonError::into_inner);
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
