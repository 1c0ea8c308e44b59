//! Parses the pattern of a route: `/users/{id}/{*rest}?{q}&page-size={size}`.

use syn::ext::IdentExt;
use syn::{Error, Ident, LitStr, Result};

/// A segment of a path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Segment {
    /// Encoded as it is sent.
    Literal(String),
    Capture(String),
    Rest(String),
}

impl Segment {
    /// Returns the field that the segment fills.
    pub(crate) fn field(&self) -> Option<&str> {
        match self {
            Segment::Literal(_) => None,
            Segment::Capture(name) | Segment::Rest(name) => Some(name),
        }
    }
}

/// A query parameter and the field that it fills.
#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) field: String,
}

#[derive(Clone)]
pub(crate) struct Pattern {
    pub(crate) text: LitStr,
    pub(crate) segments: Vec<Segment>,
    pub(crate) parameters: Vec<Parameter>,
}

impl Pattern {
    pub(crate) fn parse(text: &LitStr) -> Result<Pattern> {
        let value = text.value();
        let fail = |why: String| Error::new(text.span(), why);
        let (path, query) = match value.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (value.as_str(), None),
        };
        let Some(relative) = path.strip_prefix('/') else {
            return Err(fail(format!("a route must start with a slash: write \"/{value}\"")));
        };
        let segments: Vec<&str> = relative.split('/').collect();
        let last = segments.len() - 1;
        let segments =
            segments.into_iter().enumerate().map(|(at, part)| segment(part, at == last).map_err(fail));
        let segments = segments.collect::<Result<Vec<_>>>()?;
        let parameters = query.map_or(Ok(Vec::new()), |query| {
            query.split('&').map(|part| parameter(part).map_err(fail)).collect::<Result<Vec<_>>>()
        })?;
        let pattern = Pattern { text: text.clone(), segments, parameters };
        pattern.check_duplicates()?;
        Ok(pattern)
    }

    /// Parses the prefix of a nest. `/` alone is not a prefix, and a query belongs to the nested routes.
    pub(crate) fn parse_prefix(text: &LitStr) -> Result<Pattern> {
        let pattern = Pattern::parse(text)?;
        let fail = |why: &str| Err(Error::new(text.span(), why));
        if !pattern.parameters.is_empty() {
            return fail("a prefix cannot have a query: add it to the nested routes");
        }
        match pattern.segments.last() {
            Some(Segment::Rest(_)) => {
                fail("a prefix cannot end in `{*rest}`: it leaves nothing for the nested routes")
            }
            Some(Segment::Literal(last)) if last.is_empty() && pattern.segments.len() == 1 => {
                fail("a nest needs a prefix, as in \"/admin\": routes at \"/\" belong in this enum")
            }
            Some(Segment::Literal(last)) if last.is_empty() => {
                fail("a prefix must not end in a slash: the nested routes start with one")
            }
            _ => Ok(pattern),
        }
    }

    /// Returns the fields that the path fills, in order.
    pub(crate) fn captures(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(Segment::field)
    }

    /// Returns every field that the pattern fills.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &str> {
        self.captures().chain(self.parameters.iter().map(|parameter| parameter.field.as_str()))
    }

    fn check_duplicates(&self) -> Result<()> {
        let fields: Vec<&str> = self.fields().collect();
        for (at, name) in fields.iter().enumerate() {
            if fields[..at].contains(name) {
                return Err(Error::new(
                    self.text.span(),
                    format!("`{{{name}}}` occurs twice: give one of them another name"),
                ));
            }
        }
        let names: Vec<&str> = self.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
        for (at, name) in names.iter().enumerate() {
            if names[..at].contains(name) {
                return Err(Error::new(
                    self.text.span(),
                    format!(
                        "the query parameter `{name}` occurs twice: a `Vec` field takes all of its values"
                    ),
                ));
            }
        }
        Ok(())
    }
}

fn segment(part: &str, last: bool) -> std::result::Result<Segment, String> {
    let inside = part.strip_prefix('{').and_then(|part| part.strip_suffix('}'));
    let Some(inside) = inside.filter(|inside| !inside.contains(['{', '}'])) else {
        return literal(part);
    };
    match inside.strip_prefix('*') {
        Some(name) if !last => Err(format!(
            "`{{*{name}}}` matches the rest of the path, so it must be the last segment: use `{{{name}}}` for one segment"
        )),
        Some(name) => field_name("*", name).map(Segment::Rest),
        None => field_name("", inside).map(Segment::Capture),
    }
}

fn literal(part: &str) -> std::result::Result<Segment, String> {
    if part.contains(['{', '}']) {
        return Err(format!(
            "a capture must be a whole segment, not a part of `{part}`: capture the segment and split it in the handler"
        ));
    }
    if part.starts_with([':', '*']) || (part.starts_with('<') && part.ends_with('>')) {
        return Err(format!(
            "`{part}` is plain text: write a capture as `{{name}}`, or `{{*name}}` for the rest"
        ));
    }
    if matches!(part, "." | "..") {
        return Err(format!("clients resolve `{part}` before they send it: remove it"));
    }
    if part.contains('#') {
        return Err("clients do not send the part after `#`: remove it".into());
    }
    let is_code = |rest: &str| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    if part.split('%').skip(1).any(|rest| !is_code(rest)) {
        return Err(format!(
            "`{part}` has a `%` without two hexadecimal digits: write the sign itself as `%25`"
        ));
    }
    Ok(Segment::Literal(encoded(part)))
}

/// Parses `{q}`, or `name={field}`.
fn parameter(part: &str) -> std::result::Result<Parameter, String> {
    let (name, value) = match part.split_once('=') {
        Some((name, value)) => (Some(name), value),
        None => (None, part),
    };
    let field = value.strip_prefix('{').and_then(|value| value.strip_suffix('}'));
    let Some(field) = field else {
        return Err(format!(
            "`{part}` is not a query parameter: write `{{q}}`, or `name={{field}}` if the names differ, separated by `&`"
        ));
    };
    let field = field_name("", field)?;
    let name = name.map_or_else(|| field.clone(), str::to_owned);
    if name.is_empty() || name.contains(['{', '}']) {
        return Err(format!(
            "`{part}` has no parameter name before `=`: write `{{{field}}}`, or `name={{{field}}}` if the names differ"
        ));
    }
    Ok(Parameter { name, field })
}

/// Parses the name of a field. `mark` is the text before the name.
fn field_name(mark: &str, name: &str) -> std::result::Result<String, String> {
    let word = name.strip_prefix("r#").unwrap_or(name);
    let ident = syn::parse_str::<Ident>(word).or_else(|_| syn::parse_str(&format!("r#{word}")));
    let Ok(ident) = ident else {
        return Err(format!(
            "`{{{mark}{name}}}` does not name a field: write the name of a field between the braces, as in `{{id}}`"
        ));
    };
    let field = ident.unraw().to_string();
    // syn ignores white space and comments.
    if field != word {
        return Err(format!("`{{{mark}{name}}}` is not a plain name: write `{{{mark}{field}}}`"));
    }
    Ok(field)
}

/// Encodes a literal as clients send it. Characters that RFC 3986 does not allow in a segment are
/// percent-encoded, except brackets, which browsers leave unencoded
/// (https://url.spec.whatwg.org/#path-percent-encode-set). `Router` does the same.
fn encoded(part: &str) -> String {
    let mut out = String::with_capacity(part.len());
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@%[]".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
