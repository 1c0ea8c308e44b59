//! Converts between [`Error`] and `anyhow::Error` (feature `anyhow`).

use std::error::Error as StdError;
use std::fmt;

use super::Error;
use crate::message::{IntoResponse, Response};

/// An `anyhow::Error` as the source of an [`Error`].
struct Anyhow(anyhow::Error);

/// An [`Error`] within an `anyhow::Error`. It keeps its class and its response.
struct Carried(Error);

/// Lets handlers return `anyhow::Result`, with `?` and `.context` of that crate. The response is the same as that of
/// [`Error`]. A [`Problem`](crate::Problem) and a [`BodyError`](crate::BodyError) keep their status under every context.
/// Feature `anyhow`.
///
/// ```
/// use anyhow::Context as _;
/// use weftwork::{Request, TestClient};
///
/// fn stock(req: &mut Request) -> anyhow::Result<String> {
///     let tea = req.body().text()?;
///     let count = std::fs::read_to_string(format!("/no/stock/of/{tea}")).context("cannot read the stock")?;
///     Ok(count)
/// }
/// assert_eq!(TestClient::new(stock).post("/").body("Assam").send().status, 500);
/// ```
impl IntoResponse for anyhow::Error {
    fn into_response(self) -> Response {
        Error::of_anyhow(self).into_response()
    }
}

/// Lets `?` convert the errors of this library in a function that returns `anyhow::Result`. Feature `anyhow`.
impl From<Error> for anyhow::Error {
    fn from(error: Error) -> Self {
        anyhow::Error::new(Carried(error))
    }
}

impl Error {
    fn of_anyhow(error: anyhow::Error) -> Error {
        let text = error.to_string();
        match error.downcast::<Carried>() {
            Ok(Carried(error)) if error.to_string() == text => error,
            Ok(Carried(error)) => error.context(text),
            Err(error) => Error { location: None, ..Error::boxed(Anyhow(error)) },
        }
    }
}

/// Downcasts an `anyhow::Error` that is a source.
pub(super) fn downcast_ref<'e, E: StdError + Send + Sync + 'static>(
    error: &'e (dyn StdError + 'static),
) -> Option<&'e E> {
    error.downcast_ref::<Anyhow>()?.0.downcast_ref()
}

/// Takes an `E` out of an `anyhow::Error`.
pub(super) fn take<E: StdError + Send + Sync + 'static>(
    error: Box<dyn StdError + Send + Sync>,
) -> Result<E, Box<dyn StdError + Send + Sync>> {
    let Anyhow(error) = *error.downcast::<Anyhow>()?;
    error.downcast().map_err(|error| Box::new(Anyhow(error)) as _)
}

impl StdError for Anyhow {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source()
    }
}

impl fmt::Display for Anyhow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Anyhow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl StdError for Carried {}

impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    //! Tests that an error is the same through `anyhow`.

    use anyhow::Context as _;
    use http::StatusCode;

    use crate::{BodyError, Error, Problem, Request, Response, TestClient};

    fn failing(which: &str) -> anyhow::Result<String> {
        match which {
            "problem" => Err(Problem::new(StatusCode::CONFLICT).detail("taken"))?,
            "body" => Err(BodyError::Timeout)?,
            "client" => Err(Error::client(StatusCode::GONE, "gone"))?,
            "response" => Err(Error::response((StatusCode::ACCEPTED, "later")))?,
            "redirect" => Err(Error::from(Response::redirect("/login")?))?,
            _ => anyhow::bail!("a secret"),
        }
    }

    #[test]
    fn a_handler_returns_anyhow_and_the_status_stays_under_every_context() {
        let direct = |req: &mut Request<'_>| failing(&req.path()[1..]);
        let under = |req: &mut Request<'_>| failing(&req.path()[1..]).context("cannot do this");
        let (mut direct, mut under) = (TestClient::new(direct), TestClient::new(under));
        for (which, status) in [
            ("problem", 409),
            ("body", 408),
            ("client", 410),
            ("response", 202),
            ("redirect", 303),
            ("else", 500),
        ] {
            let [direct, under] =
                [&mut direct, &mut under].map(|client| client.get(format!("/{which}")).send());
            assert_eq!(direct.status, status, "{which}");
            assert_eq!((under.status, under.text()), (direct.status, direct.text()), "{which}");
        }
    }

    #[test]
    fn the_log_has_every_cause() {
        let error = Error::of_anyhow(failing("else").context("no page").unwrap_err());
        assert_eq!(error.to_string(), "no page: a secret");
        let error = Error::of_anyhow(anyhow::Error::from(Error::internal("no row")).context("no page"));
        assert_eq!(error.to_string(), "no page: no row");
    }
}
