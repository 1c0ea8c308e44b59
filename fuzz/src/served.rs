//! Compares what a handler sees of a stream of bytes, and a client of its responses. The codec is not alone
//! here: it is driven by the connection core, as in a server.

use std::sync::{Arc, Mutex};

use weftwork::{Request, Response, TestClient};

use crate::{Transcript, uneven};

/// What a handler saw of a request: method, target and body.
type Seen = (String, Vec<u8>, Vec<u8>);

thread_local! {
    static SITE: Site = Site::new();
}

/// A handler that reads and returns every body, and notes what it saw.
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

    /// Sends `bytes` in pieces whose lengths `next_len` gives, then ends. What was seen, and what came back.
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

/// Insists that handlers see the requests of `transcript` that are whole, in order, and nothing else; and that
/// the answers are the same however the bytes come.
pub fn as_read(bytes: &[u8], transcript: &Transcript) {
    SITE.with(|site| {
        let whole = site.serve(bytes, || bytes.len());
        assert_eq!(site.serve(bytes, || 1), whole, "byte by byte");
        assert_eq!(site.serve(bytes, uneven(bytes)), whole, "in uneven pieces");
        // What is for secured connections gets 421, and an end: nobody here is a gateway that is trusted to have one.
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

/// The time of day, and leave to go on that is given only where the body has not come yet.
fn without_chance(answers: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(answers).replace("HTTP/1.1 100 Continue\r\n\r\n", "");
    let lines = text.split("\r\n").map(|line| if line.starts_with("Date: ") { "Date" } else { line });
    lines.collect::<Vec<_>>().join("\r\n").into_bytes()
}
