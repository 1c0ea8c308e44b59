//! Tests that every value is read back from the path that was written for it.

use proptest::prelude::*;
use weftwork::TestClient;
use weftwork::prelude::*;

/// Each kind of field, beside literal routes that its values could be mistaken for.
#[derive(Routes, Debug, PartialEq, Clone)]
enum Site {
    #[get("/one/{text}")]
    One { text: String },
    #[get("/one/new")]
    New,
    #[get("/one/ü ü")]
    Spelt,
    #[get("/one/ x")]
    Spaced,
    #[get("/one/ ü")]
    SpacedFar,
    #[get("/two/{a}/{b}")]
    Two { a: String, b: i64 },
    #[get("/two/list/0")]
    List,
    #[get("/rest/{*rest}")]
    Rest { rest: String },
    #[get("/rest/new/raw")]
    Raw,
    #[get("/rest/{id}/raw/raw")]
    DeepRaw { id: String },
    #[get("/query?{text}&{number}&{many}&other-name={other}")]
    Query { text: String, number: Option<i128>, many: Vec<String>, other: Option<String> },
    #[get("/number/{a}/{b}/{c}/{d}")]
    Numbers { a: u8, b: f64, c: char, d: bool },
    #[get("/{first}/{second}")]
    Top { first: String, second: String },
    #[nest("/nest/{key}")]
    Nest { key: String, inner: Inner },
}

#[derive(Routes, Debug, PartialEq, Clone)]
enum Inner {
    #[get("/{text}?{q}")]
    Text { text: String, q: Option<String> },
    #[get("/x/{*rest}")]
    Rest { rest: String },
}

/// Returns text that is often hard on paths.
fn text() -> impl Strategy<Value = String> {
    let hard = prop::sample::select(vec![
        "",
        ".",
        "..",
        "/",
        "//",
        "%",
        "%2F",
        "%zz",
        "+",
        " ",
        " x",
        " ü",
        "&",
        "=",
        "?",
        "#",
        "new",
        "raw",
        "list",
        "0",
        "one",
        "ü ü",
        "ü",
        "\u{1F600}",
        "\0",
        "\n",
        "a/../b",
        "./",
        "/.",
        "new/raw",
        "x/raw/raw",
        "%2e",
        "'\"<>",
    ]);
    prop_oneof![
        hard.clone().prop_map(str::to_owned),
        prop::collection::vec(hard, 0..4).prop_map(|parts| parts.concat()),
        any::<String>(),
    ]
}

/// Returns the same, except text that no capture of one segment and no `Option` can hold.
fn segment() -> impl Strategy<Value = String> {
    text().prop_filter("an empty one is none", |text| !text.is_empty())
}

fn site() -> impl Strategy<Value = Site> {
    prop_oneof![
        segment().prop_map(|text| Site::One { text }),
        Just(Site::New),
        Just(Site::Spelt),
        Just(Site::Spaced),
        Just(Site::SpacedFar),
        (segment(), any::<i64>()).prop_map(|(a, b)| Site::Two { a, b }),
        Just(Site::List),
        text().prop_map(|rest| Site::Rest { rest }),
        Just(Site::Raw),
        segment().prop_map(|id| Site::DeepRaw { id }),
        (text(), any::<Option<i128>>(), prop::collection::vec(text(), 0..4), prop::option::of(segment()))
            .prop_map(|(text, number, many, other)| Site::Query { text, number, many, other }),
        (any::<u8>(), -1e300..1e300, any::<char>(), any::<bool>()).prop_map(|(a, b, c, d)| Site::Numbers {
            a,
            b,
            c,
            d
        }),
        (segment(), segment()).prop_map(|(first, second)| Site::Top { first, second }),
        (segment(), inner()).prop_map(|(key, inner)| Site::Nest { key, inner }),
    ]
}

fn inner() -> impl Strategy<Value = Inner> {
    prop_oneof![
        (segment(), prop::option::of(segment())).prop_map(|(text, q)| Inner::Text { text, q }),
        text().prop_map(|rest| Inner::Rest { rest }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_value_is_read_back(route in site()) {
        let path = route.to_path();
        prop_assert_eq!(Site::from_path(&Method::GET, &path), Ok(route), "{}", path);
    }

    /// Also through the parser of requests, and without dot segments as RFC 3986 defines them. Browsers also
    /// treat `%2E` as a dot segment, and no encoding avoids that.
    #[test]
    fn every_path_is_one_that_can_be_sent(route in site()) {
        let path = route.to_path();
        prop_assert!(path.starts_with('/') && path.is_ascii() && !path.contains(['#', ' ', '"', '<']));
        prop_assert!(!route.href().starts_with("//"));
        let segments: Vec<&str> = path.split(['/', '?']).collect();
        prop_assert!(!segments.contains(&".") && !segments.contains(&".."));
        let wanted = route.clone();
        let mut client = TestClient::new(routes(move |got: Site, _: &mut Request| (got == wanted).to_string()));
        let answer = client.get(path).send();
        prop_assert_eq!(answer.text(), "true");
    }

    /// Whatever a client sends, there is an answer and no panic. An accepted path is written back as an
    /// accepted path.
    #[test]
    fn no_path_is_too_strange(path in "/[a-z%/.2Fe?&=+]{0,24}") {
        if let Ok(route) = Site::from_path(&Method::GET, &path) {
            prop_assert_eq!(Site::from_path(&Method::GET, &route.to_path()), Ok(route));
        }
    }
}

#[test]
fn a_value_that_reads_like_a_literal_is_disguised() {
    assert_eq!(Site::One { text: "new".into() }.to_path(), "/one/%6Eew");
    assert_eq!(Site::One { text: "ü ü".into() }.to_path(), "/one/%c3%BC%20%C3%BC");
    assert_eq!(Site::One { text: " x".into() }.to_path(), "/one/%20%78");
    assert_eq!(Site::One { text: " ü".into() }.to_path(), "/one/%20%c3%BC");
    assert_eq!(Site::One { text: "newer".into() }.to_path(), "/one/newer");
    assert_eq!(Site::One { text: "..".into() }.to_path(), "/one/%2E%2E");
    assert_eq!(Site::Rest { rest: "new/raw".into() }.to_path(), "/rest/%6Eew/%72aw");
}

/// As in the documentation of `Routes`.
#[test]
fn a_link_to_an_any_route_leads_to_the_get_route_of_that_path() {
    #[derive(Routes, Debug, PartialEq)]
    enum Hooks {
        #[any("/hook")]
        Hook,
        #[get("/hook")]
        Page,
    }
    assert_eq!((Hooks::Hook.method(), Hooks::Hook.to_path().as_str()), (Method::GET, "/hook"));
    assert_eq!(Hooks::from_path(&Method::GET, "/hook"), Ok(Hooks::Page));
    assert_eq!(Hooks::from_path(&Method::POST, "/hook"), Ok(Hooks::Hook));
}
