//! Does a mistake in the routes stop the compiler where it is, with its cure? The texts are beside the cases.

#[test]
fn mistakes_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/routes/ui/*.rs");
}
