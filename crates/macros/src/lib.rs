//! The derive macros of weftwork. See the documentation of `weftwork` for examples.

mod dispatch;
mod expand;
mod model;
mod overlap;
mod pattern;
mod sibling_literals;

use proc_macro::TokenStream;

/// Derives the trait `weftwork::Routes` for an enum.
#[proc_macro_derive(
    Routes,
    attributes(
        get, post, put, delete, patch, head, options, trace, connect, any, nest, blocks, quick, unbuffered
    )
)]
pub fn routes(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    expand::routes(&input).unwrap_or_else(|error| expand::error_impl(&input, &error)).into()
}
