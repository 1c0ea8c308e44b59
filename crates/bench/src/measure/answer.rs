//! Checks the first answer of a server. A server that answers something else, or did not wait as asked, is not measured. Every
//! later answer is compared with the first.

use std::time::Duration;

use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::load::{Group, probe};
use crate::peers::file_bytes;
use crate::procs::server::Server;
use crate::site;
use crate::subject::Subject;
use crate::workloads::{Ask, FILES, Workload};

/// A server that loses the first connection or two is measured all the same: the load counts what it loses.
const TRIES: usize = 4;

/// Returns the body that every answer to this group of the workload has.
pub(crate) fn expected(
    server: &Server,
    subject: &Subject,
    workload: &Workload,
    group: &Group,
) -> Result<Vec<u8>> {
    // The load itself decides how long a connection lives.
    let group = &Group { close: false, ..group.clone() };
    let probed = (1..TRIES).find_map(|_| probe::probe(server.port, group).ok());
    let probed = probed.map_or_else(|| probe::probe(server.port, group), Ok)?;
    let wanted = if group.range.is_some() { 206 } else { 200 };
    if probed.status != wanted {
        return Err(Failure::Run(format!("{}: answers {}", group.path, probed.status)));
    }
    if subject.is_floor() {
        return Ok(probed.body);
    }
    let right = match workload.ask {
        _ if group.path == "/health" => probed.body == b"OK",
        Ask::Route => probed.body == site::ANSWER.as_bytes(),
        Ask::Health => false,
        Ask::Json => is_message(&probed.body),
        Ask::Echo => probed.body == group.body(),
        Ask::Slow | Ask::Wait => probed.took >= workload.sleep,
        Ask::File => FILES.iter().any(|(name, length)| {
            let bytes = file_bytes(*length);
            let part = group.range.and_then(|(first, last)| bytes.get(first..=last));
            group.path.trim_start_matches('/') == *name && probed.body == part.unwrap_or(&bytes)
        }),
    };
    match right {
        true => Ok(probed.body),
        false => Err(Failure::Run(wrong(&probed.body, probed.took))),
    }
}

fn is_message(body: &[u8]) -> bool {
    serde_json::from_slice::<Value>(body).is_ok_and(|value| value == json!({ "message": "Hello, World!" }))
}

fn wrong(body: &[u8], took: Duration) -> String {
    let start = String::from_utf8_lossy(&body[..body.len().min(60)]).escape_debug().to_string();
    format!("a wrong answer after {took:?}: {} bytes, '{start}'", body.len())
}

#[cfg(test)]
mod tests {
    use super::is_message;

    #[test]
    fn a_message_is_compared_as_a_value() {
        assert!(is_message(b"{\"message\":\"Hello, World!\"}\n"));
        assert!(is_message(b"{ \"message\" : \"Hello, World!\" }"));
        assert!(!is_message(b"{\"message\":\"Hello\"}"));
        assert!(!is_message(b"Hello, World!"));
    }
}
