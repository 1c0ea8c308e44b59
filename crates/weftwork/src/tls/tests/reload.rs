//! Tests that a running server takes new certificates.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Instant;

use super::*;

fn write(folder: &Path, issued: &Issued) {
    fs::write(folder.join("tls.crt"), issued.chain()).unwrap();
    fs::write(folder.join("tls.key"), issued.key()).unwrap();
}

fn files(folder: &Path) -> Tls {
    Tls::from_files(folder.join("tls.crt"), folder.join("tls.key")).unwrap()
}

#[test]
fn a_reload_is_for_new_connections_and_old_ones_go_on() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new("root"));
    let [old, new] = [(); 2].map(|()| authority.issue("a.test"));
    write(folder.path(), &old);
    let live = live(&files(folder.path()));
    let client = client_of(&authority);
    let mut established = Session::new(&live, &client, "a.test").unwrap();
    write(folder.path(), &new);
    live.reload().unwrap();
    established.talk();
    assert_eq!(established.certificate(), old.der());
    let fresh = client_of(&authority);
    assert_eq!(Session::new(&live, &fresh, "a.test").unwrap().certificate(), new.der());
}

#[test]
fn a_pair_that_fails_stays_and_the_others_are_replaced() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new("root"));
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    [&one, &two].into_iter().for_each(|path| fs::create_dir(path).unwrap());
    let [a, new_a, b, new_b] = ["a.test", "a.test", "b.test", "b.test"].map(|name| authority.issue(name));
    write(&one, &a);
    write(&two, &b);
    let tls = files(&one).and_files(two.join("tls.crt"), two.join("tls.key")).unwrap();
    let live = live(&tls);
    let served = |name| Session::new(&live, &client_of(&authority), name).unwrap().certificate();
    // Between the two writes of a renewal, key and chain do not belong together.
    fs::write(one.join("tls.crt"), new_a.chain()).unwrap();
    write(&two, &new_b);
    let error = live.reload().unwrap_err().to_string();
    assert!(error.contains("tls.key") && error.contains("does not belong"), "{error}");
    assert_eq!((served("a.test"), served("b.test")), (a.der(), new_b.der()));
    fs::write(one.join("tls.key"), new_a.key()).unwrap();
    live.reload().unwrap();
    assert_eq!(served("a.test"), new_a.der());
    let expired = authority.issue_until("a.test", SystemTime::now() - DAY);
    write(&one, &expired);
    assert!(live.reload().unwrap_err().to_string().contains("expired on"));
    fs::remove_file(one.join("tls.crt")).unwrap();
    assert!(live.reload().unwrap_err().to_string().contains("cannot read"));
    assert_eq!(served("a.test"), new_a.der());
}

#[test]
fn files_are_read_again_only_if_they_have_changed() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new("root"));
    let [old, new] = [(); 2].map(|()| authority.issue("a.test"));
    write(folder.path(), &old);
    let live = live(&files(folder.path()));
    let before = Arc::as_ptr(&live.acceptor().current());
    live.check(SystemTime::now());
    assert_eq!(Arc::as_ptr(&live.acceptor().current()), before);
    fs::write(folder.path().join("tls.crt"), new.chain()).unwrap();
    live.check(SystemTime::now());
    let served = || Session::new(&live, &client_of(&authority), "a.test").unwrap().certificate();
    assert_eq!(served(), old.der());
    // A failure is tried again, even if nothing has changed since.
    fs::write(folder.path().join("tls.key"), new.key()).unwrap();
    live.check(SystemTime::now());
    assert_eq!(served(), new.der());
}

/// Kubernetes mounts a secret as links to files below `..data`, which is a link to a folder. A change makes a new folder
/// and renames a new link over `..data`.
fn mount(folder: &Path, version: &str, chain: &Issued, key: &Issued) {
    let new = folder.join(version);
    fs::create_dir(&new).unwrap();
    write(&new, chain);
    fs::write(new.join("tls.key"), key.key()).unwrap();
    symlink(version, folder.join("..data_tmp")).unwrap();
    fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
}

#[test]
fn a_folder_that_kubernetes_switches_is_noticed_by_the_thread() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new("root"));
    let [old, new, wrong] = [(); 3].map(|()| authority.issue("a.test"));
    mount(folder.path(), "..2026_01", &old, &old);
    for file in ["tls.crt", "tls.key"] {
        symlink(format!("..data/{file}"), folder.path().join(file)).unwrap();
    }
    let live = live(&files(folder.path()));
    let served = || Session::new(&live, &client_of(&authority), "a.test").unwrap().certificate();
    let _watch = Watch::start(vec![live.clone()], Duration::from_millis(1)).unwrap();
    mount(folder.path(), "..2026_02", &new, &new);
    fs::remove_dir_all(folder.path().join("..2026_01")).unwrap();
    let begun = Instant::now();
    while served() != new.der() {
        assert!(begun.elapsed() < Duration::from_secs(30), "the change is not noticed");
        std::thread::yield_now();
    }
    // A secret that is half of another one changes nothing.
    mount(folder.path(), "..2026_03", &wrong, &old);
    live.reload().unwrap_err();
    assert_eq!(served(), new.der());
}
