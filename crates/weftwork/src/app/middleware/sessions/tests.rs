//! Tests that a session belongs to one browser, ends when it should, and never comes back.

use std::sync::Mutex;
use std::time::SystemTime;

use super::*;
use crate::app::middleware::HandlerExt;
use crate::error::Error;
use crate::{Router, TestClient, TestResponse};

const HOUR: Duration = Duration::from_secs(3600);

/// A browser with at most one cookie.
struct Browser {
    client: TestClient,
    cookie: Option<String>,
}

impl Browser {
    fn new(store: &Arc<MemoryStore>) -> Browser {
        let sessions = Sessions::new(store.clone(), Key::derive_from(&[7; 32])).idle_timeout(10 * HOUR);
        Browser { client: TestClient::new(site().with(sessions)), cookie: None }
    }

    fn get(&mut self, path: &str) -> TestResponse {
        let mut request = self.client.get(path);
        if let Some(cookie) = &self.cookie {
            request = request.header("cookie", cookie);
        }
        let answer = request.send();
        if let Some(line) = answer.header("set-cookie") {
            let pair = line.split(';').next().unwrap().to_owned();
            self.cookie = (!line.contains("Max-Age=0")).then_some(pair);
        }
        answer
    }
}

fn site() -> Router {
    let count = |session: Session| -> Result<String> {
        let count: u32 = session.get("count")?.unwrap_or(0) + 1;
        session.insert("count", count)?;
        Ok(count.to_string())
    };
    let read = |session: Session| -> Result<String> { Ok(format!("{:?}", session.get::<u32>("count")?)) };
    let login = |session: Session| -> Result<()> {
        session.regenerate_id()?;
        session.insert("user", "ada")
    };
    let logout = |session: Session| session.destroy();
    let switch = |session: Session| -> Result<()> {
        session.destroy()?;
        session.insert("user", "bob")
    };
    let forget = |session: Session| session.remove("count");
    let wrong =
        |session: Session| -> Result<String> { session.get::<String>("count").map(|_| String::new()) };
    let panics = |session: Session| -> Result<()> {
        session.insert("count", 100)?;
        panic!("as asked")
    };
    let router = Router::new().get("/count", count).get("/read", read).get("/login", login);
    let router = router.get("/logout", logout).get("/switch", switch).get("/forget", forget);
    router.get("/wrong", wrong).get("/panics", panics).get("/static", || "no session")
}

fn records(store: &MemoryStore) -> usize {
    store.lock().records.len()
}

#[test]
fn values_are_kept_for_one_browser() {
    let store = Arc::new(MemoryStore::new());
    let (mut ada, mut bob) = (Browser::new(&store), Browser::new(&store));
    let first = ada.get("/count");
    let line = first.header("set-cookie").unwrap();
    let end = "; HttpOnly; SameSite=Lax; Secure; Path=/; Max-Age=36000";
    assert!(line.starts_with("__Host-session=") && line.ends_with(end), "{line}");
    assert_eq!((first.text(), first.header("vary")), ("1", Some("cookie")));
    assert_eq!((ada.get("/count").text(), bob.get("/count").text()), ("2", "1"));
    assert_eq!(records(&store), 2);
    ada.get("/forget");
    assert_eq!(ada.get("/read").text(), "None");
}

#[test]
fn a_session_without_values_is_not_begun() {
    let store = Arc::new(MemoryStore::new());
    let mut browser = Browser::new(&store);
    for path in ["/read", "/forget", "/logout", "/static"] {
        assert_eq!(browser.get(path).header("set-cookie"), None, "{path}");
    }
    assert_eq!(records(&store), 0);
    assert_eq!(browser.get("/static").header("vary"), None, "the session was not used");
}

#[test]
fn a_login_changes_the_id() {
    let store = Arc::new(MemoryStore::new());
    let mut browser = Browser::new(&store);
    browser.get("/count");
    let planted = browser.cookie.clone();
    browser.get("/login");
    assert_eq!((records(&store), browser.get("/read").text()), (1, "Some(1)"));
    browser.cookie = planted;
    let answer = browser.get("/read");
    assert_eq!(answer.text(), "None", "the id before the login is of no use");
    assert_eq!(answer.header("set-cookie"), None, "the browser may have a newer one");
}

/// A page polls while its form logs in. The poll ends last.
#[test]
fn a_request_beside_a_login_does_not_take_its_cookie() {
    let store = Arc::new(MemoryStore::new());
    let late = store.clone();
    let count = move |session: Session| -> Result<()> {
        session.insert("count", 1)?;
        // What a login does meanwhile.
        let ids: Vec<_> = late.lock().records.keys().cloned().collect();
        ids.iter().try_for_each(|id| late.delete(id))
    };
    let mut browser = Browser::new(&store);
    browser.get("/count");
    let sessions = Sessions::new(store.clone(), Key::derive_from(&[7; 32]));
    browser.client = TestClient::new(Router::new().get("/poll", count).with(sessions));
    assert_eq!(browser.get("/poll").header("set-cookie"), None);
    assert_eq!(records(&store), 0);
}

#[test]
fn an_unknown_id_is_not_adopted() {
    let store = Arc::new(MemoryStore::new());
    let mut browser = Browser::new(&store);
    browser.get("/count");
    let old = browser.cookie.clone().unwrap();
    let ids: Vec<_> = store.lock().records.keys().cloned().collect();
    store.delete(&ids[0]).unwrap();
    assert_eq!(browser.get("/count").text(), "1");
    assert!(browser.cookie.as_ref() != Some(&old) && !store.lock().records.contains_key(&ids[0]));
    for forged in ["__Host-session=x", &format!("__Host-session={}", ids[0]), &old.replace('=', "=A")] {
        browser.cookie = Some(forged.to_owned());
        assert_eq!(browser.get("/read").text(), "None", "{forged}");
    }
}

#[test]
fn a_logout_ends_every_copy() {
    let store = Arc::new(MemoryStore::new());
    let mut browser = Browser::new(&store);
    browser.get("/count");
    let copy = browser.cookie.clone();
    assert!(browser.get("/logout").header("set-cookie").unwrap().starts_with("__Host-session=; "));
    assert_eq!(records(&store), 0);
    browser.cookie = copy;
    assert_eq!(browser.get("/read").text(), "None");
    browser.get("/count");
    browser.get("/switch");
    assert_eq!((records(&store), browser.get("/read").text()), (1, "None"), "a new session begins");
}

#[test]
fn a_session_ends_after_its_last_use() {
    let mut browser = Browser::new(&Arc::new(MemoryStore::new()));
    browser.get("/count");
    browser.client.advance(HOUR / 2);
    assert_eq!(browser.get("/read").header("set-cookie"), None, "too early to write again");
    for _ in 0..3 {
        browser.client.advance(6 * HOUR);
        let answer = browser.get("/read");
        assert_eq!(answer.text(), "Some(1)");
        assert!(answer.header("set-cookie").is_some(), "each use extends it");
    }
    browser.client.advance(10 * HOUR);
    assert_eq!(browser.get("/read").text(), "None");
}

#[test]
fn changes_of_a_panic_and_of_errors_are_lost() {
    let mut browser = Browser::new(&Arc::new(MemoryStore::new()));
    browser.get("/count");
    assert_eq!(browser.get("/panics").status, 500);
    assert_eq!(browser.get("/wrong").status, 500, "a value of another type");
    assert_eq!(browser.get("/read").text(), "Some(1)");
}

#[test]
fn a_session_is_of_no_use_after_its_handler() {
    let kept: Arc<Mutex<Option<Session>>> = Arc::default();
    let keep = kept.clone();
    let handler = move |session: Session| *keep.lock().unwrap() = Some(session);
    let sessions = Sessions::new(MemoryStore::new(), Key::generate());
    assert_eq!(TestClient::new(Router::new().get("/", handler).with(sessions)).get("/").send().status, 204);
    let session = kept.lock().unwrap().take().unwrap();
    assert!(session.insert("late", 1).unwrap_err().to_string().contains("after its handler returned"));
    let forgotten = TestClient::new(Router::new().get("/", |_: Session| "")).get("/").send();
    assert_eq!(forgotten.status, 500, "without the middleware");
}

#[test]
fn a_cookie_of_another_kind() {
    let sessions = || Sessions::new(MemoryStore::new(), Key::generate());
    let plain = sessions().cookie(Cookie::build("id").path("/app")).unwrap();
    let mut client = TestClient::new(site().with(plain));
    let line = client.get("/count").send().header("set-cookie").unwrap().to_owned();
    assert!(line.starts_with("id=") && line.ends_with("; Path=/app; Max-Age=86400"), "{line}");
    let mut client =
        TestClient::new(site().with(sessions().cookie("id").unwrap().idle_timeout(Duration::MAX)));
    let line = client.get("/count").send().header("set-cookie").unwrap().to_owned();
    assert!(line.ends_with("; Path=/; Max-Age=34560000"), "{line}");
    assert!(sessions().cookie("__Host-id").is_err(), "browsers would drop it");
}

#[test]
fn a_full_store_drops_what_ends_first() {
    let store = MemoryStore::new().sessions_max(2);
    let ends_in = |hours: u32| SessionRecord::new("{}", SystemTime::now() + hours * HOUR);
    store.create("a", &ends_in(1)).unwrap();
    store.create("b", &ends_in(2)).unwrap();
    store.save("a", &ends_in(3)).unwrap();
    store.create("c", &ends_in(1)).unwrap();
    let is_kept = |id| store.load(id).unwrap().is_some();
    assert_eq!([is_kept("a"), is_kept("b"), is_kept("c")], [true, false, true]);
    store.save("b", &ends_in(9)).unwrap();
    assert!(!is_kept("b"), "a late request does not undo a logout");
    let ended = SessionRecord::new("{}", SystemTime::now() - HOUR);
    store.save("a", &ended).unwrap();
    store.save("c", &ended).unwrap();
    store.create("d", &ends_in(1)).unwrap();
    assert_eq!((records(&store), store.lock().by_expiry.len()), (1, 1), "ended sessions are removed");
}

/// A store that fails.
struct Broken;

impl SessionStore for Broken {
    fn load(&self, _: &str) -> Result<Option<SessionRecord>> {
        Err(Error::internal("the disk is gone"))
    }
    fn create(&self, _: &str, _: &SessionRecord) -> Result<()> {
        Err(Error::internal("the disk is full"))
    }
    fn save(&self, _: &str, _: &SessionRecord) -> Result<bool> {
        unreachable!("nothing was loaded")
    }
    fn delete(&self, _: &str) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_store_that_fails_is_a_500() {
    let sessions = Sessions::new(Broken, Key::derive_from(&[7; 32]));
    let mut client = TestClient::new(site().with(sessions));
    let answer = client.get("/count").send();
    assert_eq!((answer.status.as_u16(), answer.header("set-cookie")), (500, None));
    assert!(!answer.text().contains("disk"));
    let mut browser = Browser::new(&Arc::new(MemoryStore::new()));
    browser.get("/count");
    let cookie = browser.cookie.unwrap();
    assert_eq!(client.get("/read").header("cookie", &cookie).send().status, 500);
    assert_eq!(client.get("/static").header("cookie", &cookie).send().status, 200, "it does not ask");
}
