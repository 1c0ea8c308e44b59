//! The derive macros of weftwork; its documentation shows them at work.

mod dispatch;
mod expand;
mod model;
mod overlap;
mod pattern;
mod sibling_literals;

use proc_macro::TokenStream;

/// Makes an enum the routes of a site: see the trait `weftwork::Routes`.
#[proc_macro_derive(
    Routes,
    attributes(get, post, put, delete, patch, head, options, trace, connect, any, nest, blocks, unbuffered)
)]
pub fn routes(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    expand::routes(&input).unwrap_or_else(|error| expand::error_impl(&input, &error)).into()
}
