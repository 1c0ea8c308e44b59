//! The store in folders of its own.

use super::*;

const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("a/b"), LETS_ENCRYPT).unwrap();
    (folder, store)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

#[test]
fn folders_have_mode_700_and_files_600() {
    let (_folder, store) = store();
    store.write_certificate("example.org", "pem").unwrap();
    store.write_account("{}").unwrap();
    store.write_attempts("example.org", &Attempts::default()).unwrap();
    let _lock = store.try_lock().unwrap().unwrap();
    let _challenge = store.publish_token("abc", "abc.def").unwrap();
    let mut files = 0;
    for folder in [&store.folder, &store.folder.join("challenges")] {
        assert_eq!(mode(folder), 0o700);
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
            if entry.file_type().unwrap().is_file() {
                files += 1;
                assert_eq!(mode(&entry.path()), 0o600, "{:?}", entry.path());
            }
        }
    }
    assert_eq!(files, 5);
}

#[test]
fn a_folder_that_others_can_read_is_closed() {
    let (folder, store) = store();
    fs::set_permissions(&store.folder, Permissions::from_mode(0o755)).unwrap();
    Store::open(&folder.path().join("a/b"), LETS_ENCRYPT).unwrap();
    assert_eq!(mode(&store.folder), 0o700);
}

#[test]
fn staging_has_a_folder_of_its_own() {
    let names: Vec<String> = [
        LETS_ENCRYPT,
        "https://acme-staging-v02.api.letsencrypt.org/directory",
        "https://localhost:14000/dir/",
        "https://../../etc",
    ]
    .into_iter()
    .map(folder_name)
    .collect();
    assert_eq!(
        names,
        [
            "acme-v02.api.letsencrypt.org-directory",
            "acme-staging-v02.api.letsencrypt.org-directory",
            "localhost-14000-dir",
            "-..-etc"
        ]
    );
}

#[test]
fn only_one_lock_is_given_out() {
    let (_folder, store) = store();
    let lock = store.try_lock().unwrap();
    assert!(lock.is_some());
    assert!(store.try_lock().unwrap().is_none());
    drop(lock);
    assert!(store.try_lock().unwrap().is_some());
}

#[test]
fn a_token_never_leaves_the_folder() {
    let (_folder, store) = store();
    store.write_certificate("example.org", "secret").unwrap();
    for token in ["../example.org.pem", "..", "", "a/b", "a.pem", "a\0b", &"a".repeat(257)] {
        assert_eq!(store.read_token(token).unwrap(), None, "{token:?}");
        assert!(store.publish_token(token, "x").is_err(), "{token:?}");
    }
}

#[test]
fn a_challenge_is_removed_when_it_is_over() {
    let (_folder, store) = store();
    let published = store.publish_token("abc", "abc.def").unwrap();
    assert_eq!(store.read_token("abc").unwrap().as_deref(), Some("abc.def"));
    drop(published);
    assert_eq!(store.read_token("abc").unwrap(), None);
    // A process that ended within a challenge leaves its file behind.
    std::mem::forget(store.publish_token("old", "x").unwrap());
    store.remove_old_challenges(SystemTime::now());
    assert!(store.read_token("old").unwrap().is_some());
    store.remove_old_challenges(SystemTime::now() + 2 * CHALLENGE_AGE_MAX);
    assert_eq!(store.read_token("old").unwrap(), None);
}

#[test]
fn the_stamp_changes_with_the_file() {
    let (_folder, store) = store();
    assert_eq!(store.certificate_stamp("example.org"), None);
    store.write_certificate("example.org", "one").unwrap();
    let first = store.certificate_stamp("example.org");
    assert_eq!(first, store.certificate_stamp("example.org"));
    store.write_certificate("example.org", "two").unwrap();
    assert_ne!(first, store.certificate_stamp("example.org"));
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = Store::open(file.path(), LETS_ENCRYPT).unwrap_err().to_string();
    assert!(error.contains(&file.path().display().to_string()) && error.contains("uid"), "{error}");
}
