//! A route cannot have CONNECT.

use weftwork::prelude::*;

#[derive(Routes)]
enum Site {
    #[get("/")]
    Home,
    #[connect("/tunnel")]
    Tunnel,
}

fn main() {}
