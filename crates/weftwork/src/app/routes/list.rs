//! A printable list of routes.

use std::borrow::Cow;
use std::fmt;

use super::method_filter::MethodFilter;

/// A route as it was declared.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Methods of the route. A nest has no methods of its own.
    pub methods: MethodFilter,
    /// Pattern of the route, relative to its enum.
    pub pattern: &'static str,
    /// Name of the variant.
    pub name: &'static str,
    /// Routes of the nest, if the route is a nest.
    pub nested: &'static [Route],
}

/// The routes of a site, one per line: methods, pattern and variant.
#[derive(Clone, Debug)]
pub struct RouteList(Vec<[String; 3]>);

impl RouteList {
    pub(super) fn of(routes: &[Route]) -> RouteList {
        let mut lines = Vec::new();
        gather(routes, "", "", &mut lines);
        RouteList(lines)
    }

    /// Returns the methods, the pattern and the variant of each route. Nests are expanded.
    pub fn lines(&self) -> impl Iterator<Item = [&str; 3]> {
        self.0.iter().map(|line| line.each_ref().map(String::as_str))
    }
}

fn gather(routes: &[Route], prefix: &str, owner: &str, into: &mut Vec<[String; 3]>) {
    for route in routes {
        let name = format!("{owner}{}", route.name);
        let pattern = joined(prefix, route.pattern);
        if route.nested.is_empty() {
            let methods = match route.methods {
                MethodFilter::ANY => "any".to_owned(),
                methods => methods.to_string(),
            };
            into.push([methods, pattern, name]);
        } else {
            gather(route.nested, &pattern, &format!("{name}::"), into);
        }
    }
}

/// Joins a prefix and a pattern. The pattern `/` of a nest is the prefix itself.
fn joined(prefix: &str, pattern: &str) -> String {
    match pattern.strip_prefix('/') {
        Some(rest) if !prefix.is_empty() && (rest.is_empty() || rest.starts_with('?')) => {
            format!("{prefix}{rest}")
        }
        _ => format!("{prefix}{pattern}"),
    }
}

/// Returns the pattern of a route without its query.
pub fn path_pattern(routes: &'static [Route], number: u16) -> Cow<'static, str> {
    let pattern = routes.get(usize::from(number)).map_or("", |route| route.pattern);
    Cow::Borrowed(pattern.split_once('?').map_or(pattern, |(path, _)| path))
}

/// Returns the pattern of a route in a nest. `prefix` is the pattern of the nest.
pub fn nested_pattern(prefix: &str, inner: Option<Cow<'static, str>>) -> Option<Cow<'static, str>> {
    inner.map(|inner| Cow::Owned(joined(prefix, &inner)))
}

impl fmt::Display for RouteList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| self.0.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let (methods, patterns) = (width(0), width(1));
        for [method, pattern, name] in &self.0 {
            writeln!(f, "{method:methods$}  {pattern:patterns$}  {name}")?;
        }
        Ok(())
    }
}
