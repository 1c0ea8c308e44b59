//! Checks the house rules on every tracked file. Prints one line for each fault: where, what, and the cure.

use std::fs;
use std::path::Path;
use std::process::Command;

mod layers;
mod names;
mod rules;
mod scan;
#[cfg(test)]
mod tests;

pub(crate) use scan::Source;

/// A tracked text file.
pub(crate) struct File {
    /// Path from the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
    /// The scanned text of a Rust file.
    pub(crate) rust: Option<Source>,
    /// Whether the whole file is test code, by its path or because its parent declares it `#[cfg(test)]`.
    pub(crate) test: bool,
}

/// One broken rule.
#[derive(Debug, PartialEq)]
pub(crate) struct Fault {
    pub(crate) path: String,
    /// The first line is 1.
    pub(crate) line: usize,
    pub(crate) says: String,
}

/// Checks all that git tracks under `root`.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let files = tracked(root)?;
    if files.is_empty() {
        return Err("tidy: git tracks no file here".into());
    }
    let faults = check(&files);
    for fault in &faults {
        println!("{}:{}: {}", fault.path, fault.line, fault.says);
    }
    match faults.len() {
        0 => {
            println!("tidy: {} files keep the rules", files.len());
            Ok(())
        }
        n => Err(format!("tidy: {n} to mend")),
    }
}

/// Every fault of every file, in reading order.
fn check(files: &[File]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for file in files {
        let mut say = |line: usize, says: String| {
            faults.push(Fault { path: file.path.clone(), line: line + 1, says });
        };
        rules::text(file, &mut say);
        if let Some(source) = &file.rust {
            rules::rust(file, source, &mut say);
            layers::check(file, source, &mut say);
            names::check(file, source, &mut say);
        }
    }
    faults.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    faults
}

/// Returns the text files that git tracks. A file that is not UTF-8 or holds a NUL is no text.
pub(crate) fn tracked(root: &Path) -> Result<Vec<File>, String> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output();
    let listed = listed.map_err(|why| format!("git ls-files: {why}"))?;
    if !listed.status.success() {
        return Err(format!("git ls-files: {}", String::from_utf8_lossy(&listed.stderr).trim()));
    }
    let paths = String::from_utf8_lossy(&listed.stdout);
    let texts = paths.split_terminator('\0').filter_map(|path| {
        let text = fs::read_to_string(root.join(path)).ok().filter(|text| !text.contains('\0'))?;
        Some((path.to_owned(), text))
    });
    Ok(files(texts))
}

/// Scans the Rust files, then finds which of them are test code.
pub(crate) fn files(texts: impl IntoIterator<Item = (String, String)>) -> Vec<File> {
    let scanned = texts.into_iter().map(|(path, text)| {
        let rust = path.ends_with(".rs").then(|| Source::new(&text));
        File { test: is_test_path(&path), rust, path, text }
    });
    let mut files: Vec<File> = scanned.collect();
    let declared: Vec<String> = files.iter().flat_map(declared_tests).collect();
    for file in &mut files {
        let stem = file.path.trim_end_matches(".rs");
        file.test |= declared.iter().any(|module| {
            stem.strip_prefix(module.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
    }
    files
}

fn is_test_path(path: &str) -> bool {
    path.ends_with(".rs")
        && path.split('/').any(|part| matches!(part, "tests" | "tests.rs") || part.ends_with("_tests.rs"))
}

/// The modules that a file declares as test code, as paths without `.rs`.
fn declared_tests(file: &File) -> Vec<String> {
    let stem = file.path.trim_end_matches(".rs");
    let (folder, name) = stem.rsplit_once('/').unwrap_or(("", stem));
    let folder = if matches!(name, "lib" | "main" | "mod") { folder } else { stem };
    let names = file.rust.iter().flat_map(|source| &source.test_modules);
    names.map(|name| format!("{folder}/{name}")).collect()
}
