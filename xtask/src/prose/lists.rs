//! The word lists, budgets and exemptions of the prose check.

/// Words of each page at most, counted as `wc -w` counts.
pub(super) const BUDGETS: &[(&str, usize)] = &[
    ("ARCHITECTURE.md", 2000),
    ("CHANGELOG.md", 1700),
    ("CONTRIBUTING.md", 950),
    ("README.md", 800),
    ("SECURITY.md", 430),
    ("crates/bench/src/report/method.md", 900),
    ("crates/fiber/README.md", 905),
    ("crates/weftwork/src/guide.md", 2440),
    ("docs/async.md", 590),
    ("docs/benchmarks.md", 3850),
    ("docs/coming-from/actix.md", 545),
    ("docs/coming-from/axum.md", 1000),
    ("docs/coming-from/flask.md", 495),
    ("docs/coming-from/go-net-http.md", 515),
    ("docs/coming-from/hunchentoot.md", 480),
    ("docs/coming-from/tiny_http.md", 430),
    ("docs/conformance.md", 3735),
    ("docs/deploying.md", 2550),
    ("docs/engines.md", 1500),
    ("docs/http2.md", 785),
    ("docs/https.md", 720),
    ("docs/middleware.md", 2420),
    ("docs/performance.md", 2700),
    ("docs/testing.md", 850),
    ("examples/README.md", 200),
    ("fuzz/README.md", 245),
];

/// Phrases that a page or comment never uses, each with its cure.
pub(super) const FORBIDDEN: &[(&str, &str)] = &[
    ("shall", "write must, or the present tense"),
    ("whoever", "name the person or the thing"),
    ("whomever", "name the person or the thing"),
    ("whosoever", "name the person or the thing"),
    ("whosever", "name the person or the thing"),
    ("is none", "name the noun: no timeout is set"),
    ("are none", "name the noun: no connections are open"),
    ("in vain", "say what failed"),
    ("for want of", "write because ... is missing, or without"),
    ("anew", "write again"),
    ("but for", "write except for"),
];

/// Files and folders in which comments may still use forbidden phrases. The list only shrinks.
pub(super) const EXEMPT_FROM_WORDS: &[&str] = &[];

/// Files and folders in which the documentation of a module may still start with a question. The list only shrinks.
pub(super) const EXEMPT_FROM_MODULE_DOCS: &[&str] = &[];

/// A module's first sentence that starts so is a question or a clause without a subject.
pub(super) const QUESTION_WORDS: &[&str] = &["How", "What", "Which", "Where", "Who", "Is", "Do", "May"];

/// Forbidden phrases that `prose: allow PHRASE` on their line may permit, in the whole repository.
pub(super) const ALLOWED_MAX: usize = 20;

/// Read by the fuzzer, or written by a program.
pub(super) const VERBATIM: &[&str] = &["fuzz/seeds/"];

/// Phrases that make a text hard to read when there are many. They are counted, not forbidden.
pub(super) const SOFT: &[&str] = &[
    "what is",
    "what are",
    "what was",
    "what has",
    "what comes",
    "what does",
    "also where",
    "only where",
    "but where",
    "those who",
    "all who",
    "he who",
    "somebody",
    "nobody",
    "anybody",
    "everybody",
    "another one",
    "of one",
    "one that",
    "ones",
    "behind",
    "beneath",
    "has to",
    "have to",
    "by itself",
    "of its own",
    "all else",
    "for as long",
    "says so",
    "tells of",
    "says it",
    "so many",
    "such a",
];

/// A doc comment that starts with a pronoun lacks its subject.
pub(super) const PRONOUNS: &[&str] =
    &["It", "One", "That", "What", "Who", "None", "They", "This", "Those", "Which", "Where"];
