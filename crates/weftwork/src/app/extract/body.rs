//! Bodies as arguments.

use bytes::Bytes;

use super::Extract;
use crate::error::Result;
use crate::message::Request;

impl Extract for Bytes {
    fn extract(req: &mut Request<'_>) -> Result<Self> {
        Ok(req.body().bytes()?)
    }
}

impl Extract for String {
    fn extract(req: &mut Request<'_>) -> Result<Self> {
        Ok(req.body().text()?)
    }
}

#[cfg(feature = "json")]
pub use typed::{Form, Json};

#[cfg(feature = "json")]
mod typed {
    use http::StatusCode;
    use serde::de::DeserializeOwned;

    use crate::app::extract::Extract;
    use crate::app::extract::pairs::{Pairs, form_pairs};
    use crate::error::Result;
    use crate::message::{IntoResponse, Problem, Request, Response};

    /// A body of JSON; as an answer, the same as [`json`](crate::json).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Json<T>(pub T);

    /// A body as HTML forms send it (`application/x-www-form-urlencoded`), as a struct.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Form<T>(pub T);

    impl<T: DeserializeOwned> Extract for Json<T> {
        fn extract(req: &mut Request<'_>) -> Result<Self> {
            expect(req, "application/json", |kind| kind == "application/json" || kind.ends_with("+json"))?;
            let bytes = req.body().bytes()?;
            let mut source = serde_json::Deserializer::from_slice(&bytes);
            let value = serde_path_to_error::deserialize(&mut source).map_err(|error| {
                let (field, why) = (error.path().to_string(), error.inner());
                let status = match why.classify() {
                    serde_json::error::Category::Data => StatusCode::UNPROCESSABLE_ENTITY,
                    _ => StatusCode::BAD_REQUEST,
                };
                Problem::new(status).detail(format!("the JSON of the body: {why}")).with("field", field)
            })?;
            source.end().map_err(|why| {
                Problem::new(StatusCode::BAD_REQUEST).detail(format!("the JSON of the body: {why}"))
            })?;
            Ok(Json(value))
        }
    }

    impl<T: serde::Serialize> IntoResponse for Json<T> {
        fn into_response(self) -> Response {
            Response::json(&self.0)
        }
    }

    impl<T: DeserializeOwned> Extract for Form<T> {
        fn extract(req: &mut Request<'_>) -> Result<Self> {
            const KIND: &str = "application/x-www-form-urlencoded";
            expect(req, KIND, |kind| kind == KIND)?;
            let text = req.body().text()?;
            let pairs = Pairs::of("form's field", form_pairs(&text)).sorted();
            Ok(Form(pairs.read(StatusCode::UNPROCESSABLE_ENTITY)?))
        }
    }

    /// The type without its parameters, in small letters, has to be right: what a page of another site may send
    /// without asking is never taken for JSON.
    fn expect(req: &Request<'_>, wanted: &str, is_right: impl Fn(&str) -> bool) -> Result<()> {
        let given = req.header("content-type").unwrap_or_default();
        let kind = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if is_right(&kind) {
            return Ok(());
        }
        let detail = format!("the body has to be {wanted}, as Content-Type says");
        Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE).detail(detail).with("field", "content-type"))?
    }
}
