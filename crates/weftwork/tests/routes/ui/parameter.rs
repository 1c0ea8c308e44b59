//! The text between the braces, or before the equals sign, is not a name.

use weftwork::prelude::*;

#[derive(Routes)]
enum Site {
    #[get("/s?{name}={value}")]
    Named { value: String },
    #[get("/s?={q}")]
    Nameless { q: String },
    #[get("/u/{ id }")]
    Blanks { id: u64 },
    #[get("/files/{* path }")]
    Rest { path: String },
    #[get("/list?size={size }")]
    Size { size: u64 },
}

fn main() {}
