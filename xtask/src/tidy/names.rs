//! Refuses file and type names that were given up for the field's own terms, so that they do not come back.

use super::File;
use super::layers::holds;
use super::scan::{Source, line_of, words};

/// Names that must not come back in a module. They are separated by spaces.
struct GivenUp {
    /// The file `path.rs` and all of the folder `path/`.
    path: &'static str,
    files: &'static str,
    types: &'static str,
}

const GIVEN_UP: &[GivenUp] = &[
    GivenUp {
        path: "crates/weftwork/src",
        files: "miss verbs view",
        types: "Asked Miss Malformed Verbs Listed Dispatch With View Counts Blame TooLate Overflow \
            Receive Abandoned Report ByteCount Room Bell Kept Told Fate",
    },
    GivenUp {
        path: "crates/weftwork/src/engine",
        files: "berth commons desk door doors errand gauge habits hub listing nowhere patience place \
            porter roster seat solo standby stay table turn visits waitlist watcher away bell",
        types: "Alarms AtDoor Berth Commons Crew Desk Doors Entered Errand FeedBell Given Ground Guest \
            Habits Hand Heard Held Hub Joined Lay Leading Led Letter Letterbox Listening Loop \
            Mailbox Muster News OnAnyFiber OnAnyThread OnFiber OnThisThread Order Place Roster Seat \
            Shortage Solo Standby Suspending Table Visit Waitlist Watch Way",
    },
    GivenUp {
        path: "crates/weftwork/src/conn",
        files: "ending fed lasting later live open preface reading rest takeover wait writing",
        types: "Fed Held Left Live Open Pending Rest Socket Wait",
    },
    GivenUp {
        path: "crates/weftwork/src/message",
        files: "failed later needs room routed texts values",
        types: "Failed Lasting Later Line Need Notes Only Part Pulled ReceiverPanic Routed Silence Take \
            Wakes",
    },
    GivenUp {
        path: "crates/weftwork/src/transport",
        files: "budget spare",
        types: "LineBudget Loan Pace Patience Pool Post Signal Spare Surplus Timeout",
    },
    GivenUp { path: "crates/weftwork/src/server", files: "last_words", types: "LastWords" },
    GivenUp { path: "crates/weftwork/src/settings", files: "nearest", types: "" },
    GivenUp {
        path: "crates/weftwork/src/app",
        files: "answer crumbs description forward kept place recent spelling variants",
        types: "Got Hands Keeper Link Misspelling Place Seat",
    },
    GivenUp {
        path: "crates/weftwork/src/testing",
        files: "rein",
        types: "Bench Part Rein Skipping Turn Turns",
    },
    GivenUp { path: "crates/fiber/src", files: "gate large", types: "Alarm Gate Place Shut" },
    GivenUp { path: "crates/macros/src", files: "rivals", types: "Place" },
];

const DEFINITIONS: &[&str] = &["struct", "enum", "trait", "type", "union"];

pub(super) fn check(file: &File, source: &Source, say: &mut impl FnMut(usize, String)) {
    let lists = || GIVEN_UP.iter().filter(|list| holds(list.path, &file.path));
    let has = |names: &str, name: &str| names.split_whitespace().any(|given_up| given_up == name);
    let name = file.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".rs");
    if lists().any(|list| has(list.files, name)) {
        say(0, format!("the file name {name} was given up; use the field's own term"));
    }
    for (line, name) in defined(&source.code) {
        if lists().any(|list| has(list.types, name)) {
            say(line, format!("the type name {name} was given up; use the field's own term"));
        }
    }
}

/// Returns the types that the code defines, each with its line (0 is the first).
fn defined(code: &str) -> impl Iterator<Item = (usize, &str)> {
    DEFINITIONS.iter().flat_map(move |keyword| {
        words(code, keyword).map(move |at| {
            let after = code[at + keyword.len()..].trim_start();
            let end = after.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(after.len());
            (line_of(code, at), &after[..end])
        })
    })
}
