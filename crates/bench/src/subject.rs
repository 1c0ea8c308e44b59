//! The servers that are measured, by their names.

use std::fmt;
use std::str::FromStr;

use crate::peers::{PEERS, Peer};
use crate::site::Site;
use crate::workloads::{Ask, Workload};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The hand-written floor that suits the workload.
    Floor,
    /// The demo of weft, on its default engine or a named one.
    Weft { engine: Option<String> },
    /// The server of another project.
    Peer(&'static Peer),
    /// A server of ours for `router` alone: one handler for all paths, or a hundred typed routes.
    Site(Site),
}

/// Returns all of them, with every engine by its name.
pub(crate) fn all() -> Vec<Subject> {
    let engines = ["adaptive", "reactor", "workers", "pool", "fibers"];
    let weft = engines.map(|engine| Subject::Weft { engine: Some(engine.to_owned()) });
    [Subject::Floor].into_iter().chain(weft).chain(PEERS.iter().map(Subject::Peer)).collect()
}

pub(crate) fn quick() -> Vec<Subject> {
    ["floor", "nginx", "weft"].into_iter().filter_map(|name| name.parse().ok()).collect()
}

pub(crate) fn tls() -> Vec<Subject> {
    ["weft", "nginx", "h2o", "hyper", "go-nethttp"].into_iter().filter_map(|name| name.parse().ok()).collect()
}

impl Subject {
    pub(crate) fn can(&self, ask: Ask) -> bool {
        match self {
            // It sends canned bytes, whatever is asked: no echo, and no work for one.
            Subject::Floor => !matches!(ask, Ask::Echo | Ask::File | Ask::Route),
            Subject::Weft { .. } => ask != Ask::Route,
            Subject::Peer(peer) => peer.can.contains(&ask),
            Subject::Site(_) => ask == Ask::Route,
        }
    }

    pub(crate) fn takes(&self, workload: &Workload) -> bool {
        match (workload.group().tls, self) {
            (None, _) => self.can(workload.ask),
            (Some(_), Subject::Peer(peer)) => ["nginx", "h2o", "hyper", "go-nethttp"].contains(&peer.name),
            (Some(_), _) => self.is_weft(),
        }
    }

    pub(crate) fn is_weft(&self) -> bool {
        matches!(self, Subject::Weft { .. })
    }

    pub(crate) fn is_floor(&self) -> bool {
        *self == Subject::Floor
    }

    /// Whether ratios to it are taken.
    pub(crate) fn is_compared_with(&self) -> bool {
        match self {
            Subject::Floor | Subject::Site(Site::Bare) => true,
            Subject::Peer(peer) => peer.name == "nginx",
            _ => false,
        }
    }

    /// The rules of HTTP/1.1 that it breaks.
    pub(crate) fn breaks(&self) -> &'static [&'static str] {
        match self {
            Subject::Peer(peer) => peer.breaks,
            Subject::Floor => &["nearly all: it reads nothing"],
            _ => &[],
        }
    }

    /// Its configuration, in words.
    pub(crate) fn about(&self) -> &'static str {
        match self {
            Subject::Floor => {
                "hand-written: reads, and answers with canned bytes; parses nothing, limits nothing"
            }
            Subject::Weft { .. } => {
                "`weft demo`, for files `weft serve`, as they come, without metrics: every limit and deadline on; what waits without blocking does so by \
                 `Response::with_delay`, on fibers in the handler, by `weftwork::sleep`"
            }
            Subject::Peer(peer) => peer.about,
            Subject::Site(Site::Bare) => "one handler, whatever the path",
            Subject::Site(Site::Typed) => "the same answer behind `#[derive(Routes)]` with 100 routes",
        }
    }
}

impl FromStr for Subject {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if let Some(peer) = PEERS.iter().find(|peer| peer.name == name) {
            return Ok(Subject::Peer(peer));
        }
        if let Some(site) = [Site::Bare, Site::Typed].into_iter().find(|site| site.name() == name) {
            return Ok(Subject::Site(site));
        }
        match name.split_once(':') {
            None if name == "floor" => Ok(Subject::Floor),
            None if name == "weft" => Ok(Subject::Weft { engine: None }),
            Some(("weft", engine)) if !engine.is_empty() => {
                Ok(Subject::Weft { engine: Some(engine.to_owned()) })
            }
            _ => {
                let peers: Vec<&str> = PEERS.iter().map(|peer| peer.name).collect();
                let peers = peers.join(", ");
                Err(format!("unknown subject '{name}': floor, weft, weft:ENGINE, {peers}"))
            }
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Floor => out.write_str("floor"),
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
        for name in names.chain(["bare", "typed", "weft", "weft:reactor:2"].map(str::to_owned)) {
            assert_eq!(name.parse::<Subject>().map(|subject| subject.to_string()), Ok(name));
        }
        for name in ["", "weft:", "apache", "floor:x"] {
            assert!(name.parse::<Subject>().is_err(), "{name}");
        }
    }
}
