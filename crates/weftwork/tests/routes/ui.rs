//! Tests that an error in the routes stops the compiler at the error, with its fix. The texts are in files
//! beside the cases.

#[test]
fn mistakes_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/routes/ui/*.rs");
}
