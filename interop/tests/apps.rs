//! Small axum apps, asked line by line over hyper and on every engine: stores with limits, logins, versions, own errors.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use axum::error_handling::HandleErrorLayer;
use axum::extract::path::ErrorKind;
use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{
    DefaultBodyLimit, FromRequestParts, MatchedPath, NestedPath, OriginalUri, Path, Query, RawPathParams,
    Request, State,
};
use axum::handler::HandlerWithoutStateExt;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn, map_request};
use axum::response::{AppendHeaders, IntoResponse, Redirect, Response};
use axum::routing::{MethodRouter, delete, get, post};
use axum::{BoxError, Form, Json, Router};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;
use tokio::sync::Notify;
use tower::ServiceBuilder;
use tower::buffer::BufferLayer;
use tower_http::services::ServeDir;
use weftwork_interop::{client, eventually, start};

type Store = Arc<RwLock<HashMap<String, Bytes>>>;

async fn told(error: BoxError) -> (StatusCode, String) {
    if error.is::<tower::timeout::error::Elapsed>() {
        return (StatusCode::REQUEST_TIMEOUT, "too late".to_owned());
    }
    if error.is::<tower::load_shed::error::Overloaded>() {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many".to_owned());
    }
    (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}"))
}

fn for_admins() -> Router<Store> {
    async fn admins_only(request: Request, next: Next) -> Response {
        match request.headers().get(header::AUTHORIZATION) {
            Some(value) if value == "Bearer secret" => next.run(request).await,
            _ => StatusCode::UNAUTHORIZED.into_response(),
        }
    }
    Router::new()
        .route("/keys", delete(|State(store): State<Store>| async move { store.write().unwrap().clear() }))
        .layer(from_fn(admins_only))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_with_limits() {
    let load = |Path(key): Path<String>, State(store): State<Store>| async move {
        store.read().unwrap().get(&key).cloned().ok_or(StatusCode::NOT_FOUND)
    };
    let save = |Path(key): Path<String>, State(store): State<Store>, bytes: Bytes| async move {
        store.write().unwrap().insert(key, bytes);
    };
    let limits = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(told))
        .load_shed()
        .concurrency_limit(100)
        .timeout(Duration::from_secs(10));
    let short = ServiceBuilder::new().layer(HandleErrorLayer::new(told)).timeout(Duration::from_millis(20));
    let queued = ServiceBuilder::new().layer(HandleErrorLayer::new(told)).layer(BufferLayer::new(8));
    let app = Router::new()
        .route("/{key}", get(load).post(save))
        .layer(DefaultBodyLimit::max(1000))
        .layer(limits)
        .route("/late", get(|| async { std::future::pending::<()>().await }).layer(short))
        .route("/queued", post(|text: String| async move { text }).layer(queued))
        .nest("/admin", for_admins())
        .with_state(Store::default());
    let sites = start(app).await;
    let admin = &[("authorization", "Bearer secret")][..];
    sites
        .check(&[
            (404, "GET /a", &[], ""),
            (200, "POST /a", &[], "value"),
            (200, "GET /a", &[], ""),
            (413, "POST /a", &[], &"x".repeat(1001)),
            (200, "POST /a", &[], &"x".repeat(1000)),
            (405, "DELETE /a", &[], ""),
            (401, "DELETE /admin/keys", &[], ""),
            (401, "DELETE /admin/keys", &[("authorization", "Bearer other")], ""),
            (200, "DELETE /admin/keys", admin, ""),
            (404, "GET /a", &[], ""),
            (405, "GET /admin/keys", admin, ""),
            (408, "GET /late", &[], ""),
            (200, "POST /queued", &[], &"queued ".repeat(100_000)),
        ])
        .await;
}

/// The second request is refused while the first one is inside, and not after it.
#[tokio::test(flavor = "multi_thread")]
async fn load_is_shed() {
    let (inside, go) = (Arc::<AtomicUsize>::default(), Arc::<Notify>::default());
    let (entered, gone) = (inside.clone(), go.clone());
    let wait = move || {
        let (entered, gone) = (entered.clone(), gone.clone());
        async move {
            let gone = gone.notified();
            entered.fetch_add(1, Ordering::SeqCst);
            gone.await;
            "passed"
        }
    };
    let limits = ServiceBuilder::new().layer(HandleErrorLayer::new(told)).load_shed().concurrency_limit(1);
    let sites = start(Router::new().route("/", get(wait).layer(limits))).await;
    for address in sites.addresses() {
        let ask = move || async move {
            let response = client().get(format!("http://{address}/")).send().await.unwrap();
            (response.status().as_u16(), response.text().await.unwrap())
        };
        for _ in 0..2 {
            let before = inside.load(Ordering::SeqCst);
            let first = tokio::spawn(ask());
            eventually("it is inside", || inside.load(Ordering::SeqCst) > before).await;
            assert_eq!(ask().await, (503, "too many".to_owned()));
            go.notify_one();
            assert_eq!(first.await.unwrap(), (200, "passed".to_owned()));
        }
    }
}

#[derive(Deserialize)]
struct Login {
    name: String,
    password: String,
}

/// The name in a token.
struct Bearer(String);

impl<S: Sync> FromRequestParts<S> for Bearer {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        let value = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some(token) = value.and_then(|value| value.strip_prefix("Bearer ")) else {
            let wants = [(header::WWW_AUTHENTICATE, "Bearer realm=\"notes\"")];
            return Err(
                (StatusCode::UNAUTHORIZED, wants, Json(json!({ "error": "no token" }))).into_response()
            );
        };
        match token.strip_prefix("token-of-") {
            Some(name) => Ok(Bearer(name.to_owned())),
            None => Err((StatusCode::BAD_REQUEST, Json(json!({ "error": "invalid token" }))).into_response()),
        }
    }
}

async fn log_in(Json(login): Json<Login>) -> Result<Json<serde_json::Value>, (StatusCode, &'static str)> {
    match login.password.as_str() {
        "" => Err((StatusCode::BAD_REQUEST, "no password")),
        "right" => Ok(Json(json!({ "token": format!("token-of-{}", login.name), "kind": "Bearer" }))),
        _ => Err((StatusCode::UNAUTHORIZED, "wrong password")),
    }
}

fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|pair| pair.0 == name).map(|pair| pair.1)
}

#[derive(Deserialize)]
struct Granted {
    code: String,
    state: String,
}

async fn granted(headers: HeaderMap, Query(granted): Query<Granted>) -> Response {
    if cookie(&headers, "state") != Some(&granted.state) {
        return (StatusCode::BAD_REQUEST, "another state").into_response();
    }
    let session = format!("session={}; HttpOnly; SameSite=Lax; Path=/", granted.code);
    let ends = "state=; Max-Age=0".to_owned();
    (AppendHeaders([(header::SET_COOKIE, session), (header::SET_COOKIE, ends)]), Redirect::to("/me"))
        .into_response()
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_and_sessions() {
    let me = |headers: HeaderMap| async move {
        match cookie(&headers, "session") {
            Some(session) => format!("session {session}").into_response(),
            None => Redirect::temporary("/auth").into_response(),
        }
    };
    let auth = || async {
        let state = [(header::SET_COOKIE, "state=s1; Secure"), (header::SET_COOKIE, "hint=a")];
        (AppendHeaders(state), Redirect::to("https://auth.test/grant?client=a%20b&state=s1"))
    };
    let app = Router::new()
        .route("/token", post(log_in))
        .route("/notes", get(|Bearer(name): Bearer| async move { format!("notes of {name}") }))
        .route("/auth", get(auth))
        .route("/granted", get(granted))
        .route("/me", get(me))
        .route(
            "/form",
            post(|Form(login): Form<Login>| async move { Redirect::to(&format!("/{}", login.name)) }),
        );
    let sites = start(app).await;
    let json = &[("content-type", "application/json")][..];
    let answers = sites
        .check(&[
            (200, "POST /token", json, r#"{"name":"ada","password":"right"}"#),
            (401, "POST /token", json, r#"{"name":"ada","password":"wrong"}"#),
            (400, "POST /token", json, r#"{"name":"ada","password":""}"#),
            (401, "GET /notes", &[], ""),
            (401, "GET /notes", &[("authorization", "Basic YTpi")], ""),
            (400, "GET /notes", &[("authorization", "Bearer x")], ""),
            (200, "GET /notes", &[("authorization", "Bearer token-of-ada")], ""),
            (303, "GET /auth", &[], ""),
            (307, "GET /me", &[], ""),
            (200, "GET /me", &[("cookie", "a=b; session=s; c=d")], ""),
            (200, "GET /me", &[("cookie", "a=b"), ("cookie", "session=s")], ""),
            (303, "GET /granted?code=c&state=s1", &[("cookie", "state=s1")], ""),
            (400, "GET /granted?code=c&state=s2", &[("cookie", "state=s1")], ""),
            (400, "GET /granted?code=c", &[], ""),
            (
                303,
                "POST /form",
                &[("content-type", "application/x-www-form-urlencoded")],
                "name=a%2Fb&password=",
            ),
        ])
        .await;
    assert_eq!(answers[7].headers["set-cookie"].len(), 2);
    assert_eq!(answers[11].headers["location"], ["/me"]);
}

#[derive(Debug)]
enum AppError {
    Json(JsonRejection),
    Missing,
    Inner(Box<dyn std::error::Error>),
}

impl From<JsonRejection> for AppError {
    fn from(error: JsonRejection) -> AppError {
        AppError::Json(error)
    }
}

impl From<std::num::ParseIntError> for AppError {
    fn from(error: std::num::ParseIntError) -> AppError {
        AppError::Inner(error.into())
    }
}

impl IntoResponse for AppError {
    fn into_response(self) -> Response {
        let (status, text) = match self {
            AppError::Json(rejection) => (rejection.status(), rejection.body_text()),
            AppError::Missing => (StatusCode::NOT_FOUND, "missing".to_owned()),
            AppError::Inner(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        };
        (status, Json(json!({ "error": text }))).into_response()
    }
}

/// JSON whose error is one of the app.
#[derive(axum::extract::FromRequest)]
#[from_request(via(Json), rejection(AppError))]
struct AppJson<T>(T);

/// A path whose error is JSON.
struct AppPath<T>(T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for AppPath<T> {
    type Rejection = (StatusCode, Json<serde_json::Value>);

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let error = match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(value)) => return Ok(AppPath(value)),
            Err(error) => error,
        };
        let kind = match &error {
            PathRejection::FailedToDeserializePathParams(inner) => match inner.kind() {
                ErrorKind::ParseErrorAtKey { key, .. } => format!("invalid {key}"),
                ErrorKind::InvalidUtf8InPathParam { key } => format!("not UTF-8: {key}"),
                other => other.to_string(),
            },
            other => other.to_string(),
        };
        Err((error.status(), Json(json!({ "error": kind }))))
    }
}

#[derive(Debug, Deserialize, Serialize)]
struct Place {
    team: u32,
    user: String,
}

#[derive(Debug)]
enum ApiVersion {
    V1,
    V2,
}

impl<S: Send + Sync> FromRequestParts<S> for ApiVersion {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let params =
            RawPathParams::from_request_parts(parts, state).await.map_err(IntoResponse::into_response)?;
        let version = params.iter().find(|(name, _)| *name == "version").map(|(_, value)| value);
        match version {
            Some("v1") => Ok(ApiVersion::V1),
            Some("v2") => Ok(ApiVersion::V2),
            _ => Err((StatusCode::NOT_FOUND, "unknown version").into_response()),
        }
    }
}

#[derive(Deserialize)]
struct Wanted {
    #[serde(default, deserialize_with = "empty_is_none")]
    count: Option<i32>,
    text: Option<String>,
}

fn empty_is_none<'de, D: Deserializer<'de>, T: FromStr<Err: fmt::Display>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    let text = Option::<String>::deserialize(from)?.filter(|text| !text.is_empty());
    text.map(|text| text.parse().map_err(serde::de::Error::custom)).transpose()
}

#[tokio::test(flavor = "multi_thread")]
async fn own_rejections_and_errors() {
    let parse = |Path(text): Path<String>| async move {
        match text.as_str() {
            "none" => Err(AppError::Missing),
            text => Ok(text.parse::<u32>()?.to_string()),
        }
    };
    let app = Router::new()
        .route("/json", post(|AppJson(place): AppJson<Place>| async move { Json(place) }))
        .route(
            "/maybe",
            post(|place: Result<Json<Place>, JsonRejection>| async move { place.is_ok().to_string() }),
        )
        .route("/teams/{team}/users/{user}", get(|AppPath(place): AppPath<Place>| async move { Json(place) }))
        .route("/parse/{text}", get(parse))
        .route("/{version}/info", get(|version: ApiVersion| async move { format!("{version:?}") }))
        .route(
            "/query",
            get(
                |Query(wanted): Query<Wanted>| async move { format!("{:?} {:?}", wanted.count, wanted.text) },
            ),
        );
    let sites = start(app).await;
    let json = &[("content-type", "application/json")][..];
    let answers = sites
        .check(&[
            (200, "POST /json", json, r#"{"team":1,"user":"a"}"#),
            (422, "POST /json", json, r#"{"team":"x","user":"a"}"#),
            (400, "POST /json", json, "{"),
            (415, "POST /json", &[], "{}"),
            (200, "POST /maybe", json, "{}"),
            (200, "GET /teams/7/users/a%20b", &[], ""),
            (400, "GET /teams/x/users/a", &[], ""),
            (400, "GET /teams/7/users/%ff", &[], ""),
            (400, "GET /teams/99999999999/users/a", &[], ""),
            (200, "GET /parse/7", &[], ""),
            (500, "GET /parse/seven", &[], ""),
            (404, "GET /parse/none", &[], ""),
            (200, "GET /v1/info", &[], ""),
            (200, "GET /v2/info", &[], ""),
            (404, "GET /v3/info", &[], ""),
            (200, "GET /query", &[], ""),
            (200, "GET /query?count=&text=", &[], ""),
            (200, "GET /query?count=7&text=a%26b+c", &[], ""),
            (400, "GET /query?count=x", &[], ""),
            (400, "GET /query?count=1&count=2", &[], ""),
        ])
        .await;
    assert_eq!(answers[6].body.as_deref(), Ok(r#"{"error":"invalid team"}"#));
    assert_eq!(answers[16].body.as_deref(), Ok("None Some(\"\")"));
}

/// Tells what the router knows of a request.
async fn mark(request: Request, next: Next) -> Response {
    let extensions = request.extensions();
    let path = extensions.get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let whole = extensions.get::<OriginalUri>().map(|uri| uri.0.to_string());
    let nest = extensions.get::<NestedPath>().map(|path| path.as_str().to_owned());
    let told = format!("{path} {whole:?} {nest:?} {}", request.uri());
    let mut response = next.run(request).await;
    response.headers_mut().append("x-told", told.parse().unwrap());
    response
}

/// A route and its handler in one place.
fn beside(path: &str, method: MethodRouter) -> Router {
    Router::new().route(path, method)
}

#[tokio::test(flavor = "multi_thread")]
async fn nests_fallbacks_and_files() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("files");
    std::fs::create_dir_all(folder.join("sub")).unwrap();
    for (name, text) in [
        ("a.txt", "plain"),
        ("a.txt.gz", "packed"),
        ("index.html", "<p>"),
        ("sub/index.html", "<i>"),
        ("empty", ""),
    ] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let lost = |uri: Uri| async move { (StatusCode::NOT_FOUND, format!("lost {uri}")) };
    let inner = beside("/one", get(|| async { "one" }))
        .merge(beside("/two/{*rest}", get(|Path(rest): Path<String>| async move { rest })))
        .fallback(|| async { (StatusCode::IM_A_TEAPOT, "of the nest") })
        .layer(from_fn(mark));
    let app = beside("/", get(|| async { "root" }))
        .merge(beside("/root", post(|| async { "post" })))
        .nest("/nest", inner)
        .nest_service("/files", ServeDir::new(&folder).precompressed_gzip().fallback(lost.into_service()))
        .nest_service(
            "/call",
            ServeDir::new(&folder).call_fallback_on_method_not_allowed(true).fallback(lost.into_service()),
        )
        .method_not_allowed_fallback(|| async { (StatusCode::METHOD_NOT_ALLOWED, "not so") })
        .fallback(lost)
        .layer(from_fn(mark))
        .layer(map_request(|mut request: Request| async move {
            if request.uri().path() == "/rewritten" {
                *request.uri_mut() = Uri::from_static("/nest/one");
            }
            request
        }));
    let sites = start(app).await;
    let gzip = &[("accept-encoding", "gzip")][..];
    let answers = sites
        .check(&[
            (200, "GET /", &[], ""),
            (405, "PUT /", &[], ""),
            (405, "GET /root", &[], ""),
            (200, "GET /nest/one?a=b", &[], ""),
            (405, "POST /nest/one", &[], ""),
            (200, "GET /nest/two/a/b%2Fc/", &[], ""),
            (418, "GET /nest/three", &[], ""),
            (404, "GET /nestle", &[], ""),
            (404, "GET /rewritten", &[], ""),
            (404, "GET //", &[], ""),
            (404, "OPTIONS /lost", &[], ""),
            (200, "GET /files/a.txt", &[], ""),
            (200, "GET /files/a.txt", gzip, ""),
            (206, "GET /files/a.txt", &[("range", "bytes=1-3")], ""),
            (200, "GET /files/a.txt", &[("accept-encoding", "gzip;q=0")], ""),
            (200, "HEAD /files/a.txt", gzip, ""),
            (200, "GET /files/", &[], ""),
            (200, "GET /files/empty", &[], ""),
            (307, "GET /files/sub", &[], ""),
            (200, "GET /files/sub/", &[], ""),
            (404, "GET /files/none", &[], ""),
            (404, "GET /files/..%2Fa.txt", &[], ""),
            (405, "POST /files/a.txt", &[], "body"),
            (404, "POST /call/a.txt", &[], "body"),
        ])
        .await;
    assert_eq!(answers[12].headers["content-encoding"], ["gzip"]);
}
