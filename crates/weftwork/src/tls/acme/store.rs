//! The folder with account, certificates and challenges. Several processes can share it.
//!
//! Files are written beside their place, synced and renamed, so that a reader sees the old or the new content. A
//! certificate is one file with its key, so that the two always belong together. All files have mode 600, the
//! folders 700.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// A challenge that is older was left behind by a process that ended.
const CHALLENGE_AGE_MAX: Duration = Duration::from_secs(3600);
/// RFC 8555 section 8.1: a token has at least 128 bits. Let's Encrypt's have 43 characters.
const TOKEN_BYTES_MAX: usize = 256;

/// The part of the folder that belongs to one directory URL. Certificates of a staging authority are thereby never
/// taken for real ones.
#[derive(Clone, Debug)]
pub(super) struct Store {
    pub(super) folder: PathBuf,
}

/// Changes if a file was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileStamp {
    inode: u64,
    modified: (i64, i64),
    bytes: u64,
}

/// Failed attempts to get a certificate, kept in the folder: a server that is started again and again must not exceed
/// the rate limits of the authority.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Attempts {
    /// Failures since the last success.
    pub(super) failures: u32,
    /// Seconds since 1970 of the last failure.
    pub(super) failed_at: u64,
    /// Seconds since 1970 before which the authority wants no other attempt.
    pub(super) not_before: u64,
    /// Description of the last failure.
    pub(super) reason: String,
}

/// Held while this process works with the authority.
#[derive(Debug)]
pub(super) struct StoreLock(#[allow(dead_code, reason = "the lock ends when the file is closed")] File);

impl Store {
    /// Opens the folder, and makes it if it is missing.
    pub(super) fn open(folder: &Path, directory_url: &str) -> Result<Store> {
        let store = Store { folder: folder.join(folder_name(directory_url)) };
        store.prepare().map_err(|error| {
            let us = rustix::process::geteuid().as_raw();
            let message = format!(
                "the ACME store {} cannot be used: make the folder, and give it to the user of this process (uid {us})",
                folder.display()
            );
            Error::io(message, error)
        })?;
        Ok(store)
    }

    fn prepare(&self) -> io::Result<()> {
        for folder in [&self.folder, &self.folder.join("challenges")] {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            if fs::metadata(folder)?.mode() & 0o077 != 0 {
                fs::set_permissions(folder, Permissions::from_mode(0o700))?;
            }
        }
        // The folder has to be writable now, and not only in two months.
        tempfile::Builder::new().prefix(".writable").tempfile_in(&self.folder)?;
        Ok(())
    }

    /// Returns the lock, or None while another process has it.
    pub(super) fn try_lock(&self) -> io::Result<Option<StoreLock>> {
        let path = self.folder.join("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(StoreLock(file))),
            Err(error) if error == rustix::io::Errno::WOULDBLOCK => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Path of the file with a certificate, its chain and its key.
    pub(super) fn certificate_path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.pem"))
    }

    pub(super) fn certificate_stamp(&self, name: &str) -> Option<FileStamp> {
        let data = fs::metadata(self.certificate_path(name)).ok()?;
        let modified = (data.mtime(), data.mtime_nsec());
        Some(FileStamp { inode: data.ino(), modified, bytes: data.len() })
    }

    pub(super) fn read_certificate(&self, name: &str) -> io::Result<Option<String>> {
        read(&self.certificate_path(name))
    }

    pub(super) fn write_certificate(&self, name: &str, pem: &str) -> io::Result<()> {
        self.write(&self.certificate_path(name), pem)
    }

    pub(super) fn read_account(&self) -> io::Result<Option<String>> {
        read(&self.folder.join("account.json"))
    }

    pub(super) fn write_account(&self, json: &str) -> io::Result<()> {
        self.write(&self.folder.join("account.json"), json)
    }

    /// Puts an account aside that the authority does not know any more.
    pub(super) fn forget_account(&self) -> io::Result<()> {
        fs::rename(self.folder.join("account.json"), self.folder.join("account.unknown.json"))
    }

    /// Returns the failed attempts. A file that cannot be read counts as none.
    pub(super) fn attempts(&self, name: &str) -> Attempts {
        let text = read(&self.attempts_path(name)).ok().flatten();
        text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }

    pub(super) fn write_attempts(&self, name: &str, attempts: &Attempts) -> io::Result<()> {
        let json = serde_json::to_string_pretty(attempts).map_err(io::Error::other)?;
        self.write(&self.attempts_path(name), &json)
    }

    pub(super) fn clear_attempts(&self, name: &str) {
        let _ = fs::remove_file(self.attempts_path(name));
    }

    fn attempts_path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.failures.json"))
    }

    /// Publishes the certificate for a `tls-alpn-01` challenge. It is removed when the value is dropped.
    pub(super) fn publish_alpn(&self, name: &str, pem: &str) -> io::Result<PublishedChallenge> {
        self.publish(self.challenge_path(&format!("{name}.pem")), pem)
    }

    pub(super) fn read_alpn(&self, name: &str) -> io::Result<Option<String>> {
        read(&self.challenge_path(&format!("{name}.pem")))
    }

    /// Publishes the response to a `http-01` challenge. It is removed when the value is dropped.
    pub(super) fn publish_token(&self, token: &str, response: &str) -> io::Result<PublishedChallenge> {
        if !is_token(token) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the authority sent an invalid token"));
        }
        self.publish(self.challenge_path(token), response)
    }

    /// Returns the response to a `http-01` challenge, from this process or another one with this folder.
    pub(super) fn read_token(&self, token: &str) -> io::Result<Option<String>> {
        if is_token(token) { read(&self.challenge_path(token)) } else { Ok(None) }
    }

    fn publish(&self, path: PathBuf, text: &str) -> io::Result<PublishedChallenge> {
        self.write(&path, text)?;
        Ok(PublishedChallenge(path))
    }

    fn challenge_path(&self, file: &str) -> PathBuf {
        self.folder.join("challenges").join(file)
    }

    /// Removes the challenges of processes that ended in between.
    pub(super) fn remove_old_challenges(&self, now: SystemTime) {
        for entry in fs::read_dir(self.folder.join("challenges")).into_iter().flatten().flatten() {
            let modified = entry.metadata().and_then(|data| data.modified());
            let age = modified.ok().and_then(|modified| now.duration_since(modified).ok());
            if age.is_some_and(|age| age > CHALLENGE_AGE_MAX) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        let folder = path.parent().unwrap_or(&self.folder);
        // Files of `tempfile` have mode 600.
        let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(folder)?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        File::open(folder)?.sync_all()
    }
}

/// Removes the file of a challenge when it is dropped.
#[derive(Debug)]
pub(super) struct PublishedChallenge(PathBuf);

impl Drop for PublishedChallenge {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
    }
}

/// RFC 8555 section 8.3: a token has only characters of base64url. It can thus be the name of a file.
fn is_token(token: &str) -> bool {
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=TOKEN_BYTES_MAX).contains(&token.len()) && token.bytes().all(is_base64)
}

/// `https://acme-v02.api.letsencrypt.org/directory` is kept in `acme-v02.api.letsencrypt.org-directory`.
fn folder_name(directory_url: &str) -> String {
    let rest = directory_url.strip_prefix("https://").unwrap_or(directory_url);
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') { c } else { '-' };
    let name: String = rest.trim_end_matches('/').chars().map(plain).collect();
    name.trim_start_matches('.').to_owned()
}

#[cfg(test)]
mod tests;
