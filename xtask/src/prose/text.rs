//! Extracts paragraphs of prose from Markdown and from the comments of Rust files.

use crate::tidy::Source;

/// Position of a paragraph.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Page,
    /// `///` or `//!`.
    Doc,
    Comment,
}

/// Lines of prose without code, tables, headings and link targets.
#[derive(Debug)]
pub(super) struct Paragraph {
    pub(super) kind: Kind,
    /// The first of its block, which in a doc comment is the summary.
    pub(super) leads: bool,
    /// Each with its number in the file (0 is the first). A code span is the word `CODE`.
    pub(super) lines: Vec<(usize, String)>,
}

impl Paragraph {
    pub(super) fn text(&self) -> String {
        self.lines.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(" ")
    }

    /// Every word in lower case, without punctuation, with its line. The end of a sentence is the word `.`.
    pub(super) fn words(&self) -> impl Iterator<Item = (usize, String)> + '_ {
        self.lines.iter().flat_map(|(line, text)| {
            text.split_whitespace().flat_map(|word| {
                let bare = word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
                let end = word.ends_with(['.', '?', '!']).then(|| ".".to_owned());
                [Some(bare).filter(|bare| !bare.is_empty()), end]
                    .into_iter()
                    .flatten()
                    .map(|word| (*line, word))
            })
        })
    }
}

/// Splits at `.`, `?` and `!` before a capital. A colon that ends a paragraph ends its sentence, too.
pub(super) fn sentences(text: &str) -> Vec<String> {
    let mut found = vec![Vec::new()];
    let words: Vec<&str> = text.split_whitespace().collect();
    for (at, word) in words.iter().enumerate() {
        found.last_mut().unwrap_or(&mut Vec::new()).push(*word);
        let ends = word.trim_end_matches([')', '*', '"', '_']).ends_with(['.', '?', '!']);
        let next = words.get(at + 1).map(|next| next.trim_start_matches(['(', '*', '"', '[', '_']));
        if ends && next.is_some_and(|next| next.starts_with(|c: char| c.is_uppercase())) {
            found.push(Vec::new());
        }
    }
    found.into_iter().map(|words| words.join(" ")).filter(|text| !text.is_empty()).collect()
}

/// The prose of a Markdown page.
pub(super) fn markdown(text: &str) -> Vec<Paragraph> {
    paragraphs(Kind::Page, text.lines().enumerate())
}

/// The prose of all comments that are not in tests.
pub(super) fn comments(source: &Source) -> Vec<Paragraph> {
    let code: Vec<&str> = source.code.lines().collect();
    let mut found = Vec::new();
    let mut block: Vec<(usize, &str)> = Vec::new();
    let mut open: Option<&str> = None;
    for (line, text) in source.comments.lines().enumerate() {
        let text = text.trim();
        let marker = ["//!", "///", "//"].into_iter().find(|marker| text.starts_with(marker));
        let marker = marker.filter(|_| !source.is_test(line));
        let is_alone = code.get(line).is_none_or(|code| code.trim().is_empty());
        let goes_on = marker.is_some() && marker == open && is_alone;
        if !goes_on && let Some(open) = open {
            found.extend(paragraphs(kind(open), block.drain(..)));
        }
        block.extend(marker.map(|marker| (line, text[marker.len()..].trim())));
        open = marker;
    }
    found.extend(open.into_iter().flat_map(|open| paragraphs(kind(open), block.drain(..))));
    found
}

fn kind(marker: &str) -> Kind {
    if marker == "//" { Kind::Comment } else { Kind::Doc }
}

/// Blank lines, list items and all that is not prose end a paragraph.
fn paragraphs<'a>(kind: Kind, lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<Paragraph> {
    let mut found: Vec<Paragraph> = Vec::new();
    let (mut is_fenced, mut is_licence, mut is_open, mut is_first) = (false, false, false, true);
    for (line, text) in lines {
        let text = text.trim();
        let is_fence = text.starts_with("```");
        is_fenced ^= is_fence;
        if !is_fenced && text.starts_with('#') {
            is_licence = text.trim_start_matches('#').trim() == "Licence";
        }
        let is_dropped = is_fence || is_fenced || is_licence || text.starts_with(['#', '|']) || is_html(text);
        let item = list_item(text);
        let prose = if is_dropped { String::new() } else { plain(item.unwrap_or(text)) };
        if prose.is_empty() {
            is_open = false;
            continue;
        }
        match found.last_mut().filter(|_| is_open && item.is_none()) {
            Some(last) => last.lines.push((line, prose)),
            None => found.push(Paragraph { kind, leads: is_first, lines: vec![(line, prose)] }),
        }
        (is_open, is_first) = (true, false);
    }
    found
}

fn is_html(text: &str) -> bool {
    text.starts_with("<!--") && text.ends_with("-->") || text.starts_with("<svg") || text.starts_with("![")
}

/// The text of a list item, without its mark.
fn list_item(text: &str) -> Option<&str> {
    let digits = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = if digits.len() < text.len() { digits.strip_prefix(". ") } else { None };
    text.strip_prefix("- ").or(text.strip_prefix("* ")).or(numbered)
}

/// Code spans become a word, link targets and hidden comments go.
fn plain(text: &str) -> String {
    let mut out = String::new();
    for (at, part) in text.split('`').enumerate() {
        out.push_str(if at % 2 == 0 { part } else { "CODE" });
    }
    let out = without(&without(&out, "](", ")"), "<!--", "-->");
    out.replace(['[', ']'], "").trim().to_owned()
}

/// Cuts what stands from `open` to `close`.
fn without(text: &str, open: &str, close: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(open) {
        out.push_str(before);
        rest = after.split_once(close).map_or("", |(_, rest)| rest);
    }
    out + rest
}
