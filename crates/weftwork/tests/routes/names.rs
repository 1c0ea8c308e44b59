//! Tests that an enum may have the name of anything that the derive's code uses.

use weftwork::TestClient;

/// For each name, an enum with every kind of route, and an enum that nests it.
macro_rules! enums_named {
    ($($module:ident: $name:ident),*) => { $(
        mod $module {
            #[derive(weftwork::Routes, Debug, PartialEq)]
            pub(super) enum $name {
                #[get("/")]
                Home,
                #[post("/users/{id}?{q}&{page}&{many}")]
                #[blocks]
                User { id: u64, q: String, page: Option<u32>, many: Vec<u32> },
                #[any("/files/{*rest}")]
                File { rest: String },
            }

            #[derive(weftwork::Routes, Debug, PartialEq)]
            pub(super) enum Nest {
                #[nest("/in/{key}")]
                In { key: String, inner: $name },
            }

            #[test]
            fn is_read_written_and_answered() {
                use weftwork::Routes as _;
                let inner = $name::User { id: 7, q: "a b".into(), page: None, many: vec![1, 2] };
                let route = Nest::In { key: "k".into(), inner };
                assert_eq!(route.to_path(), "/in/k/users/7?q=a%20b&many=1&many=2");
                super::check(route, |route: &Nest| match route {
                    Nest::In { inner: $name::User { .. }, .. } => "user",
                    Nest::In { inner: $name::Home | $name::File { .. }, .. } => "another",
                });
                super::check($name::File { rest: "a/b".into() }, |_: &$name| "file");
                super::check($name::Home, |_: &$name| "home");
            }
        }
    )* };
}

fn check<R>(route: R, show: impl Fn(&R) -> &'static str + Send + Sync + 'static)
where
    R: weftwork::Routes + PartialEq + std::fmt::Debug,
{
    let (method, path, wanted) = (route.method(), route.to_path(), show(&route));
    assert_eq!(R::from_path(&method, &path), Ok(route));
    let handler = weftwork::routes(move |route: R, _: &mut weftwork::Request<'_>| show(&route));
    assert_eq!(TestClient::new(handler).request(method, &path).send().text(), wanted);
}

enums_named! {
    blocking: Blocking, method: Method, error: MatchError, path_writer: PathWriter, route: Route, routes: Routes, methods: MethodFilter
}

/// A type that a macro received looks like a type, and is a group of tokens to the derive.
macro_rules! listing {
    ($text:ty, $maybe:ty, $many:ty) => {
        #[derive(weftwork::Routes, Debug, PartialEq)]
        enum Listing {
            #[get("/{text}?{maybe}&{many}")]
            List { text: $text, maybe: $maybe, many: $many },
        }
    };
}

listing!(String, Option<u32>, Vec<u32>);

#[test]
fn a_macro_may_bring_the_types() {
    check(Listing::List { text: "a".into(), maybe: None, many: vec![] }, |_| "none");
    check(Listing::List { text: "a".into(), maybe: Some(1), many: vec![2, 3] }, |_| "all");
}

/// The trait's constant has the same name as a variant.
#[derive(weftwork::Routes, Debug, PartialEq)]
#[allow(clippy::upper_case_acronyms)]
enum Site {
    #[get("/routes")]
    ROUTES,
    #[nest("/in")]
    In(linted::Inner),
}

#[test]
fn a_variant_may_have_the_name_of_the_constant() {
    use weftwork::Routes;
    check(Site::ROUTES, |_| "one");
    check(Site::In(linted::Inner::Home), |_| "nested");
    let pattern = |path: &str| <Site as Routes>::pattern(weftwork::MethodFilter::GET, path.as_bytes());
    assert_eq!(pattern("/routes").as_deref(), Some("/routes"));
    assert_eq!(pattern("/in").as_deref(), Some("/in"));
}

/// The derive's code must not break a lint, because its user could not fix that.
#[deny(non_snake_case, unused_qualifications, clippy::explicit_iter_loop)]
mod linted {
    use weftwork::Routes;

    #[derive(Routes, Debug, PartialEq)]
    #[allow(non_snake_case)]
    pub(super) enum Site {
        #[get("/users/{userId}?{page}&{many}")]
        User { userId: u64, page: Option<u32>, many: Vec<u32> },
        #[nest("/in")]
        In(Inner),
    }

    #[derive(Routes, Debug, PartialEq)]
    pub(super) enum Inner {
        #[get("/")]
        Home,
    }
}

#[test]
fn an_enum_keeps_the_lints_that_it_is_held_to() {
    check(linted::Site::User { userId: 7, page: Some(1), many: vec![2, 3] }, |_| "user");
    check(linted::Site::In(linted::Inner::Home), |_| "home");
}
