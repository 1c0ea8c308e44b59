//! Who is measured?

use std::fmt;
use std::str::FromStr;

use crate::peers::{PEERS, Peer};
use crate::site::Site;
use crate::workloads::Ask;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The hand-written floor that suits the workload.
    Floor,
    /// The floor of threads, starting one for each connection: what is commonly meant by it, and slower.
    FloorSpawn,
    /// The demo of weft, on its default engine or a named one.
    Weft { engine: Option<String> },
    /// Somebody else's server.
    Peer(&'static Peer),
    /// A server of ours with one handler for all paths, and the same with a hundred typed routes: `router` alone.
    Site(Site),
}

/// All of them, and every engine by its name.
pub(crate) fn all() -> Vec<Subject> {
    let engines = ["adaptive", "reactor", "workers", "pool", "fibers"];
    let weft = engines.map(|engine| Subject::Weft { engine: Some(engine.to_owned()) });
    [Subject::Floor].into_iter().chain(weft).chain(PEERS.iter().map(Subject::Peer)).collect()
}

impl Subject {
    pub(crate) fn can(&self, ask: Ask) -> bool {
        match self {
            // It sends canned bytes, whatever is asked: for an echo that is no work at all, and no answer.
            Subject::Floor => !matches!(ask, Ask::Echo | Ask::File | Ask::Route),
            Subject::FloorSpawn => matches!(ask, Ask::Slow | Ask::Wait),
            Subject::Weft { .. } => ask != Ask::Route,
            Subject::Peer(peer) => peer.can.contains(&ask),
            Subject::Site(_) => ask == Ask::Route,
        }
    }

    pub(crate) fn is_weft(&self) -> bool {
        matches!(self, Subject::Weft { .. })
    }

    /// The one that columns are won or lost by.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self, Subject::Weft { engine } if engine.as_deref().is_none_or(|engine| engine == "adaptive"))
    }

    pub(crate) fn is_floor(&self) -> bool {
        matches!(self, Subject::Floor | Subject::FloorSpawn)
    }
}

impl FromStr for Subject {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if let Some(peer) = PEERS.iter().find(|peer| peer.name == name) {
            return Ok(Subject::Peer(peer));
        }
        match name.split_once(':') {
            None if name == "floor" => Ok(Subject::Floor),
            None if name == "weft" => Ok(Subject::Weft { engine: None }),
            Some(("floor", "spawn")) => Ok(Subject::FloorSpawn),
            Some(("weft", engine)) if !engine.is_empty() => {
                Ok(Subject::Weft { engine: Some(engine.to_owned()) })
            }
            _ => {
                let peers: Vec<&str> = PEERS.iter().map(|peer| peer.name).collect();
                let peers = peers.join(", ");
                Err(format!("unknown subject '{name}': floor, floor:spawn, weft, weft:ENGINE, {peers}"))
            }
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Floor => out.write_str("floor"),
            Subject::FloorSpawn => out.write_str("floor:spawn"),
            Subject::Weft { engine: None } => out.write_str("weft"),
            Subject::Weft { engine: Some(engine) } => write!(out, "weft:{engine}"),
            Subject::Peer(peer) => out.write_str(peer.name),
            Subject::Site(site) => out.write_str(site.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_a_round_trip() {
        let all = all();
        let names = all.iter().map(Subject::to_string);
        for name in names.chain(["floor:spawn", "weft", "weft:reactor:2"].map(str::to_owned)) {
            assert_eq!(name.parse::<Subject>().map(|subject| subject.to_string()), Ok(name));
        }
        for name in ["", "weft:", "apache", "floor:x"] {
            assert!(name.parse::<Subject>().is_err(), "{name}");
        }
    }
}
