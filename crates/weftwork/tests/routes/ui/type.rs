//! A type cannot be read from a path, or cannot be missing from it.

use weftwork::prelude::*;

struct Id(u64);

impl std::str::FromStr for Id {
    type Err = std::num::ParseIntError;
    fn from_str(text: &str) -> std::result::Result<Id, Self::Err> {
        text.parse().map(Id)
    }
}

#[derive(Routes)]
enum Site {
    #[get("/users/{id}")]
    User { id: Id },
    #[nest("/admin")]
    Admin(u64),
}

#[derive(Routes)]
enum Other {
    #[get("/users/{id}")]
    User { id: Option<u64> },
}

fn main() {}
