//! The routes that the page offers to try, and the code of their handlers.

use super::Demo;

/// A route on the page.
pub(super) struct Example {
    pub(super) route: Demo,
    /// Query of the request that the page suggests.
    pub(super) query: &'static str,
    pub(super) about: &'static str,
    /// Name of the function that answers.
    pub(super) handler: &'static str,
    pub(super) input: Input,
}

/// What a request has besides its path.
pub(super) enum Input {
    Nothing,
    Text,
    File,
    Socket,
}

pub(super) static EXAMPLES: [Example; 14] = [
    plain(Demo::Health, "", "health", "OK: the smallest response"),
    plain(Demo::Json, "", "json", "a value as JSON, serialized for each request"),
    plain(Demo::Headers, "", "headers", "the header fields of your request, unchanged"),
    plain(Demo::NoContent, "", "no_content", "204 without a body"),
    plain(Demo::Bytes { n: None }, "?n=100", "bytes", "n bytes from memory, at most 1 MiB"),
    plain(
        Demo::Slow { ms: None, us: None, accepted: None },
        "?ms=1000",
        "slow",
        "a handler that blocks its thread. Other requests do not wait",
    ),
    plain(Demo::Wait { ms: None }, "?ms=1000", "wait", "a handler that waits with weftwork::sleep"),
    plain(Demo::Later { ms: None }, "?ms=1000", "later", "a response that is sent later, without a thread"),
    with(Input::Text, Demo::Echo, "echo", "the body of your request. A large body is sent back in pieces"),
    plain(Demo::Events, "", "events", "a clock as server-sent events, with one thread for all clients"),
    with(Input::Socket, Demo::Socket, "socket", "a WebSocket that echoes each message"),
    with(
        Input::File,
        Demo::Upload,
        "count",
        "a form with files, or any body. The bytes are counted and dropped",
    ),
    plain(
        Demo::File { path: String::new() },
        "words.txt",
        "files",
        "sample files with entity tags and range requests",
    ),
    plain(Demo::Ready, "", "ready", "200, or 503 from the moment on at which the server is told to stop"),
];

const fn plain(route: Demo, query: &'static str, handler: &'static str, about: &'static str) -> Example {
    Example { route, query, about, handler, input: Input::Nothing }
}

const fn with(input: Input, route: Demo, handler: &'static str, about: &'static str) -> Example {
    Example { route, query: "", about, handler, input }
}

/// Files that the handlers are in.
const SOURCES: [&str; 3] =
    [include_str!("../demo.rs"), include_str!("live.rs"), include_str!("../probes.rs")];

/// Returns the code of a function as it is in the source, without its indentation.
pub(super) fn source_of(function: &str) -> String {
    let start = format!("fn {function}(");
    let found = SOURCES.iter().find_map(|source| {
        let mut lines = source.lines().skip_while(|line| !line.contains(&start));
        let indent = lines.clone().next().map(|line| line.len() - line.trim_start().len())?;
        let mut code = String::new();
        for line in lines.by_ref() {
            code.push_str(line.get(indent..).unwrap_or_default());
            code.push('\n');
            if line.len() == indent + 1 && line.ends_with('}') {
                break;
            }
        }
        Some(code)
    });
    found.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_handler_is_found_as_a_whole() {
        for Example { handler, .. } in &EXAMPLES {
            let code = source_of(handler);
            let first = code.lines().next().unwrap_or_default();
            assert!(first.contains(&format!("fn {handler}(")), "{handler}: {code}");
            assert!(code.ends_with("\n}\n") && code.matches("\nfn ").count() == 0, "{handler}: {code}");
            let count = |c| code.matches(c).count();
            assert_eq!(count('{'), count('}'), "{handler}: {code}");
        }
    }
}
