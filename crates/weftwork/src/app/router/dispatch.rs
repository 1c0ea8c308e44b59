//! Dispatches a request: to the most literal route, then to less literal routes, to mounts, and to the
//! fallback.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use http::{Method, StatusCode};

use super::allowed::Allowed;
use super::build::{Found, RouteTable};
use super::pattern::{Pattern, is_under, join};
use super::{Entry, Mount, RouteError, Router};
use crate::app::middleware::preflighted;
use crate::app::routes::MethodFilter;
use crate::app::routes::derived::{nested_blocking, route_id};
use crate::error::{Error, Result};
use crate::message::{
    Blocking, Handler, IntoResponse, Request, RequestLine, RequiredState, Response, Shared,
};

/// Seed of the numbers by which engines learn routes.
const SEED: u64 = 0x8e2f_6a1b_93c4_d705;

impl Handler for Router {
    fn call(&self, req: &mut Request<'_>) -> Response {
        let table = self.table();
        if let Err(error) = self.check() {
            return error.into_response();
        }
        match table.find(req.method(), req.path()) {
            Some(found) => {
                let first = found.route;
                let response = self.call_route(found, req);
                if !response.is_declined() {
                    return response;
                }
                self.call_next(table, Some((first, response)), req)
            }
            None => self.call_next(table, None, req),
        }
    }

    fn blocking(&self, line: &RequestLine<'_>) -> Blocking {
        let table = self.table();
        if let Some(found) = table.find(line.method(), line.path()) {
            return match self.routes[found.route].handler.blocking(line) {
                Blocking::Learn { .. } => Blocking::Learn { route: route_id(SEED, found.route as u64) },
                known => known,
            };
        }
        match table.mounts(line.path()).next() {
            Some((prefix, number)) => {
                let mount = &self.mounts[number];
                let line = if mount.strips { line.without_prefix(prefix.len()) } else { *line };
                nested_blocking(route_id(!SEED, number as u64), mount.handler.blocking(&line))
            }
            None => self.fallback.as_ref().map_or(Blocking::Never, |handler| handler.blocking(line)),
        }
    }

    fn reads_ahead(&self, line: &RequestLine<'_>) -> bool {
        let table = self.table();
        if let Some(found) = table.find(line.method(), line.path()) {
            return self.routes[found.route].handler.reads_ahead(line);
        }
        match table.mounts(line.path()).next() {
            Some((prefix, number)) => {
                let mount = &self.mounts[number];
                let line = if mount.strips { line.without_prefix(prefix.len()) } else { *line };
                mount.handler.reads_ahead(&line)
            }
            None => self.fallback.as_ref().is_none_or(|handler| handler.reads_ahead(line)),
        }
    }

    fn pattern(&self, line: &RequestLine<'_>) -> Option<Cow<'_, str>> {
        let table = self.table();
        if let Some(found) = table.find(line.method(), line.path()) {
            return Some(Cow::Borrowed(&self.routes[found.route].path));
        }
        let mounted = table.mounts(line.path()).find_map(|(prefix, number)| {
            let mount = &self.mounts[number];
            if !mount.strips {
                return mount.handler.pattern(line);
            }
            let inner = mount.handler.pattern(&line.without_prefix(prefix.len()))?;
            Some(Cow::Owned(whole_pattern(prefix, &inner)))
        });
        mounted.or_else(|| self.fallback.as_ref()?.pattern(line))
    }

    fn normal_path(&self, line: &RequestLine<'_>) -> Option<String> {
        let table = self.table();
        if let Some(found) = table.find(line.method(), line.path()) {
            let normal = self.routes[found.route].handler.normal_path(line)?;
            let literal = table.patterns[found.route].as_ref().map_or("", Pattern::literal_prefix);
            return Some(normal).filter(|normal| is_under(normal, literal));
        }
        match table.mounts(line.path()).next() {
            Some((prefix, number)) => {
                let mount = &self.mounts[number];
                if !mount.strips {
                    let normal = mount.handler.normal_path(line)?;
                    return Some(normal).filter(|normal| is_under(normal, prefix));
                }
                let inner = mount.handler.normal_path(&line.without_prefix(prefix.len()))?;
                Some(format!("{prefix}{inner}"))
            }
            None => self.fallback.as_ref()?.normal_path(line),
        }
    }

    /// Checks that the paths are valid, that no routes conflict, and that mounted handlers have no errors.
    /// Missing states are checked when a server starts, because a router around this one may provide them.
    fn check(&self) -> Result<()> {
        let mistakes = self.errors().iter().filter(|error| !matches!(error, RouteError::MissingState { .. }));
        let mistakes: Vec<String> = mistakes.map(ToString::to_string).collect();
        if mistakes.is_empty() { Ok(()) } else { Err(Error::usage(mistakes.join("; "))) }
    }

    fn needs(&self) -> Vec<RequiredState> {
        self.table().needs.clone()
    }
}

/// Declines with the fields that middleware added to the first 404. `Cors`, for example, lets a page read that
/// response.
fn decline_as(first: Option<&Response>) -> Response {
    let mut response = Response::decline();
    for (name, value) in first.map_or(&[][..], Response::header_lines) {
        response.append_header(name.clone(), value.clone());
    }
    response
}

/// Returns the pattern of a handler that is mounted at `prefix` and has the pattern `inner`. An empty `inner`
/// matches every path under the prefix.
pub(crate) fn whole_pattern(prefix: &str, inner: &str) -> String {
    join(prefix, if inner.is_empty() { "/{*rest}" } else { inner })
}

impl Router {
    /// Calls everything after the first route. Few requests get here.
    fn call_next(
        &self,
        table: &RouteTable,
        after: Option<(usize, Response)>,
        req: &mut Request<'_>,
    ) -> Response {
        let has_route = after.is_some();
        let has_fields = |response: &Response| !response.header_lines().is_empty();
        let mut declined = None;
        if let Some((first, response)) = after {
            declined = Some(response).filter(has_fields);
            // The tree returned the most literal route. Routes that are equally literal may come before it in
            // the order.
            for &route in table.order.iter().filter(|route| **route != first) {
                if let Some(captures) = self.match_route(table, route, req) {
                    let response = self.call_route(Found { route, captures }, req);
                    if !response.is_declined() {
                        return response;
                    }
                    declined = declined.or(Some(response).filter(has_fields));
                }
            }
        }
        // Computed only if needed, because most requests that get here are for files in a mount.
        let allowed = |req: &Request<'_>| {
            if has_route { Allowed::none() } else { self.allowed(table, req.path()) }
        };
        // A preflight belongs to the route that it asks about, even if a mount would answer it.
        if !has_route
            && let Some(method) = preflighted(req)
            && table.find(&method, req.path()).is_some()
        {
            return allowed(req).refuse(req);
        }
        let mounts: Vec<(usize, usize)> =
            table.mounts(req.path()).map(|(prefix, number)| (prefix.len(), number)).collect();
        for (prefix, number) in mounts {
            let mount = &self.mounts[number];
            // The fallback of a nested router replaces 404, not 405.
            if !mount.strips && !allowed(req).is_none() {
                continue;
            }
            let response = self.call_mount(mount, prefix, req);
            if !response.is_declined() {
                let tells =
                    response.status() == StatusCode::METHOD_NOT_ALLOWED || *req.method() == Method::OPTIONS;
                return if tells { allowed(req).join(response, req) } else { response };
            }
            declined = declined.or(Some(response).filter(has_fields));
        }
        let allowed = allowed(req);
        if !allowed.is_none() {
            return allowed.refuse(req);
        }
        match &self.fallback {
            Some(handler) => self.with_states(&[], req, |req| handler.call(req)),
            None => decline_as(declined.as_ref()),
        }
    }

    /// Returns the captures if `route` matches the request, without a look-up in a tree.
    fn match_route(&self, table: &RouteTable, route: usize, req: &Request<'_>) -> Option<Vec<Range<usize>>> {
        let filter = MethodFilter::of(req.method());
        let mine = match &self.routes[route].method {
            None => true,
            Some(method) => {
                method == req.method()
                    || (filter == MethodFilter::HEAD && MethodFilter::of(method) == MethodFilter::GET)
            }
        };
        table.patterns[route].as_ref().filter(|_| mine)?.captures(req.path())
    }

    fn allowed(&self, table: &RouteTable, path: &str) -> Allowed {
        let is_match = |number: &usize| {
            table.patterns[*number].as_ref().is_some_and(|known| known.captures(path).is_some())
        };
        let mut allowed = Allowed::none();
        for number in (0..self.routes.len()).filter(|number| path == "*" || is_match(number)) {
            allowed.add_route(self.routes[number].method.as_ref());
        }
        allowed
    }

    fn call_route(&self, found: Found, req: &mut Request<'_>) -> Response {
        let Entry { handler, states, .. } = &self.routes[found.route];
        if found.captures.is_empty() {
            return self.with_states(states, req, |req| handler.call(req));
        }
        let names = self.table().patterns[found.route].as_ref().map_or(&[][..], |pattern| &pattern.names);
        let route_match = req.route_match_mut();
        let (before, offset) = (route_match.captures.len(), route_match.prefix);
        let placed = found.captures.into_iter().map(|range| range.start + offset..range.end + offset);
        route_match.captures.extend(names.iter().map(Arc::clone).zip(placed));
        let response = self.with_states(states, req, |req| handler.call(req));
        req.route_match_mut().captures.truncate(before);
        response
    }

    fn call_mount(&self, mount: &Mount, prefix: usize, req: &mut Request<'_>) -> Response {
        if !mount.strips || prefix == 0 {
            return self.with_states(&mount.states, req, |req| mount.handler.call(req));
        }
        req.route_match_mut().prefix += prefix;
        let response = self.with_states(&mount.states, req, |req| mount.handler.call(req));
        req.route_match_mut().prefix -= prefix;
        response
    }

    /// Calls `call` with the states of this router, and with `inner`, the states of nested routers, which take
    /// precedence.
    fn with_states(
        &self,
        inner: &[Shared],
        req: &mut Request<'_>,
        call: impl FnOnce(&mut Request<'_>) -> Response,
    ) -> Response {
        if inner.is_empty() && self.states.is_empty() {
            return call(req);
        }
        let states = &mut req.route_match_mut().states;
        let before = states.len();
        states.extend(self.states.iter().chain(inner.iter().rev()).cloned());
        let response = call(req);
        req.route_match_mut().states.truncate(before);
        response
    }
}
