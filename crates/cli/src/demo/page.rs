//! The page at `/`: the measurement, the charts, routes to try, counters and limits.

use std::fmt::{self, Display, Write};

use weftwork::http::{HeaderValue, header};
use weftwork::{Response, Routes, ServerStatus, escaped};

use super::examples::{EXAMPLES, Example, Input, source_of};

const STYLE: &str = include_str!("demo.css");
const SCRIPT: &str = include_str!("demo.js");
const TOP: &str = include_str!("top.html");

/// Only files of this server are loaded.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                      base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// Returns the page for the current state of the server.
pub(super) fn page(status: &ServerStatus) -> Response {
    let mut html = String::with_capacity(48 << 10);
    // Writing to a String does not fail.
    let _ = write_page(&mut html, status);
    Response::html(html)
        .with_header(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY))
        .with_header(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))
}

pub(super) fn script() -> Response {
    Response::text(SCRIPT).with_content_type(HeaderValue::from_static("text/javascript; charset=utf-8"))
}

pub(super) fn style() -> Response {
    Response::text(STYLE).with_content_type(HeaderValue::from_static("text/css; charset=utf-8"))
}

fn write_page(out: &mut String, status: &ServerStatus) -> fmt::Result {
    out.push_str(TOP);
    write_examples(out)?;
    write_counters(out, status)?;
    write_limits(out, status)?;
    out.push_str(
        "</main>\n<script src=\"/dashboard?script\"></script>\n<script src=\"/demo.js\"></script>\n</html>\n",
    );
    Ok(())
}

fn write_examples(out: &mut String) -> fmt::Result {
    out.push_str(
        "<section id=\"routes\"><h2>Try the routes</h2>\n\
         <p>Each of them is a plain function. Open a route to send a request, and to see its code.</p>\n\
         <div class=\"routes\">\n",
    );
    for example in &EXAMPLES {
        write_example(out, example)?;
    }
    out.push_str(
        "</div></section>\n<section><h2>Requests of this page</h2>\n<div class=\"wide\"><table>\
         <thead id=\"log-head\" hidden><tr><th>time<th>request<th>status<th class=\"number\">bytes\
         <th class=\"number\">duration</thead>\n<tbody id=\"log\"></tbody></table></div>\n\
         <p id=\"log-none\">Requests that you send above are listed here.</p></section>\n",
    );
    Ok(())
}

fn write_example(out: &mut String, example: &Example) -> fmt::Result {
    let Example { route, query, about, handler, input } = example;
    let (path, method) = (route.href(), route.method());
    let kind = match input {
        Input::Nothing => "none",
        Input::Text => "text",
        Input::File => "file",
        Input::Socket => "socket",
    };
    write!(
        out,
        "<details><summary><span class=\"method\">{method}</span><code>{path}</code>\
         <span class=\"about\">{about}</span></summary>\n<div class=\"try\">\n\
         <form data-method=\"{method}\" data-kind=\"{kind}\"><label>Path \
         <input name=\"path\" value=\"{path}{query}\" spellcheck=\"false\"></label>"
    )?;
    match input {
        Input::Nothing => {}
        Input::Text | Input::Socket => {
            out.push_str("<label>Body <input name=\"text\" value=\"hello\"></label>");
        }
        Input::File => out.push_str("<label>File <input name=\"file\" type=\"file\"></label>"),
    }
    let code = source_of(handler);
    writeln!(
        out,
        "<button>Send</button></form>\n<div class=\"block\" hidden><h4>Response</h4><pre class=\"answer\"></pre></div>\n\
         <div class=\"block\"><h4>On the command line</h4><pre class=\"curl\">curl {path}{query}</pre>\
         <button type=\"button\" data-copy>Copy</button></div>\n\
         <div class=\"block\"><h4>The handler</h4><pre>{}</pre>\
         <button type=\"button\" data-copy>Copy</button></div>\n</div></details>",
        escaped(&code)
    )
}

fn write_counters(out: &mut String, status: &ServerStatus) -> fmt::Result {
    let engine = status.engine();
    let counts = status.stats();
    let facts: [(&str, &dyn Display); 15] = [
        ("version", &env!("CARGO_PKG_VERSION")),
        ("engine", &engine),
        ("event loops", &engine.loops()),
        ("threads that serve", &status.threads()),
        ("connections open", &counts.connections),
        ("connections accepted", &counts.accepted),
        ("requests", &counts.requests),
        ("loops handed over while a handler blocked", &counts.loops_retaken),
        ("loops handed over before one that would", &counts.loops_handed_off),
        ("requests that waited for a thread", &counts.queued),
        ("requests that got 503", &counts.shed),
        ("malformed requests", &counts.faults),
        ("clients that were too slow", &counts.timeouts),
        ("handlers that panicked", &counts.panics),
        ("errors of accept", &counts.accept_errors),
    ];
    out.push_str(
        "<section><h2>Counters</h2>\n<p>Since the start of the server, at the time of this page.</p>\n<dl>\n",
    );
    for (name, value) in facts {
        writeln!(out, "<div><dt>{name}<dd>{value}</div>")?;
    }
    out.push_str("</dl></section>\n");
    Ok(())
}

fn write_limits(out: &mut String, status: &ServerStatus) -> fmt::Result {
    out.push_str(
        "<section><h2>Limits</h2>\n<p>Each limit has a flag (<code>--head-bytes-max 64KiB</code>), a variable \
         (<code>WEFT_HEAD_BYTES_MAX</code>) and a method of <code>Settings</code>.</p>\n\
         <details><summary><span class=\"method\">ALL</span><code>limits</code>\
         <span class=\"about\">with their values, and where these come from</span></summary>\n\
         <div class=\"wide\"><table>\n",
    );
    for setting in status.settings().list() {
        let (name, source) = (setting.name, setting.source);
        let (value, about) = (escaped(&setting.value), escaped(setting.about));
        writeln!(out, "<tr><td><code>{name}</code><td class=\"value\">{value}<td>{source}<td>{about}")?;
    }
    out.push_str("</table></div></details></section>\n");
    Ok(())
}
