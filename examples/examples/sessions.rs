//! A login with sessions in SQLite, so that they survive a restart.
//! `cargo run -p weftwork-examples --example sessions`, then `curl -c jar -b jar -d name=Ada localhost:8080/login` and
//! `curl -c jar -b jar localhost:8080/`. curl sends the `Secure` cookie to `localhost` since version 7.79.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension, params};
use weftwork::cookies::{Key, key};
use weftwork::middleware::{Csrf, Session, SessionRecord, SessionStore, Sessions};
use weftwork::prelude::*;

/// SQLite has one writer at a time, so one connection is enough.
struct SqliteStore {
    db: Mutex<Connection>,
}

impl SqliteStore {
    fn open(file: &Path) -> Result<SqliteStore> {
        let db = Connection::open(file)?;
        db.execute_batch(
            "CREATE TABLE IF NOT EXISTS sessions (id TEXT PRIMARY KEY, json TEXT, expiry INTEGER);
             CREATE INDEX IF NOT EXISTS sessions_by_expiry ON sessions (expiry)",
        )?;
        Ok(SqliteStore { db: Mutex::new(db) })
    }

    fn db(&self) -> MutexGuard<'_, Connection> {
        self.db.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

impl SessionStore for SqliteStore {
    fn load(&self, id: &str) -> Result<Option<SessionRecord>> {
        let select = "SELECT json, expiry FROM sessions WHERE id = ?1";
        let row = self.db().query_row(select, [id], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        Ok(row.map(|(json, expiry): (String, u64)| {
            SessionRecord::new(json, UNIX_EPOCH + Duration::from_secs(expiry))
        }))
    }

    fn create(&self, id: &str, record: &SessionRecord) -> Result<()> {
        let db = self.db();
        db.execute("DELETE FROM sessions WHERE expiry < ?1", [seconds(SystemTime::now())])?;
        let insert = "INSERT INTO sessions (id, json, expiry) VALUES (?1, ?2, ?3)";
        db.execute(insert, params![id, record.json, seconds(record.expiry)])?;
        Ok(())
    }

    fn save(&self, id: &str, record: &SessionRecord) -> Result<bool> {
        let update = "UPDATE sessions SET json = ?2, expiry = ?3 WHERE id = ?1";
        Ok(self.db().execute(update, params![id, record.json, seconds(record.expiry)])? > 0)
    }

    fn delete(&self, id: &str) -> Result<()> {
        self.db().execute("DELETE FROM sessions WHERE id = ?1", [id])?;
        Ok(())
    }
}

#[derive(serde::Deserialize)]
struct Login {
    name: String,
}

/// A real login verifies a password first.
fn login(session: Session, Form(login): Form<Login>) -> Result<String> {
    session.regenerate_id()?;
    session.insert("name", &login.name)?;
    Ok(format!("welcome, {}\n", login.name))
}

fn home(session: Session) -> Result<String> {
    let Some(name) = session.get::<String>("name")? else {
        return Err(Problem::new(StatusCode::UNAUTHORIZED).detail("log in first"))?;
    };
    let visits = session.get("visits")?.unwrap_or(0) + 1;
    session.insert("visits", visits)?;
    Ok(format!("{name}, this is visit {visits}\n"))
}

fn logout(session: Session) -> Result<&'static str> {
    session.destroy()?;
    Ok("bye\n")
}

fn site(store: SqliteStore, key: Key) -> impl Handler {
    let router = Router::new().get("/", home).post("/login", login).post("/logout", logout);
    router.with(Sessions::new(store, key)).with(Csrf::new())
}

fn main() -> Result<()> {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info")).init();
    // Without a secret, cookies are valid until the program ends.
    let key = std::env::var("COOKIE_SECRET").map_or_else(|_| Ok(Key::generate()), key)?;
    Server::bind("127.0.0.1:8080")?.run(site(SqliteStore::open(Path::new("sessions.sqlite"))?, key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weftwork::TestClient;

    fn pair(answer: &weftwork::TestResponse) -> String {
        answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
    }

    #[test]
    fn a_session_survives_a_restart_and_ends_with_a_logout() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sessions.sqlite");
        let start = || TestClient::new(site(SqliteStore::open(&file).unwrap(), Key::derive_from(&[7; 32])));
        let mut client = start();
        assert_eq!(client.get("/").send().status, 401);
        let form = [("name", "Ada")];
        let cookie = pair(&client.post("/login").form(form).send());
        assert_eq!(client.get("/").header("cookie", &cookie).send().text(), "Ada, this is visit 1\n");
        let again = pair(&client.post("/login").header("cookie", &cookie).form(form).send());
        assert_eq!(client.get("/").header("cookie", &cookie).send().status, 401, "a login changes the id");
        let mut client = start();
        assert_eq!(client.get("/").header("cookie", &again).send().text(), "Ada, this is visit 2\n");
        client.post("/logout").header("cookie", &again).send();
        assert_eq!(client.get("/").header("cookie", &again).send().status, 401);
    }

    #[test]
    fn ended_sessions_are_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join("sessions.sqlite")).unwrap();
        let ended = SessionRecord::new("{}", SystemTime::now() - Duration::from_secs(5));
        store.create("a", &ended).unwrap();
        assert!(store.load("a").unwrap().is_some(), "the middleware checks the expiry");
        store.create("b", &SessionRecord::new("{}", SystemTime::now() + Duration::from_secs(60))).unwrap();
        assert!(store.load("a").unwrap().is_none() && store.load("b").unwrap().is_some());
        store.save("c", &ended).unwrap();
        assert!(store.load("c").unwrap().is_none(), "only `create` makes a session");
    }
}
