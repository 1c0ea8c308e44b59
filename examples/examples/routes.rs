//! Routes as an enum: parsed, matched and linked by type. `cargo run -p weftwork-examples --example routes`,
//! then <http://127.0.0.1:8080>.

use weftwork::prelude::*;

#[derive(Routes)]
pub(crate) enum Site {
    #[get("/")]
    Home,
    #[get("/books/{id}")]
    Book { id: usize },
    #[get("/search?{word}&{limit}")]
    Search { word: String, limit: Option<usize> },
    #[nest("/admin")]
    Admin(Admin),
}

#[derive(Routes)]
pub(crate) enum Admin {
    #[get("/")]
    Overview,
    #[post("/books/{id}/hide")]
    Hide { id: usize },
}

const BOOKS: [&str; 3] = ["Emma", "Ulysses", "Dune"];

fn links(ids: impl Iterator<Item = usize>) -> String {
    let links = ids.map(|id| format!("<li>{}", Site::Book { id }.link(BOOKS[id])));
    format!("<ul>{}</ul>\n", links.collect::<String>())
}

pub(crate) fn site(route: Site, _: &mut Request) -> Response {
    match route {
        Site::Home => html(links(0..BOOKS.len())),
        Site::Book { id } => match BOOKS.get(id) {
            Some(title) => text(format!("{title}\n")),
            None => Response::decline(),
        },
        Site::Search { word, limit } => {
            let found = (0..BOOKS.len()).filter(|id| BOOKS[*id].contains(&word));
            html(links(found.take(limit.unwrap_or(10))))
        }
        Site::Admin(Admin::Overview) => text("all is well\n"),
        Site::Admin(Admin::Hide { id }) => Site::Book { id }.redirect(),
    }
}

pub(crate) fn main() -> weftwork::Result<()> {
    print!("{}", Site::list());
    Server::bind("127.0.0.1:8080")?.run(routes(site))
}
