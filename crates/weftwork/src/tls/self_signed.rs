//! Makes certificates for development, signed by their own key, and keeps them for later starts.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
};

use super::pem::Text;
use crate::error::{Error, Result};
use crate::transport::log_queue::log_line;
use crate::transport::tls::provider;
use crate::transport::tls::x509::{CertificateFacts, hex};

/// Life of a certificate. Some systems trust none that lives for more than 398 days.
const LIFE: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// A certificate with less time left is replaced at a start.
const TIME_LEFT_MIN: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Returns certificate and key in PEM: from the folder, or new.
pub(super) fn certificate(names: &[String], folder: Option<&Path>, now: SystemTime) -> Result<Vec<u8>> {
    let names = all_names(names)?;
    let Some(folder) = folder else { return generate(&names, now) };
    let path = folder.join(format!("self-signed-{}.pem", file_name(&names)));
    if let Some(kept) = fs::read(&path).ok().filter(|kept| is_usable(kept, now)) {
        return Ok(kept);
    }
    let new = generate(&names, now)?;
    match keep(&path, &new) {
        Ok(()) => Ok(new),
        Err(error) => {
            let why = "so browsers ask again after a restart (XDG_CACHE_HOME sets the folder)";
            log_line!(Warn, "cannot keep the self-signed certificate in {}, {why}: {error}", path.display());
            Ok(new)
        }
    }
}

/// Returns the folder for certificates of this user.
pub(super) fn cache_folder() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    Some(cache.filter(|cache| cache.is_absolute())?.join("weftwork"))
}

/// Returns the names in one form. `localhost` is its addresses too.
fn all_names(names: &[String]) -> Result<Vec<String>> {
    let mut all: Vec<String> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
    if all.iter().any(|name| name == "localhost") {
        all.extend(["127.0.0.1".into(), "::1".into()]);
    }
    all.sort();
    all.dedup();
    let is_odd = |name: &&String| {
        name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._*:".contains(&byte))
    };
    match all.iter().find(is_odd) {
        Some(odd) => Err(Error::usage(format!(
            "invalid name {odd:?} for a self-signed certificate: expected a name such as localhost or an IP address"
        ))),
        None if all.is_empty() => {
            Err(Error::usage("a self-signed certificate needs a name, such as localhost"))
        }
        None => Ok(all),
    }
}

fn file_name(names: &[String]) -> String {
    hex(&provider::sha256().hash(names.join("\n").as_bytes()).as_ref()[..8])
}

fn is_usable(kept: &[u8], now: SystemTime) -> bool {
    let text = Text::new("kept certificate", kept);
    let Ok(chain) = text.certificates() else { return false };
    let expires = CertificateFacts::of(&chain[0]).expires;
    text.key().is_ok() && expires.is_some_and(|expires| expires > now + TIME_LEFT_MIN)
}

fn generate(names: &[String], now: SystemTime) -> Result<Vec<u8>> {
    let failed =
        |error: rcgen::Error| Error::internal(format!("cannot make a self-signed certificate: {error}"));
    let key = KeyPair::generate().map_err(failed)?;
    let mut params = CertificateParams::new(names.to_vec()).map_err(failed)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("{} (self-signed by Weftwork)", names[0]));
    // A clock that is a day late still takes it.
    params.not_before = (now - Duration::from_secs(24 * 60 * 60)).into();
    params.not_after = (now + LIFE).into();
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = params.self_signed(&key).map_err(failed)?;
    Ok(format!("{}{}", certificate.pem(), key.serialize_pem()).into_bytes())
}

/// Writes the file as a whole, for this user alone.
fn keep(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let partial = path.with_extension(format!("{}.part", std::process::id()));
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
        file.write_all(content)?;
        fs::rename(&partial, path)
    };
    write().inspect_err(|_| _ = fs::remove_file(&partial))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_certificate_is_kept_until_it_nears_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let (folder, now) = (folder.path().join("below"), SystemTime::now());
        let make = |names: &[String], now| certificate(names, Some(&folder), now).unwrap();
        let first = make(&names(&["localhost", "Dev.test"]), now);
        assert_eq!(make(&names(&["dev.test", "localhost"]), now), first, "the order does not matter");
        assert_ne!(make(&names(&["localhost"]), now), first);
        let facts = CertificateFacts::of(&Text::new("", &first).certificates().unwrap()[0]);
        assert_eq!(facts.names(), ["dev.test", "localhost", "127.0.0.1", "::1"]);
        let path = folder.join(format!(
            "self-signed-{}.pem",
            file_name(&all_names(&names(&["localhost", "dev.test"])).unwrap())
        ));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let near_its_end = now + LIFE - TIME_LEFT_MIN;
        assert_ne!(make(&names(&["localhost", "dev.test"]), near_its_end), first);
        fs::write(&path, "damaged").unwrap();
        assert_ne!(make(&names(&["localhost", "dev.test"]), now), first);
    }

    #[test]
    fn a_folder_that_cannot_be_written_costs_only_the_keeping() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(certificate(&names(&["localhost"]), Some(file.path()), SystemTime::now()).is_ok());
    }

    #[test]
    fn odd_names_are_rejected() {
        for odd in [&["https://localhost"][..], &[""], &["a b"], &[]] {
            let error = certificate(&names(odd), None, SystemTime::now()).unwrap_err().to_string();
            assert!(error.contains("self-signed certificate"), "{error}");
        }
    }
}
