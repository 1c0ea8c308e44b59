//! Samples that each rule of tidy passes, and samples that it refuses on their line.

use super::scan::{Source, functions, imports};
use super::{Fault, check, files};

const LIB: &str = "crates/weftwork/src/lib.rs";
const WIRE: &str = "crates/wire/src/head.rs";

fn faults(path: &str, text: &str) -> Vec<Fault> {
    check(&files([(path.to_owned(), text.to_owned())]))
}

/// A file without a fault. Rust code gets the leading doc that it would otherwise miss.
fn good(path: &str, text: &str) {
    assert_eq!(faults(path, &documented(path, text)), [], "{path}: {text}");
}

/// A file with one fault, on `line`, whose message holds `says`.
fn bad(path: &str, text: &str, line: usize, says: &str) {
    let found = faults(path, &documented(path, text));
    let [fault] = &found[..] else { panic!("{path}: {text}: {found:?}") };
    assert_eq!((fault.path.as_str(), fault.line), (path, line), "{found:?}");
    assert!(fault.says.contains(says), "{found:?}");
}

fn documented(path: &str, text: &str) -> String {
    if path.ends_with(".rs") { format!("//! What is this?\n{text}") } else { text.to_owned() }
}

fn lines(n: usize) -> String {
    "// a line\n".repeat(n)
}

fn function(lines: usize) -> String {
    format!("fn long() {{\n{}}}\n", "    step();\n".repeat(lines - 2))
}

#[test]
fn leading_doc() {
    assert_eq!(faults(LIB, "//! Answers one question.\n"), []);
    assert_eq!(faults("crates/weftwork/tests/cases/http.rs", "// Included by every engine.\n"), []);
    for text in ["", "fn f() {}\n", "// no doc\n", "//!\n", "use std::fs;\n//! late\n"] {
        let found = faults(LIB, text);
        assert!(found.len() == 1 && found[0].line == 1 && found[0].says.contains("`//!`"), "{found:?}");
    }
}

#[test]
fn file_length() {
    good(LIB, &lines(499));
    bad(LIB, &lines(500), 501, "501 lines, 500 at most");
    for path in ["crates/wire/src/head/tests.rs", "crates/weftwork/tests/http.rs"] {
        good(path, &lines(799));
        bad(path, &lines(800), 801, "801 lines, 800 at most");
    }
}

#[test]
fn function_length() {
    good(LIB, &function(70));
    bad(LIB, &function(71), 2, "fn long has 71 lines, 70 at most");
    good("crates/wire/src/head/tests.rs", &function(120));
    bad("crates/wire/src/head/tests.rs", &function(121), 2, "121 lines, 120 at most");
    let module = |n| format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function(n));
    good(LIB, &module(120));
    bad(LIB, &module(121), 4, "121 lines, 120 at most");
    bad(LIB, &module(71).replace("(test)", "(not(test))"), 4, "71 lines, 70 at most");
}

#[test]
fn braces_in_text_do_not_count() {
    let text = r##"
        fn one<'a>(x: [u8; 2]) -> &'a str { let _ = ('{', '\'', b'{', "{\"", r#"{"{"#); /* { /* { */ */ x } // {
        fn two();
        fn three(f: fn(u8)) {
            fn four() {}
        }
    "##;
    let found = functions(&Source::new(text).code);
    let found: Vec<_> = found.iter().map(|f| (f.name.as_str(), f.first, f.last)).collect();
    assert_eq!(found, [("one", 1, 1), ("three", 3, 5), ("four", 4, 4)]);
}

#[test]
fn imports_are_spelt_out() {
    let code =
        Source::new("use std::{io::{self, Read}, fs as files,\n  net};\nfn f() -> impl A + use<'_> {}").code;
    let paths: Vec<_> = imports(&code).into_iter().map(|(_, path)| path).collect();
    assert_eq!(paths, ["std::io::self", "std::io::Read", "std::fs", "std::net"]);
}

#[test]
fn deferrals() {
    good(LIB, "const NAMES: &[&str] = &[\"TODO\", \"todo!()\"]; // TODOs and XXXL are words of their own\n");
    bad(LIB, "\n// TODO: later\n", 3, "TODO");
    bad(LIB, "/* FIXME */\n", 2, "FIXME");
    bad(LIB, "fn f() {} // XXX\n", 2, "XXX");
    bad(LIB, "fn f() {\n    todo!()\n}\n", 3, "todo!");
    bad(LIB, "fn f() {\n    unimplemented!()\n}\n", 3, "unimplemented!");
    bad(LIB, "#[test]\n#[ignore = \"slow\"]\nfn f() {}\n", 3, "#[ignore");
}

#[test]
fn white_space() {
    good("README.md", "one\n\n  two\n");
    good("empty.md", "");
    bad("README.md", "one \ntwo\n", 1, "end of the line");
    bad("README.md", "one\r\n", 1, "end of the line");
    bad("a.sh", "one\n\ttwo\n", 2, "tab");
    bad("a.toml", "one\ntwo", 2, "no newline");
    good("fuzz/seeds/head/one", "GET / HTTP/1.1\r\n\r\n\t");
}

#[test]
fn examples_are_named_with_their_package() {
    let run = |options: &str| format!("`cargo run {options}{}hello`\n", ["--exam", "ple "].concat());
    good("README.md", &run("-p weftwork-examples "));
    bad("README.md", &run(""), 1, "-p weftwork-examples");
    bad("examples/examples/hello.rs", &format!("// {}", run("")), 2, "from the root");
}

#[test]
fn pages_hide_nothing_of_their_examples() {
    good("a.md", "# A page\n\n```sh\n# a comment\n```\n\n```rust\n#[test]\nfn f() {}\n```\n# More\n");
    bad("a.md", "```rust\nlet a = 1;\n# assert_eq!(a, 1);\n```\n", 3, "as it is");
}

#[test]
fn machine_folders() {
    good("a.md", "see crates/wire/src and /tmp/x\n");
    for folder in [["/wo", "rk/x"], ["/ro", "ot/x"], ["/tmp/tar", "get-x"]] {
        bad("a.md", &format!("\ncd {}\n", folder.concat()), 2, "folder of one machine");
    }
}

#[test]
fn unsafe_code() {
    good("crates/fiber/src/stack.rs", "fn f() { unsafe { g() } }\n");
    good(LIB, "#![forbid(unsafe_code)]\n// unsafe\nconst S: &str = \"unsafe\";\n");
    bad(LIB, "\nfn f() { unsafe { g() } }\n", 3, "unsafe outside crates/fiber/");
    bad("crates/wire/src/tests.rs", "unsafe fn f() {}\n", 2, "unsafe outside crates/fiber/");
}

#[test]
fn panics() {
    good(WIRE, "fn f() { a.unwrap_or(1); b.unwrap_or_default(); } // .unwrap()\n");
    good(WIRE, "fn f() { a.unwrap() } // cannot fail: a is Some from here on\n");
    good(WIRE, "// cannot fail: two digits\n// are always a number\nlet n = a.expect(\"n\");\n");
    good(WIRE, "#[cfg(test)]\nmod tests {\n    fn f() { a.unwrap() }\n}\n");
    good("crates/wire/src/head/tests.rs", "fn f() { a.unwrap() }\n");
    good("crates/cli/src/main.rs", "fn f() { a.unwrap() }\n");
    for path in [LIB, WIRE, "crates/fiber/src/stack.rs"] {
        bad(path, "\nfn f() { a.unwrap() }\n", 3, ".unwrap() can panic");
        bad(path, "fn f() {\n    a\n        .expect(\"a\")\n}\n", 4, ".expect( can panic");
    }
    bad(WIRE, "fn f() { a.unwrap() } // cannot fail:\n", 2, ".unwrap() can panic");
    bad(WIRE, "fn f() { a.unwrap() } // cannot fail: a is Some\nfn g() { b.unwrap() }\n", 3, ".unwrap()");
    bad(WIRE, "struct S { #[cfg(test)] x: u8 }\nfn g() { b.unwrap() }\n", 3, ".unwrap()");
    bad(WIRE, "// cannot fail: this one\nfn f() { a.unwrap() }\nfn g() { b.unwrap() }\n", 4, ".unwrap()");
}

#[test]
fn a_module_declared_for_tests_is_test_code() {
    let check = |parent: &str, declares: &str, child: &str, faults: usize| {
        let parent = (format!("crates/wire/src/{parent}"), format!("//! Parent.\n{declares}\n"));
        let child = (format!("crates/wire/src/{child}"), "//! Child.\nfn f() { a.unwrap() }\n".to_owned());
        assert_eq!(check(&files([parent, child])).len(), faults, "{declares}");
    };
    check("head.rs", "#[cfg(all(test, loom))]\nmod samples;", "head/samples.rs", 0);
    check("head.rs", "#[cfg(test)]\npub(crate) mod samples;", "head/samples/mod.rs", 0);
    check("head.rs", "#[cfg(test)]\nmod samples;", "head/samples/one.rs", 0);
    check("lib.rs", "#[cfg(test)]\nmod samples;", "samples.rs", 0);
    check("head.rs", "mod samples;", "head/samples.rs", 1);
    check("head.rs", "#[cfg(test)]\nmod other;\nmod samples;", "head/samples.rs", 1);
    check("head.rs", "#[cfg(test)]\nmod samples;", "samples.rs", 1);
}

#[test]
fn layers() {
    good(WIRE, "use std::io; use memchr::memchr; // std::net\n");
    good(WIRE, "use core::net::Ipv6Addr;\n");
    good(WIRE, "#[cfg(test)]\nmod tests {\n    use std::thread;\n}\n");
    for never in ["std::net::TcpStream", "std::{fmt, io::Read}", "mio::Poll", "rustix::io", "std::thread"] {
        bad(WIRE, &format!("use std::fmt;\nuse {never};\n"), 3, "wire turns bytes into events");
    }
    bad(WIRE, "fn f() { Instant::now(); }\n", 2, "mentions Instant::now");

    let path = |path: &str| format!("crates/weftwork/src/{path}.rs");
    let meets = |from: &str, what: &str| bad(&path(from), &format!("use {what};\n"), 2, "mentions");
    let knows = |from: &str, what: &str| good(&path(from), &format!("use {what};\n"));
    for from in ["message/request", "transport"] {
        for above in ["conn::Conn", "engine", "app::{Router}", "server"] {
            meets(from, &format!("crate::{above}"));
        }
        knows(from, "crate::{message::Request, transport::Stream}");
    }
    meets("message/mod", "super::conn");
    meets("conn", "crate::{message, engine::seat}");
    meets("conn/write", "super::super::server");
    knows("conn", "crate::{message, transport}");
    knows("conn/write", "super::server");
    meets("engine/adaptive", "crate::app::Router");
    meets("engine/adaptive", "weftwork_wire::Head");
    knows("engine/adaptive", "crate::{conn::Conn, transport}");
    meets("app/files", "crate::engine::Engine");
    meets("app", "super::server");
    knows("app", "weftwork_wire::etags");
    knows("server", "crate::{app, engine}");
}

#[test]
fn names_that_were_given_up() {
    let conn = "crates/weftwork/src/conn/feed_body.rs";
    for item in ["struct Fed;", "pub(crate) enum Wait {}", "trait Asked<'a> {}", "type Pending = u8;"] {
        bad(conn, &format!("// A comment.\n{item}\n"), 3, "was given up");
        good("crates/bench/src/load.rs", &format!("{item}\n"));
    }
    good(conn, "struct FeedBody { wait: Wait }\nfn step() -> Step { Step::Wait }\n// struct Fed;\n");
    bad("crates/weftwork/src/conn/fed.rs", "fn f() {}\n", 1, "the file name fed was given up");
    good("crates/weftwork/src/app/fed.rs", "fn f() {}\n");
}
