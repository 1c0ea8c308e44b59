//! Splits a Rust file into code and comments, and marks the lines that only tests use.
//!
//! This is not a parser. It knows strings, comments, character literals and braces, which is enough to measure
//! functions and to search for words without being fooled by text.

/// One Rust file, split so that every rule can search the part it means.
pub(crate) struct Source {
    /// The file with comments and the contents of literals blanked. Line for line the same.
    pub(crate) code: String,
    /// The file with everything but comments blanked. Line for line the same.
    pub(crate) comments: String,
    /// Lines (0 is the first) that are compiled for tests and models only.
    test_lines: Vec<bool>,
    /// Names in `#[cfg(test)] mod name;`: their files are test code too.
    pub(crate) test_modules: Vec<String>,
}

impl Source {
    pub(crate) fn new(text: &str) -> Source {
        let (code, comments) = split(text);
        let mut source = Source {
            test_lines: vec![false; code.lines().count()],
            code,
            comments,
            test_modules: Vec::new(),
        };
        source.mark_tests();
        source
    }

    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.test_lines.get(line).copied().unwrap_or(false)
    }

    fn mark_tests(&mut self) {
        let code = self.code.clone();
        for (at, _) in code.match_indices("#[") {
            let Some(end) = matching(&code, at + 1) else { continue };
            if !is_test_attribute(&code[at + 2..end]) {
                continue;
            }
            let body = item_end(&code, end + 1);
            let last = body.map_or(code.len(), |(_, last)| last);
            let lines = line_of(&code, at)..=line_of(&code, last);
            lines.for_each(|line| self.test_lines.get_mut(line).into_iter().for_each(|mark| *mark = true));
            let item = code[end + 1..last].trim();
            let name = item.strip_prefix("pub(crate) ").unwrap_or(item).strip_prefix("mod ");
            self.test_modules.extend(name.filter(|name| is_word(name)).map(str::to_owned));
        }
    }
}

/// A function with a body, by lines (0 is the first).
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) first: usize,
    pub(crate) last: usize,
}

/// Every function that has a body, nested ones too.
pub(crate) fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for at in words(code, "fn") {
        let name: String =
            code[at + 2..].trim_start().chars().take_while(|&c| c == '$' || is_name(c)).collect();
        let Some((open, last)) = item_end(code, at) else { continue };
        if !name.is_empty() && code[open..].starts_with('{') {
            found.push(Function { name, first: line_of(code, at), last: line_of(code, last) });
        }
    }
    found
}

/// Every `use`, as (line, full path), with groups spelt out: `use a::{b, c::d};` gives `a::b` and `a::c::d`.
pub(crate) fn imports(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for at in words(code, "use") {
        // `impl Trait + use<'a>` imports nothing.
        let Some(end) = code[at..].find(';').filter(|_| !code[at + 3..].starts_with('<')) else { continue };
        let tree: String = code[at + 3..at + end].split_whitespace().collect::<Vec<_>>().join(" ");
        let line = line_of(code, at);
        found.extend(spelt_out("", &tree).into_iter().map(|path| (line, path)));
    }
    found
}

fn spelt_out(before: &str, tree: &str) -> Vec<String> {
    let Some((head, group)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or(tree);
        return vec![format!("{before}{}", path.trim())];
    };
    let before = format!("{before}{}", head.trim());
    let group = group.trim_end().strip_suffix('}').unwrap_or(group);
    let mut depth = 0;
    let parts = group.split(|c: char| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    parts.filter(|part| !part.trim().is_empty()).flat_map(|part| spelt_out(&before, part.trim())).collect()
}

/// Byte offsets at which `word` is a whole word.
pub(crate) fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |&at| !text[..at].ends_with(is_name) && !text[at + word.len()..].starts_with(is_name))
}

/// The line (0 is the first) of a byte offset.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text[..at.min(text.len())].matches('\n').count()
}

fn is_name(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_name)
}

/// Returns true for `test`, `cfg(test)` and `cfg(all(test, loom))`, and false for `cfg(not(test))` and
/// `derive(Test)`.
fn is_test_attribute(attribute: &str) -> bool {
    let attribute: String = attribute.split_whitespace().collect();
    let Some(condition) = attribute.strip_prefix("cfg(") else { return attribute == "test" };
    let condition = condition.replace("not(test)", "").replace("not(loom)", "");
    ["test", "loom"].iter().any(|word| words(&condition, word).next().is_some())
}

/// The end of the item that starts at `from`: where its body or its semicolon stands, and its last byte.
fn item_end(code: &str, from: usize) -> Option<(usize, usize)> {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b';' | b'}' if depth == 0 => return Some((at, at)),
            b'{' if depth == 0 => return matching(code, at).map(|last| (at, last)),
            _ => {}
        }
    }
    None
}

/// Returns the bracket that closes the bracket at `open`.
fn matching(code: &str, open: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Code,
    Comment,
    Literal,
}

/// Both views of the file: code alone, and comments alone.
fn split(text: &str) -> (String, String) {
    let (mut code, mut comments) = (String::new(), String::new());
    let mut rest = text;
    while !rest.is_empty() {
        let (len, part) = token(rest);
        for c in rest[..len].chars() {
            let keep = |wanted| if c == '\n' || part == wanted { c } else { ' ' };
            code.push(keep(Part::Code));
            comments.push(keep(Part::Comment));
        }
        rest = &rest[len..];
    }
    (code, comments)
}

/// The length and kind of what stands at the start of `rest`.
fn token(rest: &str) -> (usize, Part) {
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), Part::Comment);
    }
    if rest.starts_with("/*") {
        return (block_comment(rest), Part::Comment);
    }
    // A name cannot end here before a string, because such prefixes are reserved since edition 2021.
    if let Some(len) = raw_string(rest) {
        return (len, Part::Literal);
    }
    match rest.as_bytes()[0] {
        b'"' => (quoted(rest, '"'), Part::Literal),
        b'\'' if is_char_literal(rest) => (quoted(rest, '\''), Part::Literal),
        _ => (rest.chars().next().map_or(1, char::len_utf8), Part::Code),
    }
}

fn block_comment(rest: &str) -> usize {
    let (mut at, mut depth) = (0, 0);
    while at < rest.len() {
        let two = rest.as_bytes().get(at..at + 2);
        depth += i32::from(two == Some(b"/*")) - i32::from(two == Some(b"*/"));
        at += if matches!(two, Some(b"/*" | b"*/")) { 2 } else { 1 };
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// `r"..."`, `r#"..."#`, and the same after `b` or `c`.
fn raw_string(rest: &str) -> Option<usize> {
    let start = rest.strip_prefix(['b', 'c']).unwrap_or(rest).strip_prefix('r')?;
    let body = start.trim_start_matches('#');
    let hashes = start.len() - body.len();
    let body = body.strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let end = body.find(&close).map_or(body.len(), |at| at + close.len());
    Some(rest.len() - body.len() + end)
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if c == quote && !escaped {
            return at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    rest.len()
}

/// `'a'` and `'\n'` are literals, `'a` is a lifetime.
fn is_char_literal(rest: &str) -> bool {
    let mut chars = rest.chars().skip(1);
    match chars.next() {
        Some('\\') => true,
        Some(_) => chars.next() == Some('\''),
        None => false,
    }
}
