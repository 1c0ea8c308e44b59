//! The rules of a single file: its size, its words, its white space.

use super::File;
use super::scan::{Source, functions, line_of, words};

const FILE_LINES_MAX: usize = 500;
const TEST_FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
const TEST_FUNCTION_LINES_MAX: usize = 120;

/// Files that are kept byte for byte: samples for the fuzzer, and logs of measurements.
const VERBATIM: &[&str] = &["fuzz/seeds/", ".log"];

/// gofmt and `go mod` indent with tabs.
const TABBED: &[&str] = &[".go", "go.mod"];

/// Words that defer work.
const DEFERRALS: &[&str] = &["TODO", "FIXME", "XXX"];
const DEFERRING_CODE: &[&str] = &["todo!", "unimplemented!", "#[ignore"];

/// Crates in which a client or the kernel must not be able to cause a panic.
const NO_PANIC: &[&str] = &["crates/wire/src/", "crates/weftwork/src/", "crates/fiber/src/"];
const PANICS: &[&str] = &[".unwrap()", ".expect("];
const EXCUSE: &str = "cannot fail:";

/// The one crate that may write unsafe code.
const UNSAFE_FOLDER: &str = "crates/fiber/";

/// Folders of one machine. They are written in parts, so that this line passes its own rule.
const MACHINE_FOLDERS: &[[&str; 2]] = &[["/work", "/"], ["/root", "/"], ["/tmp/", "target"]];

/// An example is found from the root of the repository only by its package.
const EXAMPLE: &str = "--example ";
const CARGO: &str = "cargo ";
const PACKAGES: [&str; 2] = [" -p ", "--manifest-path interop/Cargo.toml"];

pub(super) fn text(file: &File, say: &mut impl FnMut(usize, String)) {
    if VERBATIM.iter().any(|part| file.path.starts_with(part) || file.path.ends_with(part)) {
        return;
    }
    for (line, text) in file.text.split('\n').enumerate() {
        if text.ends_with(char::is_whitespace) {
            say(line, "white space at the end of the line; remove it".into());
        } else if text.contains('\t') && !TABBED.iter().any(|end| file.path.ends_with(end)) {
            say(line, "tab; indent with spaces, or write \\t".into());
        }
        if text.contains(EXAMPLE)
            && text.contains(CARGO)
            && !PACKAGES.iter().any(|package| text.contains(package))
        {
            say(
                line,
                "cargo does not find the example from the root; write -p weftwork-examples in front of it"
                    .into(),
            );
        }
        for folder in MACHINE_FOLDERS.iter().map(|parts| parts.concat()) {
            if text.contains(&folder) {
                say(
                    line,
                    format!("{folder} is a folder of one machine; use a path relative to the repository"),
                );
            }
        }
    }
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        say(file.text.lines().count() - 1, "no newline at the end of the file; add one".into());
    }
    if file.path.ends_with(".md") {
        hidden_lines(file, say);
    }
}

/// GitHub shows the lines of an example that rustdoc hides.
fn hidden_lines(file: &File, say: &mut impl FnMut(usize, String)) {
    let mut is_rust = false;
    for (line, text) in file.text.lines().enumerate() {
        if let Some(language) = text.strip_prefix("```") {
            is_rust = language.starts_with("rust");
        } else if is_rust && text.starts_with("# ") {
            say(line, "a page shows it as it is; write it as a part of the example".into());
        }
    }
}

pub(super) fn rust(file: &File, source: &Source, say: &mut impl FnMut(usize, String)) {
    leading_doc(file, say);
    file_length(file, say);
    function_length(file, source, say);
    deferrals(source, say);
    unsafe_code(file, source, say);
    panics(file, source, say);
}

fn leading_doc(file: &File, say: &mut impl FnMut(usize, String)) {
    let first = file.text.lines().next().unwrap_or_default();
    let doc = first.strip_prefix("//!").is_some_and(|doc| !doc.trim().is_empty());
    // A file for `include!` cannot start with an inner doc comment, so it starts with a plain comment.
    let included = file.path.contains("/tests/cases/") && first.starts_with("// ");
    if !doc && !included {
        say(0, "no leading `//!`; state in the first line what this file does or holds".into());
    }
}

fn file_length(file: &File, say: &mut impl FnMut(usize, String)) {
    let lines = file.text.lines().count();
    let max = if file.test { TEST_FILE_LINES_MAX } else { FILE_LINES_MAX };
    if lines > max {
        say(max, format!("{lines} lines, {max} at most; split the file by purpose"));
    }
}

fn function_length(file: &File, source: &Source, say: &mut impl FnMut(usize, String)) {
    for function in functions(&source.code) {
        let test = file.test || source.is_test(function.first);
        let max = if test { TEST_FUNCTION_LINES_MAX } else { FUNCTION_LINES_MAX };
        let lines = function.last - function.first + 1;
        if lines > max {
            let name = function.name;
            say(function.first, format!("fn {name} has {lines} lines, {max} at most; split it by step"));
        }
    }
}

fn deferrals(source: &Source, say: &mut impl FnMut(usize, String)) {
    let mut deferred = |line, word: &str| say(line, format!("{word}: do it now, or open an issue instead"));
    for text in [&source.code, &source.comments] {
        for word in DEFERRALS {
            words(text, word).for_each(|at| deferred(line_of(text, at), word));
        }
    }
    for word in DEFERRING_CODE {
        for (at, _) in source.code.match_indices(word) {
            deferred(line_of(&source.code, at), word);
        }
    }
}

fn unsafe_code(file: &File, source: &Source, say: &mut impl FnMut(usize, String)) {
    if file.path.starts_with(UNSAFE_FOLDER) {
        return;
    }
    for at in words(&source.code, "unsafe") {
        say(
            line_of(&source.code, at),
            format!("unsafe outside {UNSAFE_FOLDER}; use a safe call, or put it there"),
        );
    }
}

fn panics(file: &File, source: &Source, say: &mut impl FnMut(usize, String)) {
    if file.test || !NO_PANIC.iter().any(|path| file.path.starts_with(path)) {
        return;
    }
    let comments: Vec<&str> = source.comments.lines().collect();
    for (line, code) in source.code.lines().enumerate() {
        let panic = PANICS.iter().find(|panic| code.contains(**panic));
        if let Some(panic) = panic.filter(|_| !source.is_test(line) && !excused(source, &comments, line)) {
            say(line, format!("{panic} can panic; return an error, or write `// {EXCUSE} <reason>` above"));
        }
    }
}

/// The excuse stands on the line itself or in the comment lines directly above it.
fn excused(source: &Source, comments: &[&str], line: usize) -> bool {
    let code: Vec<&str> = source.code.lines().take(line).collect();
    let above =
        (0..line).rev().take_while(|&at| code[at].trim().is_empty() && !comments[at].trim().is_empty());
    above.chain([line]).any(|at| {
        let comment = comments.get(at).copied().unwrap_or_default();
        comment.split_once(EXCUSE).is_some_and(|(_, reason)| !reason.trim().is_empty())
    })
}
