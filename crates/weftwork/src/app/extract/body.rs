//! Extractors that read the request body.

use bytes::Bytes;

use super::Extract;
use crate::error::{Error, Result};
use crate::message::{Body, BodyError, Problem, Request};

impl Extract for Bytes {
    const IS_BODY: bool = true;

    fn extract(req: &mut Request<'_>) -> Result<Self> {
        Ok(unread(req)?.bytes().map_err(refused)?)
    }

    fn is_missing(req: &Request<'_>) -> bool {
        req.body_left() == Some(0)
    }
}

impl Extract for String {
    const IS_BODY: bool = true;

    fn extract(req: &mut Request<'_>) -> Result<Self> {
        Ok(unread(req)?.text().map_err(refused)?)
    }

    fn is_missing(req: &Request<'_>) -> bool {
        req.body_left() == Some(0)
    }
}

/// Returns the body if it has not been read yet. An argument is always the whole body.
fn unread<'b>(req: &'b mut Request<'_>) -> Result<Body<'b>> {
    let body = req.body();
    if body.has_been_read() {
        return Err(Error::usage(
            "the body was read before the handler could take it as an argument: a middleware that reads it must pass it on as an \
             extension",
        ));
    }
    Ok(body)
}

/// Returns the response for a body that could not be read.
fn refused(error: BodyError) -> Problem {
    Problem::new(error.status()).detail(error.to_string())
}

#[cfg(feature = "json")]
pub use typed::{Form, Json};

#[cfg(feature = "json")]
mod typed {
    use http::StatusCode;
    use serde::de::DeserializeOwned;
    use serde_path_to_error::{Path, Segment};

    use super::{refused, unread};
    use crate::app::extract::Extract;
    use crate::app::extract::pairs::{Pairs, form_pairs};
    use crate::error::Result;
    use crate::message::large_stack::with_large_stack;
    use crate::message::{IntoResponse, Problem, Request, Response};

    /// Reads the body as JSON. As a response, it is the same as [`json`](crate::json).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Json<T>(pub T);

    /// Reads the body of an HTML form (`application/x-www-form-urlencoded`) into a struct. The fields follow
    /// the rules of [`Query`](crate::Query).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Form<T>(pub T);

    impl<T: DeserializeOwned> Extract for Json<T> {
        const IS_BODY: bool = true;

        fn extract(req: &mut Request<'_>) -> Result<Self> {
            expect(req, "application/json", |kind| kind == "application/json" || kind.ends_with("+json"))?;
            let bytes = unread(req)?.bytes().map_err(refused)?;
            Ok(Json(with_large_stack(|| read(&bytes))?))
        }

        fn is_missing(req: &Request<'_>) -> bool {
            req.body_left() == Some(0)
        }
    }

    fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
        let mut source = serde_json::Deserializer::from_slice(bytes);
        let value = serde_path_to_error::deserialize(&mut source).map_err(|error| {
            let why = error.inner();
            let status = match why.classify() {
                serde_json::error::Category::Data => StatusCode::UNPROCESSABLE_ENTITY,
                _ => StatusCode::BAD_REQUEST,
            };
            let problem = Problem::new(status).detail(format!("invalid JSON in the body: {why}"));
            match field(error.path(), &why.to_string()) {
                Some(field) => problem.with("field", field),
                None => problem,
            }
        })?;
        source.end().map_err(|why| {
            Problem::new(StatusCode::BAD_REQUEST).detail(format!("invalid JSON in the body: {why}"))
        })?;
        Ok(value)
    }

    /// Returns the path of the invalid field, such as `list[0].name`. For a missing field, serde gives the path
    /// of the parent and names the field only in the text. `None` if the fault is in the whole value, or if the
    /// path is unknown.
    fn field(path: &Path, why: &str) -> Option<String> {
        let missing = why.strip_prefix("missing field `").and_then(|rest| Some(rest.split_once('`')?.0));
        let is_whole = path.iter().next().is_none();
        let is_known = !path.iter().any(|segment| matches!(segment, Segment::Unknown));
        match missing {
            None => (!is_whole && is_known).then(|| path.to_string()),
            Some(name) if is_whole => Some(name.to_owned()),
            Some(name) => Some(format!("{path}.{name}")),
        }
    }

    impl<T: serde::Serialize> IntoResponse for Json<T> {
        fn into_response(self) -> Response {
            // Dropping a deeply nested value needs a large stack too.
            with_large_stack(|| {
                let Json(value) = self;
                Response::json(&value)
            })
        }
    }

    impl<T: DeserializeOwned> Extract for Form<T> {
        const IS_BODY: bool = true;

        fn extract(req: &mut Request<'_>) -> Result<Self> {
            const KIND: &str = "application/x-www-form-urlencoded";
            expect(req, KIND, |kind| kind == KIND)?;
            let text = unread(req)?.text().map_err(refused)?;
            let pairs = Pairs::of("form's field", form_pairs(&text)).repeated();
            Ok(Form(pairs.read(StatusCode::UNPROCESSABLE_ENTITY)?))
        }

        fn is_missing(req: &Request<'_>) -> bool {
            req.body_left() == Some(0)
        }
    }

    /// Checks the media type, without its parameters and in lower case. A body that a page of another site can
    /// send without a preflight is thus never read as JSON.
    fn expect(req: &Request<'_>, wanted: &str, is_right: impl Fn(&str) -> bool) -> Result<()> {
        let given = req.only("content-type").value().unwrap_or_default();
        let kind = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if is_right(&kind) {
            return Ok(());
        }
        let detail = format!("Content-Type must be {wanted}");
        Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE).detail(detail).with("field", "content-type"))?
    }
}
