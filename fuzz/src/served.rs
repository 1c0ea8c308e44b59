//! Compares the requests that a handler sees, and the responses that a client sees. The connection core drives the
//! codec here, as in a server.

use std::sync::{Arc, Mutex};

use weftwork::{Request, Response, TestClient};

use crate::{Transcript, uneven};

/// A request as a handler saw it: method, target and body.
type Seen = (String, Vec<u8>, Vec<u8>);

thread_local! {
    static SITE: Site = Site::new();
}

/// A handler that reads and returns every body, and notes the requests.
struct Site {
    client: TestClient,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Site {
    fn new() -> Site {
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let notes = seen.clone();
        let client = TestClient::new(move |req: &mut Request<'_>| -> weftwork::Result<Response> {
            let body = req.body().bytes()?;
            let (method, target) = (req.method().to_string(), req.target().as_bytes().to_vec());
            notes.lock().unwrap().push((method, target, body.to_vec()));
            Ok(Response::bytes(body))
        });
        Site { client, seen }
    }

    /// Sends `bytes` in pieces whose lengths `next_len` gives, then ends. Returns the requests that the handler saw,
    /// and the responses.
    fn serve(&self, bytes: &[u8], mut next_len: impl FnMut() -> usize) -> (Vec<Seen>, Vec<u8>) {
        let mut connection = self.client.connect();
        let (mut pieces, mut rest) = (Vec::new(), bytes);
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(next_len().clamp(1, rest.len()));
            pieces.push(piece);
            rest = behind;
        }
        connection.send_pieces(pieces);
        connection.end();
        assert!(connection.is_closed(), "nothing is open behind the end");
        let answers = without_chance(&connection.received());
        (std::mem::take(&mut self.seen.lock().unwrap()), answers)
    }
}

/// Checks that handlers see the complete requests of `transcript`, in order, and nothing else. Checks also that the
/// responses are the same, no matter how the bytes arrive.
pub fn as_read(bytes: &[u8], transcript: &Transcript) {
    SITE.with(|site| {
        let whole = site.serve(bytes, || bytes.len());
        assert_eq!(site.serve(bytes, || 1), whole, "byte by byte");
        assert_eq!(site.serve(bytes, uneven(bytes)), whole, "in uneven pieces");
        // A request for a secured connection gets 421, and the connection ends, because no client here is a trusted
        // gateway.
        let directed = transcript.requests.iter().take_while(|request| !is_https(&request.target));
        let read: Vec<Seen> = directed
            .filter(|request| request.end.is_some())
            .map(|request| (request.method.clone(), request.target.clone(), request.body.clone()))
            .collect();
        assert_eq!(whole.0, read, "the handler sees what was read");
    });
}

fn is_https(target: &[u8]) -> bool {
    target.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"https:"))
}

/// Removes the time of day, and the 100 that is sent only if the body has not arrived.
fn without_chance(answers: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(answers).replace("HTTP/1.1 100 Continue\r\n\r\n", "");
    let lines = text.split("\r\n").map(|line| if line.starts_with("Date: ") { "Date" } else { line });
    lines.collect::<Vec<_>>().join("\r\n").into_bytes()
}
