//! Checks which module may use which: the layers of ARCHITECTURE.md, as one table.

use super::File;
use super::scan::{Source, imports};

/// Paths that the code in one file or folder never mentions. Its tests may.
struct Layer {
    /// The file `path.rs` and all of the folder `path/`.
    path: &'static str,
    never: &'static [&'static str],
    why: &'static str,
}

const LAYERS: &[Layer] = &[
    Layer {
        path: "crates/wire/src",
        never: &["std::net", "io::Read", "mio", "rustix", "std::thread", "Instant::now"],
        why: "wire turns bytes into events and back: no I/O, no clock, no threads (addresses as values are in core::net)",
    },
    Layer {
        path: "crates/weftwork/src/message",
        never: &["crate::conn", "crate::engine", "crate::app", "crate::server"],
        why: "message is layer 1 and uses no layer above; pass a value or a trait down",
    },
    Layer {
        path: "crates/weftwork/src/transport",
        never: &["crate::conn", "crate::engine", "crate::app", "crate::server"],
        why: "transport is layer 1 and uses no layer above; pass a value or a trait down",
    },
    Layer {
        path: "crates/weftwork/src/conn",
        never: &["crate::engine", "crate::app", "crate::server"],
        why: "conn is layer 2 and uses no layer above; pass a value or a trait down",
    },
    Layer {
        path: "crates/weftwork/src/engine",
        never: &["crate::app", "crate::server", "weftwork_wire"],
        why: "an engine sees only Conn and Handler, and parses no byte; ask conn.rs for what it needs",
    },
    Layer {
        path: "crates/weftwork/src/app",
        never: &["crate::engine", "crate::server"],
        why: "app is built from Handler and knows nothing of engines; take what it needs as a parameter",
    },
    Layer {
        path: "crates/weftwork/src/tls",
        never: &["crate::conn", "crate::engine", "crate::server"],
        why: "tls makes configurations for listeners; the server hands over what it needs",
    },
];

pub(super) fn check(file: &File, source: &Source, say: &mut impl FnMut(usize, String)) {
    if file.test {
        return;
    }
    let module = module_of(&file.path);
    for layer in LAYERS.iter().filter(|layer| holds(layer.path, &file.path)) {
        let mut reported = Vec::new();
        for (line, path) in mentions(&source.code, &module) {
            let hit = layer.never.iter().find(|never| contains(&path, never));
            if let Some(never) = hit.filter(|_| !source.is_test(line))
                && !reported.contains(&(line, never))
            {
                reported.push((line, never));
                say(line, format!("mentions {never}: {}", layer.why));
            }
        }
    }
}

/// Returns whether `path` is the file `module.rs` or in the folder `module/`.
pub(super) fn holds(module: &str, path: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

/// Every path in the code, imports spelt out, `super` and `self` resolved against the file's own module.
fn mentions(code: &str, module: &[&str]) -> Vec<(usize, String)> {
    let between = |c: char| !(c == ':' || c == '_' || c.is_alphanumeric());
    let mut paths = imports(code);
    for (line, text) in code.lines().enumerate() {
        let inline = text.split(between).filter(|path| !path.is_empty());
        paths.extend(inline.map(|path| (line, path.to_owned())));
    }
    paths.into_iter().map(|(line, path)| (line, resolved(&path, module))).collect()
}

/// `super::super::engine` in `app/files.rs` is `crate::engine`.
fn resolved(path: &str, module: &[&str]) -> String {
    let mut here = module.to_vec();
    let mut rest = path;
    let mut relative = false;
    loop {
        if let Some(after) = rest.strip_prefix("super::") {
            here.pop();
            rest = after;
        } else if let Some(after) = rest.strip_prefix("self::") {
            rest = after;
        } else {
            break;
        }
        relative = true;
    }
    if !relative {
        return path.to_owned();
    }
    let mut parts = vec!["crate"];
    parts.extend(here);
    parts.push(rest);
    parts.join("::")
}

/// `crates/weftwork/src/app/files.rs` is the module `app::files`.
fn module_of(path: &str) -> Vec<&str> {
    let inside = path.split_once("/src/").map_or(path, |(_, inside)| inside);
    let mut parts: Vec<&str> = inside.trim_end_matches(".rs").split('/').collect();
    parts.pop_if(|last| matches!(*last, "lib" | "main" | "mod"));
    parts
}

/// Returns whether `path` contains the segments of `part` in a row. `std::io::Read` contains `io::Read`.
fn contains(path: &str, part: &str) -> bool {
    let path: Vec<&str> = path.split("::").collect();
    let part: Vec<&str> = part.split("::").collect();
    path.windows(part.len()).any(|window| window == part)
}
