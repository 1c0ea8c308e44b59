//! Why a request was not forwarded or failed, for the log and for the client.

use std::io;

use http::StatusCode;
use weftwork_wire::{ErrorCode, Fault, Http2Fault, ResponseFault, Violation};

use crate::error::Error;
use crate::message::{IntoResponse, Problem, Response};
use crate::transport::stream::is_timed_out;

/// The reason why a request was not forwarded or failed.
pub(super) enum Failure {
    /// The request is not valid for this proxy.
    Request(StatusCode, &'static str),
    /// The client's body could not be read.
    Client(Error),
    Unreachable(io::Error),
    /// The server closed the connection before its response started.
    Closed,
    /// The wait exceeded the named option.
    Timeout(&'static str),
    Socket(io::Error),
    Malformed(ResponseFault),
    MalformedHttp2(Http2Fault),
    /// The server has reset the stream of the request.
    Reset(ErrorCode),
    /// The server has said that it did not begin the request.
    Unprocessed,
    /// The server answers the request in HTTP/1.1 only.
    NeedsHttp1,
    /// The server switched to a protocol that was not requested.
    UnexpectedUpgrade,
}

impl Failure {
    /// Converts an error of the connection to the server. `bound` is the option that limited the wait.
    pub(super) fn of(error: io::Error, bound: &'static str) -> Failure {
        match error.kind() {
            io::ErrorKind::TimedOut => Failure::Timeout(bound),
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => {
                Failure::Closed
            }
            _ => Failure::Socket(error),
        }
    }

    pub(super) fn for_log(&self) -> Option<String> {
        match self {
            Failure::Request(..) | Failure::Client(_) => None,
            Failure::Unreachable(error) => Some(format!("cannot be reached: {error}")),
            Failure::Closed => Some("closed the connection before it responded".to_owned()),
            Failure::Timeout(bound) => Some(format!("timed out ({bound})")),
            Failure::Socket(error) => Some(error.to_string()),
            Failure::Malformed(fault) => Some(named_with_option(*fault)),
            Failure::MalformedHttp2(Http2Fault { violation: Violation::Message(fault), .. }) => {
                Some(named_with_option(ResponseFault::Message(*fault)))
            }
            Failure::MalformedHttp2(fault) => Some(fault.to_string()),
            Failure::Reset(code) => Some(format!("reset the request ({code})")),
            Failure::Unprocessed => Some("refused the request, and did not begin it".to_owned()),
            Failure::NeedsHttp1 => Some("requires HTTP/1.1 for the request".to_owned()),
            Failure::UnexpectedUpgrade => Some("switched to a protocol that was not requested".to_owned()),
        }
    }
}

/// Returns the description of a fault, with the option that sets the limit.
fn named_with_option(fault: ResponseFault) -> String {
    match fault {
        ResponseFault::Message(
            kind @ (Fault::HeadTooLong
            | Fault::TooManyFields
            | Fault::TrailersTooLong
            | Fault::TooManyTrailers),
        ) => {
            let option = kind.setting().unwrap_or_default();
            format!("{fault} The limit is Proxy::response_{option}.")
        }
        fault => fault.to_string(),
    }
}

/// Detail of a 502 if the server responded in an invalid way.
pub(super) const NO_ANSWER: &str = "no valid response from the upstream server";

impl IntoResponse for Failure {
    /// The client learns only that the upstream server failed.
    fn into_response(self) -> Response {
        let (status, detail) = match self {
            Failure::Client(error) => return error.into_response(),
            Failure::Request(status, why) => (status, why),
            Failure::Timeout(_) => {
                (StatusCode::GATEWAY_TIMEOUT, "the upstream server did not respond in time")
            }
            Failure::Unreachable(error) if is_timed_out(&error) => {
                (StatusCode::GATEWAY_TIMEOUT, "the upstream server could not be reached in time")
            }
            Failure::Unreachable(_) => (StatusCode::BAD_GATEWAY, "the upstream server could not be reached"),
            Failure::Closed
            | Failure::Socket(_)
            | Failure::Malformed(_)
            | Failure::MalformedHttp2(_)
            | Failure::Reset(_)
            | Failure::Unprocessed
            | Failure::NeedsHttp1
            | Failure::UnexpectedUpgrade => (StatusCode::BAD_GATEWAY, NO_ANSWER),
        };
        Problem::new(status).detail(detail).into_response()
    }
}

impl From<ResponseFault> for Failure {
    fn from(fault: ResponseFault) -> Failure {
        Failure::Malformed(fault)
    }
}
