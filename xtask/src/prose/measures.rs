//! Measures how easy a text is to read. The figures are printed and enforce nothing.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::lists::{BUDGETS, PRONOUNS, SOFT};
use super::{File, Kind, Paragraph, paragraphs, text};

const SENTENCE_WORDS_MAX: usize = 30;

/// Files with fewer words are too short for an average.
const WORDS_MIN: usize = 50;

#[derive(Debug, Default, PartialEq)]
pub(super) struct Measures {
    pub(super) words: usize,
    pub(super) sentences: usize,
    pub(super) long: usize,
    pub(super) semicolons: usize,
    pub(super) paragraph_max: usize,
    pub(super) numbers_max: usize,
    pub(super) soft: usize,
    pub(super) docs: usize,
    pub(super) pronouns: usize,
}

impl Measures {
    pub(super) fn add(&mut self, paragraph: &Paragraph) {
        let text = paragraph.text();
        let words = text.split_whitespace().count();
        let sentences = text::sentences(&text);
        self.words += words;
        self.sentences += sentences.len();
        self.long += sentences.iter().filter(|sentence| is_long(sentence)).count();
        self.semicolons += text.matches(';').count();
        self.paragraph_max = self.paragraph_max.max(words);
        self.numbers_max = self.numbers_max.max(numbers(&text));
        self.soft += soft(&text).len();
        if paragraph.kind == Kind::Doc && paragraph.leads {
            self.docs += 1;
            let first = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            self.pronouns += usize::from(PRONOUNS.contains(&first));
        }
    }

    fn line(&self) -> String {
        let per = |part: usize, whole: usize, of: usize| (part * of) as f64 / whole.max(1) as f64;
        format!(
            "{:>6} words, {:4.1} a sentence, {:4.1} % over {SENTENCE_WORDS_MAX}, {:4.1} semicolons and {:4.1} soft a thousand, \
             paragraph {:>3}, {:>2} numbers, {:4.1} % pronouns",
            self.words,
            per(self.words, self.sentences, 1),
            per(self.long, self.sentences, 100),
            per(self.semicolons, self.words, 1000),
            per(self.soft, self.words, 1000),
            self.paragraph_max,
            self.numbers_max,
            per(self.pronouns, self.docs, 100),
        )
    }
}

/// One line for each page and each crate, then the sentences to shorten in the files under `paths`.
pub(super) fn report(files: &[File], paths: &[&str]) -> String {
    let mut groups: BTreeMap<String, Measures> = BTreeMap::new();
    let mut details = String::new();
    for file in files {
        let group = group(&file.path);
        let is_asked_for = paths.iter().any(|path| file.path.starts_with(path));
        for paragraph in paragraphs(file) {
            groups.entry(group.clone()).or_default().add(&paragraph);
            if is_asked_for {
                detail(&file.path, &paragraph, &mut details);
            }
        }
    }
    let mut out = String::new();
    for (name, measures) in groups.iter().filter(|(_, measures)| measures.words >= WORDS_MIN) {
        let _ = writeln!(out, "{name:34}{}", measures.line());
    }
    let pages = files.iter().filter(|file| file.path.ends_with(".md"));
    let words: usize = pages.map(|file| file.text.split_whitespace().count()).sum();
    let budget: usize = BUDGETS.iter().map(|(_, max)| max).sum();
    let _ = writeln!(out, "all pages: {words} words by wc -w, {budget} at most");
    out + &details
}

/// A page is a group by itself, as is the source folder of a crate.
fn group(path: &str) -> String {
    let crate_folder = path.split_once("/src/").map(|(folder, _)| format!("{folder}/src"));
    if path.ends_with(".md") {
        path.to_owned()
    } else {
        crate_folder.unwrap_or_else(|| path.split('/').next().unwrap_or_default().to_owned())
    }
}

fn detail(path: &str, paragraph: &Paragraph, out: &mut String) {
    let text = paragraph.text();
    let line = paragraph.lines.first().map_or(0, |(line, _)| line + 1);
    for sentence in text::sentences(&text) {
        let mut faults: Vec<String> = soft(&sentence).iter().map(|phrase| format!("\"{phrase}\"")).collect();
        faults.extend(is_long(&sentence).then(|| format!("{} words", sentence.split_whitespace().count())));
        faults.extend(sentence.contains(';').then(|| "semicolon".to_owned()));
        if !faults.is_empty() {
            let _ = writeln!(out, "{path}:{line}: {}: {sentence}", faults.join(", "));
        }
    }
}

fn is_long(sentence: &str) -> bool {
    sentence.split_whitespace().count() > SENTENCE_WORDS_MAX
}

fn numbers(text: &str) -> usize {
    text.split_whitespace()
        .filter(|word| word.trim_start_matches(['(', '*']).starts_with(|c: char| c.is_ascii_digit()))
        .count()
}

fn soft(text: &str) -> Vec<&'static str> {
    let words: Vec<String> = text
        .split(|c: char| !(c.is_alphanumeric() || c == '\''))
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let text = format!(" {} ", words.join(" "));
    let hits = |phrase: &&'static str| vec![*phrase; text.matches(&format!(" {phrase} ")).count()];
    SOFT.iter().flat_map(hits).collect()
}
