//! Tests that a hundred routes find the same as matchit.

#[path = "../support/hundred.rs"]
mod site;

use site::Hundred;
use weftwork::prelude::*;

/// Returns matchit's trees, one for each method, with the name of the route's variant.
fn trees() -> Vec<(Method, matchit::Router<&'static str>)> {
    let mut trees: Vec<(Method, matchit::Router<&'static str>)> = Vec::new();
    for route in Hundred::ROUTES {
        let method = route.methods.first();
        let path = route.pattern.split('?').next().unwrap();
        if trees.iter().all(|(known, _)| *known != method) {
            trees.push((method.clone(), matchit::Router::new()));
        }
        let (_, tree) = trees.iter_mut().find(|(known, _)| *known == method).unwrap();
        tree.insert(path, route.name).unwrap();
    }
    trees
}

/// Returns true for an id that is not a number. Our routes refuse it.
fn has_strange_id(found: &matchit::Match<'_, '_, &&str>) -> bool {
    found.params.iter().any(|(name, value)| name != "path" && value.parse::<u32>().is_err())
}

#[test]
fn a_hundred_routes_find_what_matchit_finds() {
    assert_eq!(Hundred::ROUTES.len(), 100);
    let mut hits = 0;
    for (method, tree) in trees() {
        for route in Hundred::ROUTES {
            let path = route.pattern.split('?').next().unwrap();
            let path = path.replace("{id}", "7").replace("{note}", "8").replace("{*path}", "css/a.css");
            for path in
                [path.clone(), format!("{path}/"), format!("{path}x"), path[..path.len() - 1].to_owned()]
            {
                let ours = Hundred::from_path(&method, &path).ok().map(|route| format!("{route:?}"));
                let name = ours.as_deref().and_then(|name| name.split(' ').next());
                let theirs = match tree.at(&path) {
                    Ok(found) if has_strange_id(&found) => None,
                    Ok(found) => Some(*found.value),
                    // matchit accepts no empty rest.
                    Err(_) => (method == Method::GET && path == "/assets/").then_some("Asset"),
                };
                hits += usize::from(name.is_some());
                assert_eq!(name, theirs, "{method} {path}");
            }
        }
    }
    // GET, POST, PUT, DELETE.
    assert_eq!(hits, 103 + 20 + 30 + 30);
}
