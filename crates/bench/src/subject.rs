//! Who is measured?

use std::fmt;
use std::str::FromStr;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The hand-written floor that suits the workload.
    Floor,
    /// The floor of threads, starting one for each connection: what is commonly meant by it, and slower.
    FloorSpawn,
    Nginx,
    /// The demo of weft, on its default engine or a named one.
    Weft {
        engine: Option<String>,
    },
}

impl FromStr for Subject {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name.split_once(':') {
            None if name == "floor" => Ok(Subject::Floor),
            None if name == "nginx" => Ok(Subject::Nginx),
            None if name == "weft" => Ok(Subject::Weft { engine: None }),
            Some(("floor", "spawn")) => Ok(Subject::FloorSpawn),
            Some(("weft", engine)) if !engine.is_empty() => {
                Ok(Subject::Weft { engine: Some(engine.to_owned()) })
            }
            _ => Err(format!("unknown subject '{name}': floor, floor:spawn, nginx, weft or weft:ENGINE")),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Floor => out.write_str("floor"),
            Subject::FloorSpawn => out.write_str("floor:spawn"),
            Subject::Nginx => out.write_str("nginx"),
            Subject::Weft { engine: None } => out.write_str("weft"),
            Subject::Weft { engine: Some(engine) } => write!(out, "weft:{engine}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_a_round_trip() {
        for name in ["floor", "floor:spawn", "nginx", "weft", "weft:reactor", "weft:reactor:2"] {
            assert_eq!(name.parse::<Subject>().map(|subject| subject.to_string()), Ok(name.to_owned()));
        }
        for name in ["", "weft:", "apache", "floor:x"] {
            assert!(name.parse::<Subject>().is_err(), "{name}");
        }
    }
}
