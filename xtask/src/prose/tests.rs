//! Samples that the prose check passes, and samples that it refuses.

use super::measures::Measures;
use super::{Fault, check, paragraphs, text};
use crate::tidy::files;

const PAGE: &str = "README.md";
/// A file that no list of exemptions names.
const CODE: &str = "xtask/src/main.rs";

fn faults(path: &str, text: &str) -> Vec<Fault> {
    check(&files([(path.to_owned(), text.to_owned())])).0
}

fn good(path: &str, text: &str) {
    assert_eq!(faults(path, text), [], "{path}: {text}");
}

/// A file with one fault, on `line`, whose message holds `says`.
fn bad(path: &str, text: &str, line: usize, says: &str) {
    let found = faults(path, text);
    let [fault] = &found[..] else { panic!("{path}: {text}: {found:?}") };
    assert_eq!((fault.path.as_str(), fault.line), (path, line), "{found:?}");
    assert!(fault.says.contains(says), "{found:?}");
}

fn measures(path: &str, text: &str) -> Measures {
    let mut measures = Measures::default();
    for file in files([(path.to_owned(), text.to_owned())]) {
        paragraphs(&file).iter().for_each(|paragraph| measures.add(paragraph));
    }
    measures
}

#[test]
fn forbidden_words() {
    for word in
        ["shall", "whoever", "Whosoever", "is none", "are none", "in vain", "for want of", "anew", "but for"]
    {
        bad("SECURITY.md", &format!("A page.\n\nIt {word} goes on.\n"), 3, &word.to_lowercase());
        bad(CODE, &format!("//! Code.\n\n// It {word} goes on.\n"), 3, &word.to_lowercase());
        bad(CODE, &format!("//! Code.\n\n/// It {word} goes on.\nfn f() {{}}\n"), 3, &word.to_lowercase());
    }
    good("SECURITY.md", "The shallow pool renews. Nothing is nonetheless lost. A but. For example.\n");
}

#[test]
fn a_phrase_may_cross_lines() {
    bad("SECURITY.md", "There\nis\nnone here.\n", 2, "is none");
    bad(CODE, "//! Code.\n\nfn f() {} // there is none\n", 3, "is none");
    good("SECURITY.md", "There is\n\nnone here.\n");
}

#[test]
fn what_is_not_prose_is_left_out() {
    let outside = "```\nshall\n```\n\n# What shall be\n\n| shall | anew |\n\n`shall` and [a link](shall.md).\n\n<!-- shall -->\n";
    good("SECURITY.md", outside);
    good("SECURITY.md", "## Licence\n\nThe terms shall hold.\n");
    bad("SECURITY.md", "## Licence\n\nTerms.\n\n## More\n\nIt shall.\n", 7, "shall");
    good(
        CODE,
        "//! Code.\n\nconst S: &str = \"// it shall\";\n\n/// ```\n/// // shall\n/// ```\nfn f() {}\n",
    );
    good(CODE, "//! Code.\n\n#[cfg(test)]\nmod tests {\n    // It shall.\n}\n");
    good("xtask/src/prose/tests.rs", "//! Code.\n\n// It shall.\n");
}

#[test]
fn a_mark_allows_a_word() {
    good("SECURITY.md", "He said it shall be. <!-- prose: allow shall -->\n");
    bad("SECURITY.md", "It shall be anew. <!-- prose: allow shall -->\n", 1, "anew");
    let many = "It shall. <!-- prose: allow shall -->\n".repeat(21);
    let found = faults("SECURITY.md", &many);
    assert!(
        found.len() == 1 && found[0].says.contains("21 words are allowed by a mark, 20 at most"),
        "{found:?}"
    );
}

#[test]
fn module_docs_are_statements() {
    good(CODE, "//! Runs the chores.\n//!\n//! Which ones? Those of the list.\n");
    good(CODE, "//! Whatever runs. Why? It is listed.\n");
    good("docs/what.sh", "//! Which?\n");
    bad(CODE, "//! Does it run?\n", 1, "a question");
    bad(CODE, "//! Does it\n//! run? Perhaps.\n", 1, "a question");
    for word in ["How", "What", "Which", "Where", "Who", "Is", "Do", "May"] {
        bad(CODE, &format!("//! {word} it runs.\n"), 1, word);
    }
}

#[test]
fn budgets() {
    good("SECURITY.md", &"word ".repeat(400));
    bad("SECURITY.md", &"word ".repeat(2000), 1, "2000 words");
    bad("docs/unknown.md", "word\n", 1, "no word budget");
}

#[test]
fn an_exemption_that_is_not_needed_is_named() {
    let (_, unneeded) = check(&files([(PAGE.to_owned(), "A page.\n".to_owned())]));
    assert_eq!(unneeded.len(), super::EXEMPT_FROM_WORDS.len() + super::EXEMPT_FROM_MODULE_DOCS.len());
}

#[test]
fn sentences_end_before_a_capital() {
    let check = |text: &str, want: &[&str]| assert_eq!(text::sentences(text), want);
    check("One. Two? (Three!) Four", &["One.", "Two?", "(Three!)", "Four"]);
    check("About 1.5 ms, e.g. here. **Bold** starts.", &["About 1.5 ms, e.g. here.", "**Bold** starts."]);
}

#[test]
fn counts() {
    let page =
        measures(PAGE, "One two; three `four five`.\n\n- 1 and 2\n- It has to wait behind them. Now.\n");
    let want = Measures {
        words: 14,
        sentences: 4,
        semicolons: 1,
        paragraph_max: 7,
        numbers_max: 2,
        soft: 2,
        ..Measures::default()
    };
    assert_eq!(page, want);
    let long = format!("A {}.\n", ["word"; 30].join(" "));
    assert_eq!(measures(PAGE, &long).long, 1);
    assert_eq!(measures(PAGE, &long.replace("A ", "")).long, 0);
    let code =
        measures(CODE, "//! Code.\n\n/// It is.\nfn f() {}\n\n/// Returns it.\n///\n/// It is.\nfn g() {}\n");
    assert_eq!((code.docs, code.pronouns), (3, 1));
}
