//! The page at `/`: the state of the server, its limits, and its routes.

use std::fmt::{self, Display, Write};

use weftwork::http::Method;
use weftwork::{Response, Routes, ServerStatus, escaped};

use super::ROUTES;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("live.js");

/// Section that the script fills in. Each result is `ok` once the script has seen it work.
const LIVE: &str = include_str!("live.html");

/// Returns the page for the current state of the server.
pub(super) fn page(status: &ServerStatus) -> Response {
    let mut html = String::with_capacity(16 << 10);
    // Writing to a String does not fail.
    let _ = write_page(&mut html, status);
    Response::html(html)
}

fn write_page(out: &mut String, status: &ServerStatus) -> fmt::Result {
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>Weftwork demo</title>\n\
         <style>\n{STYLE}</style>\n<main>\n<header><h1>Weftwork</h1>\
         <p>An HTTP server for plain blocking handlers. A blocking handler made this page.</header>\n"
    )?;
    write_now(out, status)?;
    write_routes(out)?;
    out.push_str(LIVE);
    write_limits(out, status)?;
    writeln!(out, "</main>\n<script>\n{SCRIPT}</script>\n</html>")
}

fn write_now(out: &mut String, status: &ServerStatus) -> fmt::Result {
    let engine = status.engine();
    let counts = status.stats();
    let facts: [(&str, &dyn Display); 15] = [
        ("version", &env!("CARGO_PKG_VERSION")),
        ("engine", &engine),
        ("loops", &engine.loops()),
        ("threads", &status.threads()),
        ("open connections", &counts.connections),
        ("accepted connections", &counts.accepted),
        ("requests", &counts.requests),
        ("loops handed off while a handler blocked", &counts.loops_retaken),
        ("loops handed off before a handler ran", &counts.loops_handed_off),
        ("requests that waited for a thread", &counts.queued),
        ("requests rejected (503)", &counts.shed),
        ("malformed requests", &counts.faults),
        ("timeouts", &counts.timeouts),
        ("panics", &counts.panics),
        ("accept errors", &counts.accept_errors),
    ];
    out.push_str("<section><h2>Now</h2>\n<dl>\n");
    for (name, value) in facts {
        writeln!(out, "<div><dt>{name}<dd>{value}</div>")?;
    }
    out.push_str("</dl></section>\n");
    Ok(())
}

fn write_routes(out: &mut String) -> fmt::Result {
    out.push_str("<section><h2>Routes</h2>\n<table>\n");
    for (route, about) in &ROUTES {
        let path = route.href();
        match route.method() {
            Method::POST => write!(out, "<tr><td>POST<td><code>{path}</code>")?,
            _ => write!(out, "<tr><td>GET, HEAD<td><a href=\"{path}\"><code>{path}</code></a>")?,
        }
        writeln!(out, "<td>{about}")?;
    }
    out.push_str(
        "</table>\n<div class=\"forms\">\n\
         <form action=\"/slow\"><label>/slow: block for \
         <input name=\"ms\" type=\"number\" min=\"0\" max=\"60000\" value=\"1000\"> ms</label> <button>Get</button></form>\n\
         <form action=\"/echo\" method=\"post\" enctype=\"text/plain\"><label>/echo: \
         <input name=\"text\" value=\"hello\"></label> <button>Post</button></form>\n</div></section>\n",
    );
    Ok(())
}

fn write_limits(out: &mut String, status: &ServerStatus) -> fmt::Result {
    out.push_str(
        "<section><h2>Limits</h2>\n<p>Each limit has a flag (<code>--head-bytes-max 64KiB</code>), a variable \
         (<code>WEFT_HEAD_BYTES_MAX</code>) and a method of <code>Settings</code>.\n<table>\n",
    );
    for setting in status.settings().list() {
        let (name, source) = (setting.name, setting.source);
        let (value, about) = (escaped(&setting.value), escaped(setting.about));
        writeln!(out, "<tr><td><code>{name}</code><td class=\"value\">{value}<td>{source}<td>{about}")?;
    }
    out.push_str("</table></section>\n");
    Ok(())
}
