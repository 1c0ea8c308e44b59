//! Builds the search trees of a router: one `matchit` tree per method.

use std::ops::Range;

use http::Method;

use super::error::{PatternFault, RouteError};
use super::pattern::{Pattern, is_under, join};
use super::{Entry, Router};
use crate::message::RequiredState;

/// Maps paths to the indexes of routes.
type Tree = matchit::Router<usize>;

/// The routes that answer one method.
#[derive(Default)]
struct MethodTree {
    tree: Tree,
    /// All routes of the tree, the more literal first, if one has a capture with a suffix. Otherwise empty.
    /// `matchit` does not backtrack from such a capture: with `/{repo}.git/info` and `/{repo}/{page}`, it finds
    /// no route for `/a.git/log`, or a less literal one.
    suffix_routes: Vec<usize>,
}

/// The data that a look-up searches. Routes are referred to by their index in the router.
pub(super) struct RouteTable {
    /// One tree per method, which includes the routes for any method.
    trees: Vec<(Method, MethodTree)>,
    /// Routes for any method.
    any: MethodTree,
    /// `None` if the path of the route is malformed.
    pub(super) patterns: Vec<Option<Pattern>>,
    /// Indexes of the routes, the more literal first. Among equals, the route for fewer methods comes first.
    pub(super) order: Vec<usize>,
    /// Prefixes of mounts without a final slash, and the indexes of the mounts. Longer prefixes come first.
    mounts: Vec<(String, usize)>,
    pub(super) errors: Vec<RouteError>,
    /// States that handlers take and this router does not provide. A router around it may.
    pub(super) needs: Vec<RequiredState>,
}

/// A route that matches a path, and the ranges of its captures.
pub(super) struct Found {
    pub(super) route: usize,
    pub(super) captures: Vec<Range<usize>>,
}

impl RouteTable {
    pub(super) fn new(router: &Router) -> RouteTable {
        let mut table = RouteTable {
            trees: Vec::new(),
            any: MethodTree::default(),
            patterns: Vec::new(),
            order: (0..router.routes.len()).collect(),
            mounts: Vec::new(),
            errors: router.found_errors.clone(),
            needs: Vec::new(),
        };
        for route in &router.routes {
            let pattern =
                Pattern::parse(&route.path).map_err(|why| table.add_pattern_error(&route.path, why)).ok();
            table.patterns.push(pattern);
            if route.method == Some(Method::CONNECT) {
                table.errors.push(RouteError::Connect { path: route.path.clone() });
            }
        }
        table.order.sort_by_cached_key(|route| {
            (
                table.patterns[*route].as_ref().map(|pattern| pattern.rank.clone()),
                method_rank(router.routes[*route].method.as_ref()),
            )
        });
        table.build_trees(&router.routes);
        table.add_mounts(router);
        table.check_handlers(router);
        table.collect_required_states(router);
        table
    }

    fn add_pattern_error(&mut self, path: &str, why: PatternFault) {
        self.errors.push(RouteError::Pattern { path: path.to_owned(), why });
    }

    fn build_trees(&mut self, routes: &[Entry]) {
        let mut methods: Vec<Method> = Vec::new();
        for method in routes.iter().filter_map(|route| route.method.clone()) {
            if method == Method::GET && !methods.contains(&Method::HEAD) {
                methods.push(Method::HEAD);
            }
            if !methods.contains(&method) {
                methods.push(method);
            }
        }
        for method in methods {
            let tree = self.tree(routes, Some(&method));
            self.trees.push((method, tree));
        }
        self.any = self.tree(routes, None);
    }

    /// Routes for this method are inserted first, so that they win over routes for any method with the same
    /// path.
    fn tree(&mut self, routes: &[Entry], method: Option<&Method>) -> MethodTree {
        let groups: &[Option<&Method>] = match method {
            None => &[None],
            Some(&Method::HEAD) => &[method, Some(&Method::GET), None],
            Some(_) => &[method, None],
        };
        let (mut tree, mut inserted) = (Tree::new(), Vec::new());
        for group in groups {
            for (number, _) in routes.iter().enumerate().filter(|(_, route)| route.method.as_ref() == *group)
            {
                if let Err(error) = self.insert(number, routes, &mut tree, &mut inserted)
                    && !self.errors.contains(&error)
                {
                    self.errors.push(error);
                }
            }
        }
        let has_suffix = |route: &usize| self.patterns[*route].as_ref().is_some_and(Pattern::has_suffix);
        let is_needed = inserted.iter().any(has_suffix);
        let in_order = self.order.iter().copied().filter(|route| is_needed && inserted.contains(route));
        MethodTree { tree, suffix_routes: in_order.collect() }
    }

    fn insert(
        &self,
        number: usize,
        routes: &[Entry],
        tree: &mut Tree,
        inserted: &mut Vec<usize>,
    ) -> Result<(), RouteError> {
        let (route, Some(pattern)) = (&routes[number], &self.patterns[number]) else { return Ok(()) };
        let is_like = |known: &Pattern| known.is_like(pattern);
        let earlier = inserted.iter().find(|known| self.patterns[**known].as_ref().is_some_and(is_like));
        match earlier.map(|known| &routes[*known]) {
            Some(known) if known.method == route.method => return Err(conflict(route, known.path.clone())),
            Some(_) => return Ok(()),
            None => inserted.push(number),
        }
        tree.insert(pattern.text.clone(), number).map_err(|error| match error {
            matchit::InsertError::Conflict { with } => conflict(route, with),
            _ => RouteError::Pattern { path: route.path.clone(), why: PatternFault::Braces },
        })
    }

    fn add_mounts(&mut self, router: &Router) {
        for (number, mount) in router.mounts.iter().enumerate() {
            match Pattern::parse(&mount.prefix) {
                Err(why) => self.add_pattern_error(&mount.prefix, why),
                Ok(pattern) if !pattern.names.is_empty() => {
                    self.add_pattern_error(&mount.prefix, PatternFault::CaptureInMount);
                }
                Ok(pattern) => self.mounts.push((pattern.text.trim_end_matches('/').to_owned(), number)),
            }
            if let Err(error) = mount.handler.check() {
                let (path, why) = (mount.prefix.clone(), error.to_string());
                self.errors.push(RouteError::Mounted { path, why });
            }
        }
        // The sort is stable, so equal prefixes stay in the order of the mounts.
        self.mounts.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
    }

    /// Checks the handlers of routes and the fallback, which may be routers too.
    fn check_handlers(&mut self, router: &Router) {
        let routes = router.routes.iter().map(|route| (&*route.path, &route.handler));
        for (path, handler) in routes.chain(router.fallback.iter().map(|handler| ("", handler))) {
            if let Err(error) = handler.check() {
                let (path, why) = (location(path, ""), error.to_string());
                self.errors.push(RouteError::Inner { path, why });
            }
        }
    }

    fn collect_required_states(&mut self, router: &Router) {
        let routes = router.routes.iter().map(|route| (&*route.path, &route.handler, &route.states[..]));
        let mounts = router.mounts.iter().map(|mount| (&*mount.prefix, &mount.handler, &mount.states[..]));
        let fallback = router.fallback.iter().map(|handler| ("", handler, &[][..]));
        for (path, handler, states) in routes.chain(mounts).chain(fallback) {
            for mut need in handler.needs() {
                if states.iter().chain(&router.states).any(|state| need.is_met_by(state)) {
                    continue;
                }
                need.path = location(path, &need.path);
                let (path, state) = (need.path.clone(), need.state);
                self.errors.push(RouteError::MissingState { path, state });
                self.needs.push(need);
            }
        }
    }

    /// Returns the most literal route that matches `path`.
    pub(super) fn find(&self, method: &Method, path: &str) -> Option<Found> {
        let known = self.trees.iter().find(|(known, _)| known == method);
        let MethodTree { tree, suffix_routes } = known.map_or(&self.any, |(_, tree)| tree);
        let found = tree.at(path).ok();
        let rank = |route: usize| self.patterns[route].as_ref().map(|pattern| &pattern.rank);
        let is_tried_before =
            |route: &usize| found.as_ref().is_none_or(|found| rank(*route) < rank(*found.value));
        let mut before = suffix_routes.iter().copied().take_while(is_tried_before);
        let captured = before.find_map(|route| {
            let captures = self.patterns[route].as_ref()?.captures(path)?;
            Some(Found { route, captures })
        });
        captured.or_else(|| {
            let found = found.as_ref()?;
            // `matchit` returns slices of `path`, so their offset is the distance of the pointers.
            let range_of = |value: &str| {
                let start = value.as_ptr().addr() - path.as_ptr().addr();
                start..start + value.len()
            };
            let captures = found.params.iter().map(|(_, value)| range_of(value)).collect();
            Some(Found { route: *found.value, captures })
        })
    }

    /// Returns the mounts that match `path`, in the order in which they are called.
    pub(super) fn mounts(&self, path: &str) -> impl Iterator<Item = (&str, usize)> {
        let beneath = self.mounts.iter().filter(move |(prefix, _)| is_under(path, prefix));
        beneath.map(|(prefix, number)| (prefix.as_str(), *number))
    }
}

fn conflict(route: &Entry, with: String) -> RouteError {
    let method = route.method.as_ref().map_or("any", Method::as_str).to_owned();
    RouteError::Conflict { method, path: route.path.clone(), with }
}

/// Rank of a method among routes with the same path. HEAD comes before GET, which answers HEAD too. Any method
/// comes last.
fn method_rank(method: Option<&Method>) -> u8 {
    match method {
        Some(&Method::HEAD) => 0,
        Some(_) => 1,
        None => 2,
    }
}

/// Returns the location of a handler for an error message: `path`, then `inner` within it. The fallback has no
/// path.
fn location(path: &str, inner: &str) -> String {
    const FALLBACK: &str = "the fallback";
    match (path, inner) {
        ("", "") => FALLBACK.to_owned(),
        ("", inner) => format!("{inner} of {FALLBACK}"),
        (path, "") => path.to_owned(),
        (path, inner) if inner.starts_with('/') => join(path, inner),
        (path, inner) => format!("{inner} of {path}"),
    }
}
