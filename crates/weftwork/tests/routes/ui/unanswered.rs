//! A route that the function does not answer.

use weftwork::prelude::*;

#[derive(Routes)]
enum Site {
    #[get("/")]
    Home,
    #[get("/about")]
    About,
}

fn site(route: Site, _: &mut Request) -> &'static str {
    match route {
        Site::Home => "home",
    }
}

fn serve() -> impl Handler {
    routes(site)
}

fn main() {}
