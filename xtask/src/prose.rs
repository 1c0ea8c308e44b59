//! Checks the English of Markdown and comments. Forbidden words, module docs and word budgets fail, other measures are printed.

use std::path::Path;

use crate::tidy::{Fault, File, tracked};

mod lists;
mod measures;
#[cfg(test)]
mod tests;
mod text;

use lists::{
    ALLOWED_MAX, BUDGETS, EXEMPT_FROM_MODULE_DOCS, EXEMPT_FROM_WORDS, FORBIDDEN, QUESTION_WORDS, VERBATIM,
};
use text::{Kind, Paragraph};

const LISTS: &str = "xtask/src/prose/lists.rs";

/// Checks all that git tracks under `root`, and prints the measures of the files whose path starts with one of `paths`.
pub(crate) fn run(root: &Path, paths: &[&str]) -> Result<(), String> {
    let files = tracked(root)?;
    if files.is_empty() {
        return Err("prose: git tracks no file here".into());
    }
    print!("{}", measures::report(&files, paths));
    let (mut faults, unneeded) = check(&files);
    faults.extend(unneeded.iter().map(|folder| Fault {
        path: LISTS.into(),
        line: 1,
        says: format!("{folder} keeps the rules; remove it from its list of exemptions"),
    }));
    for fault in &faults {
        println!("{}:{}: {}", fault.path, fault.line, fault.says);
    }
    match faults.len() {
        0 => {
            println!("prose: {} files keep the rules", files.len());
            Ok(())
        }
        n => Err(format!("prose: {n} to mend")),
    }
}

/// Every enforced fault of every file, in reading order, and the exemptions that are not needed.
fn check(files: &[File]) -> (Vec<Fault>, Vec<&'static str>) {
    let mut faults = Vec::new();
    let mut words = Exempt::new(EXEMPT_FROM_WORDS);
    let mut docs = Exempt::new(EXEMPT_FROM_MODULE_DOCS);
    let mut allowed = 0;
    for file in files.iter().filter(|file| !VERBATIM.iter().any(|path| file.path.starts_with(path))) {
        let fault = |line: usize, says: String| Fault { path: file.path.clone(), line: line + 1, says };
        budget(file, &mut |line, says| faults.push(fault(line, says)));
        module_doc(file, &mut |line, says| docs.admit(file, fault(line, says), &mut faults));
        allowed += forbidden(file, &mut |line, says| words.admit(file, fault(line, says), &mut faults));
    }
    if allowed > ALLOWED_MAX {
        let says =
            format!("{allowed} words are allowed by a mark, {ALLOWED_MAX} at most; rewrite a sentence");
        faults.push(Fault { path: LISTS.into(), line: 1, says });
    }
    faults.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    (faults, words.unneeded().chain(docs.unneeded()).collect())
}

/// A list of exemptions, and which of them were needed.
struct Exempt {
    folders: &'static [&'static str],
    needed: Vec<bool>,
}

impl Exempt {
    fn new(folders: &'static [&'static str]) -> Exempt {
        Exempt { folders, needed: vec![false; folders.len()] }
    }

    /// Keeps the fault unless its file is exempt.
    fn admit(&mut self, file: &File, fault: Fault, faults: &mut Vec<Fault>) {
        let holds = |folder: &&str| file.path.starts_with(*folder);
        match self.folders.iter().position(holds) {
            Some(at) => self.needed[at] = true,
            None => faults.push(fault),
        }
    }

    /// The exemptions that can go.
    fn unneeded(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.folders.iter().zip(&self.needed).filter(|(_, needed)| !**needed).map(|(folder, _)| *folder)
    }
}

/// Every page has a budget, so that it does not grow unseen.
fn budget(file: &File, say: &mut impl FnMut(usize, String)) {
    if !file.path.ends_with(".md") {
        return;
    }
    let Some((_, max)) = BUDGETS.iter().find(|(path, _)| *path == file.path) else {
        return say(0, format!("no word budget; add the page to BUDGETS in {LISTS}"));
    };
    let words = file.text.split_whitespace().count();
    if words > *max {
        say(0, format!("{words} words, {max} at most; shorten the page"));
    }
}

/// The first sentence of a module's documentation is its summary in rustdoc.
fn module_doc(file: &File, say: &mut impl FnMut(usize, String)) {
    let doc: Vec<&str> =
        file.text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).collect();
    if file.rust.is_none() || doc.is_empty() {
        return;
    }
    let first = doc.iter().take_while(|line| !line.is_empty()).copied().collect::<Vec<_>>().join(" ");
    let is_question = text::sentences(&first).first().is_some_and(|sentence| sentence.ends_with('?'));
    let opening = first.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    if is_question {
        say(0, "the first sentence is a question; state what this module does or holds".into());
    } else if QUESTION_WORDS.contains(&opening) {
        say(0, format!("starts with {opening}; state what this module does or holds, subject first"));
    }
}

/// Returns how many forbidden words a mark allows.
fn forbidden(file: &File, say: &mut impl FnMut(usize, String)) -> usize {
    let lines: Vec<&str> = file.text.lines().collect();
    let mut allowed = 0;
    for paragraph in paragraphs(file) {
        let words: Vec<(usize, String)> = paragraph.words().collect();
        for (phrase, cure) in FORBIDDEN {
            let parts: Vec<&str> = phrase.split(' ').collect();
            let hits = words.windows(parts.len()).filter(|w| w.iter().map(|(_, word)| word).eq(parts.iter()));
            for hit in hits {
                let line = hit[0].0;
                let mark = format!("prose: allow {phrase}");
                if lines.get(line).is_some_and(|text| text.contains(&mark)) {
                    allowed += 1;
                } else {
                    say(line, format!("\"{phrase}\" is hard to read; {cure}"));
                }
            }
        }
    }
    allowed
}

/// The prose of a page, or of the comments of a Rust file outside of tests.
fn paragraphs(file: &File) -> Vec<Paragraph> {
    match &file.rust {
        _ if file.path.ends_with(".md") => text::markdown(&file.text),
        Some(source) if !file.test => text::comments(source),
        _ => Vec::new(),
    }
}
