//! Which routes are there? For people to read.

use std::borrow::Cow;
use std::fmt;

use super::verbs::Verbs;

/// A route as it was declared.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Its methods; none of its own for a nest.
    pub methods: Verbs,
    /// Its pattern, relative to the enum it is in.
    pub pattern: &'static str,
    /// The variant.
    pub name: &'static str,
    /// The routes beneath it, if it is a nest.
    pub nested: &'static [Route],
}

/// The routes of a site, one a line: methods, pattern, variant.
#[derive(Clone, Debug)]
pub struct Listed(Vec<[String; 3]>);

impl Listed {
    pub(super) fn of(routes: &[Route]) -> Listed {
        let mut lines = Vec::new();
        gather(routes, "", "", &mut lines);
        Listed(lines)
    }

    /// Methods, pattern and variant of each, nests spelt out.
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
                Verbs::ANY => "any".to_owned(),
                methods => methods.to_string(),
            };
            into.push([methods, pattern, name]);
        } else {
            gather(route.nested, &pattern, &format!("{name}::"), into);
        }
    }
}

/// The `/` of a nest is the nest's own place.
fn joined(prefix: &str, pattern: &str) -> String {
    match pattern.strip_prefix('/') {
        Some(rest) if !prefix.is_empty() && (rest.is_empty() || rest.starts_with('?')) => {
            format!("{prefix}{rest}")
        }
        _ => format!("{prefix}{pattern}"),
    }
}

/// The pattern of a route as far as its path goes.
pub fn path_pattern(routes: &'static [Route], number: u16) -> Cow<'static, str> {
    let pattern = routes.get(usize::from(number)).map_or("", |route| route.pattern);
    Cow::Borrowed(pattern.split_once('?').map_or(pattern, |(path, _)| path))
}

/// The same in a nest, whose own pattern is `prefix`.
pub fn nested_pattern(prefix: &str, inner: Option<Cow<'static, str>>) -> Option<Cow<'static, str>> {
    inner.map(|inner| Cow::Owned(joined(prefix, &inner)))
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| self.0.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let (methods, patterns) = (width(0), width(1));
        for [method, pattern, name] in &self.0 {
            writeln!(f, "{method:methods$}  {pattern:patterns$}  {name}")?;
        }
        Ok(())
    }
}
