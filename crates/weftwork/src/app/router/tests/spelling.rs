//! Is a route found by what browsers send for it?

use super::*;
use crate::app::spelling::canonical_segment;

/// Browsers send `|`, `[` and `]` as they are, and some `^`; captures keep what was sent, and where it was.
#[test]
fn what_browsers_leave_as_it_is_leads_to_its_route() {
    let inner = Router::new().get("/^{rest}]", show("inner"));
    let router = Router::new()
        .get("/a|b", show("literal"))
        .get("/{page}", show("page"))
        .post("/[x]/{y}|c/{*rest}", show("captures"))
        .mount("/in", inner);
    check(
        router,
        &[
            ("GET /a|b", "literal /a|b []"),
            ("GET /a%7Cb", "literal /a%7Cb []"),
            ("HEAD /a|b", ""),
            ("POST /a|b", "405 GET, HEAD, OPTIONS"),
            ("OPTIONS /a%7Cb", "204 GET, HEAD, OPTIONS"),
            ("GET /a|c", "page /a|c [page=a|c]"),
            ("GET /[x]/", "404"),
            ("POST /[x]/^y|c/[|]/^", "captures /[x]/^y|c/[|]/^ [y=^y rest=[|]/^]"),
            ("POST /%5Bx%5D/^y%7Cc/|", "captures /%5Bx%5D/^y%7Cc/| [y=^y rest=|]"),
            ("GET /in/^a|b]", "inner /in/^a|b] [rest=a|b]"),
            ("GET /in/^]", "404"),
        ],
    );
}

#[test]
fn a_route_that_declines_leaves_it_to_the_next() {
    let router = Router::new()
        .get("/a|b/{x}", |_: &mut Request<'_>| Response::decline())
        .get("/{y}/{z}", show("next"));
    check(router, &[("GET /a|b/^", "next /a|b/^ [y=a|b z=^]"), ("POST /a|b/^", "405 GET, HEAD, OPTIONS")]);
    let router = Router::new().get("/{repo}.g|t/info", show("git")).get("/{repo}/{page}", show("web"));
    check(
        router,
        &[
            ("GET /^.g|t/info", "git /^.g|t/info [repo=^]"),
            ("GET /^.g|t/log", "web /^.g|t/log [repo=^.g|t page=log]"),
        ],
    );
}

/// As files are redirected, so that a route in front is where they are found.
#[test]
fn literal_parts_are_canonical() {
    for plain in
        ('\0'..='\u{7f}').filter(|c| !"%/{}?#".contains(*c)).chain(['\u{fc}', '\u{20ac}', '\u{1f600}'])
    {
        let plain = format!("a{plain}b");
        let text = Pattern::parse(&format!("/{plain}")).unwrap().text;
        assert_eq!(text, format!("/{}", canonical_segment(plain.as_bytes())), "{plain}");
    }
}
