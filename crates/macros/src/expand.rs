//! From the enum to the code of its trait.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{DeriveInput, Field, Ident, Result};

use crate::dispatch::{self, Target};
use crate::model::{self, Times, Variant, Way, name_of, times};
use crate::overlap;
use crate::pattern::{Pattern, Segment};
use crate::rivals;

/// A way with its number, which is its place among all of the enum.
struct Numbered<'v> {
    number: u16,
    variant: &'v Variant<'v>,
    way: &'v Way,
}

pub(crate) fn routes(input: &DeriveInput) -> Result<TokenStream> {
    let variants = model::variants(input)?;
    overlap::check(&variants)?;
    let ways = variants.iter().flat_map(|variant| variant.ways.iter().map(move |way| (variant, way)));
    let ways: Vec<Numbered<'_>> =
        (0u16..).zip(ways).map(|(number, (variant, way))| Numbered { number, variant, way }).collect();
    let name = &input.ident;
    let (search, table) = (search(&ways), table(&ways));
    let (constructed, told) = (ways.iter().map(constructed), told(&name.to_string(), &ways));
    let written = variants.iter().map(|variant| written(variant, &variants));
    let methods = variants.iter().map(method);
    let captures_max = captures_max(&ways);
    Ok(quote! {
        // Some of the code stands where the user wrote, who may be held to more than it can keep.
        #[allow(non_snake_case, unused_qualifications)]
        const _: () = {
            // Names of ours stay behind a path: the enum, or a type in it, may have any of them.
            use ::weftwork::derived as __weft;

            #[allow(unused_mut, unused_assignments, unused_variables, clippy::all)]
            fn search(
                verb: __weft::Verbs,
                path: &[u8],
            ) -> ::core::result::Result<(u16, [&[u8]; #captures_max]), __weft::Miss> {
                #search
            }

            #[automatically_derived]
            impl __weft::Routes for #name {
                const ROUTES: &'static [__weft::Route] = &[#(#table),*];

                #[allow(unused_variables, clippy::all)]
                fn parse(
                    verb: __weft::Verbs,
                    path: &[u8],
                    query: &str,
                ) -> ::core::result::Result<Self, __weft::Miss> {
                    let (number, parts) = search(verb, path)?;
                    match number {
                        #(#constructed)*
                        _ => ::core::result::Result::Err(__weft::Miss::NotFound),
                    }
                }

                #told

                #[allow(unused_variables, clippy::all)]
                fn write(&self, out: &mut __weft::PathWriter) {
                    match self { #(#written)* }
                }

                fn method(&self) -> __weft::Method {
                    match self { #(#methods)* }
                }
            }
        };
    })
}

/// The error, and a trait without substance: what uses the enum shall not be told as a second mistake.
pub(crate) fn refused(input: &DeriveInput, error: &syn::Error) -> TokenStream {
    let (error, name) = (error.to_compile_error(), &input.ident);
    if !input.generics.params.is_empty() {
        return error;
    }
    quote! {
        #error
        #[automatically_derived]
        impl ::weftwork::Routes for #name {
            const ROUTES: &'static [::weftwork::Route] = &[];
            fn parse(_: ::weftwork::Verbs, _: &[u8], _: &str) -> ::core::result::Result<Self, ::weftwork::Miss> {
                ::core::unreachable!()
            }
            fn habit(_: ::weftwork::Verbs, _: &[u8]) -> ::weftwork::Blocking {
                ::core::unreachable!()
            }
            fn reads_ahead(_: ::weftwork::Verbs, _: &[u8]) -> ::core::option::Option<bool> {
                ::core::unreachable!()
            }
            fn pattern(
                _: ::weftwork::Verbs,
                _: &[u8],
            ) -> ::core::option::Option<::std::borrow::Cow<'static, str>> {
                ::core::unreachable!()
            }
            fn write(&self, _: &mut ::weftwork::derived::PathWriter) {}
            fn method(&self) -> ::weftwork::derived::Method {
                ::core::unreachable!()
            }
        }
    }
}

fn search(ways: &[Numbered<'_>]) -> TokenStream {
    let targets: Vec<Target<'_>> = ways
        .iter()
        .map(|Numbered { number, variant, way }| Target {
            segments: &way.pattern.segments,
            verb: way.verb,
            nest: variant.nested.is_some(),
            number: *number,
        })
        .collect();
    dispatch::search(&targets, captures_max(ways))
}

/// A nest has one part more: the path that is left.
fn captures_max(ways: &[Numbered<'_>]) -> usize {
    ways.iter()
        .map(|way| way.way.pattern.captures().count() + usize::from(way.variant.nested.is_some()))
        .max()
        .unwrap_or(0)
}

fn table<'v>(ways: &'v [Numbered<'_>]) -> impl Iterator<Item = TokenStream> + 'v {
    ways.iter().map(|Numbered { variant, way, .. }| {
        let (name, pattern) = (variant.item.ident.to_string(), way.pattern.text.value());
        let verb = format_ident!("{}", way.verb);
        let (methods, nested) = match variant.nested {
            Some(field) => {
                let inner = &field.ty;
                (
                    quote!(__weft::Verbs::NONE),
                    quote_spanned!(inner.span()=> <#inner as __weft::Routes>::ROUTES),
                )
            }
            None => (quote!(__weft::Verbs::#verb), quote!(&[])),
        };
        quote! { __weft::Route { methods: #methods, pattern: #pattern, name: #name, nested: #nested } }
    })
}

/// The arm that makes the value of a way.
fn constructed(numbered: &Numbered<'_>) -> TokenStream {
    let Numbered { number, variant, way } = numbered;
    let ident = &variant.item.ident;
    let fields = variant.fields().map(|field| {
        let value = if variant.is_nested(field) {
            let (inner, at) = (&field.ty, way.pattern.captures().count());
            let (verb, parts, query) = (ours("verb"), ours("parts"), ours("query"));
            quote_spanned!(inner.span()=> <#inner as __weft::Routes>::parse(#verb, #parts[#at], #query)?)
        } else {
            field_value(field, &way.pattern)
        };
        match &field.ident {
            Some(name) => quote!(#name: #value),
            None => quote!(0: #value),
        }
    });
    quote! { #number => ::core::result::Result::Ok(Self::#ident { #(#fields),* }), }
}

/// Its code stands at the field's type: that is where the error belongs if the type cannot be in a path.
fn field_value(field: &Field, pattern: &Pattern) -> TokenStream {
    let (name, span) = (name_of(field), field.ty.span());
    let (parts, query) = (ours("parts"), ours("query"));
    if let Some(at) = pattern.captures().position(|known| known == name) {
        return quote_spanned!(span=> __weft::capture(#name, #parts[#at])?);
    }
    let parameter = pattern.parameters.iter().find(|parameter| parameter.field == name);
    match (parameter, times(field).0) {
        (Some(parameter), times) => {
            let read = match times {
                Times::Once => "required",
                Times::Maybe => "optional",
                Times::Many => "repeated",
            };
            let (read, key) = (Ident::new(read, span), &parameter.name);
            quote_spanned!(span=> __weft::#read(#query, #key)?)
        }
        // Of a second way, which does without it: None, or no values.
        (None, _) => quote!(::core::default::Default::default()),
    }
}

/// What is told of a request before its route is made.
fn told(name: &str, ways: &[Numbered<'_>]) -> TokenStream {
    let (seed, habits, buffering) = (seed(name), ways.iter().map(habit), ways.iter().map(buffering));
    let nested = ways.iter().map(nested_pattern);
    quote! {
        #[allow(unused_variables, clippy::all)]
        fn habit(verb: __weft::Verbs, path: &[u8]) -> __weft::Blocking {
            const SEED: u64 = #seed;
            match search(verb, path) {
                #(#habits)*
                ::core::result::Result::Ok((number, _)) => {
                    __weft::Blocking::Learn { route: __weft::spread(SEED, number as u64) }
                }
                // Refused without a handler.
                ::core::result::Result::Err(_) => __weft::Blocking::Never,
            }
        }

        #[allow(unused_variables, clippy::all)]
        fn reads_ahead(verb: __weft::Verbs, path: &[u8]) -> ::core::option::Option<bool> {
            match search(verb, path) {
                #(#buffering)*
                ::core::result::Result::Ok(_) => ::core::option::Option::Some(true),
                ::core::result::Result::Err(_) => ::core::option::Option::None,
            }
        }

        #[allow(unused_variables, clippy::all)]
        fn pattern(
            verb: __weft::Verbs,
            path: &[u8],
        ) -> ::core::option::Option<::std::borrow::Cow<'static, str>> {
            match search(verb, path) {
                #(#nested)*
                ::core::result::Result::Ok((number, _)) => {
                    ::core::option::Option::Some(__weft::path_pattern(<Self as __weft::Routes>::ROUTES, number))
                }
                ::core::result::Result::Err(_) => ::core::option::Option::None,
            }
        }
    }
}

/// What the routes in a nest are asked, by a function of verb and path. None: it is no nest.
fn asked_inside(Numbered { variant, way, .. }: &Numbered<'_>, function: &str) -> Option<TokenStream> {
    let inner = &variant.nested?.ty;
    let (at, function) = (way.pattern.captures().count(), Ident::new(function, inner.span()));
    let (verb, parts) = (ours("verb"), ours("parts"));
    Some(quote_spanned!(inner.span()=> <#inner as __weft::Routes>::#function(#verb, #parts[#at])))
}

/// The arm that tells whether a way is known to wait; the others are learned.
fn habit(numbered: &Numbered<'_>) -> TokenStream {
    let Numbered { number, variant, .. } = numbered;
    if variant.blocks {
        return quote! { ::core::result::Result::Ok((#number, _)) => __weft::Blocking::Always, };
    }
    let Some(inner) = asked_inside(numbered, "habit") else { return TokenStream::new() };
    quote! {
        ::core::result::Result::Ok((#number, parts)) => {
            __weft::within(__weft::spread(SEED, #number as u64), #inner)
        }
    }
}

/// The arm that tells whether the handler of a way waits for the body; most do.
fn buffering(numbered: &Numbered<'_>) -> TokenStream {
    let Numbered { number, variant, .. } = numbered;
    if variant.unbuffered {
        return quote!(::core::result::Result::Ok((#number, _)) => ::core::option::Option::Some(false),);
    }
    let Some(inner) = asked_inside(numbered, "reads_ahead") else { return TokenStream::new() };
    quote!(::core::result::Result::Ok((#number, parts)) => #inner,)
}

/// The arm that tells the pattern of a way into a nest, with that of the route in there.
fn nested_pattern(numbered: &Numbered<'_>) -> TokenStream {
    let number = numbered.number;
    let Some(inner) = asked_inside(numbered, "pattern") else { return TokenStream::new() };
    quote! {
        ::core::result::Result::Ok((#number, parts)) => {
            __weft::nested_pattern(&__weft::path_pattern(<Self as __weft::Routes>::ROUTES, #number), #inner)
        }
    }
}

/// The arm that writes a variant's path, by its first way.
fn written(variant: &Variant<'_>, all: &[Variant<'_>]) -> TokenStream {
    let (ident, out) = (&variant.item.ident, ours("out"));
    let names = variant.fields().map(|field| {
        let local = local_of(field);
        match &field.ident {
            Some(name) => quote!(#name: #local),
            None => quote!(0: #local),
        }
    });
    let pattern = &variant.ways[0].pattern;
    let path = path_code(pattern, variant, all);
    let parameters = pattern.parameters.iter().filter_map(|parameter| {
        let field = variant.field(&parameter.field)?;
        let (local, key, span) = (local_of(field), &parameter.name, field.ty.span());
        let values = match times(field).0 {
            Times::Once => quote_spanned!(span=> [#local]),
            Times::Maybe | Times::Many => quote_spanned!(span=> #local),
        };
        Some(quote_spanned!(span=> #out.parameter(#key, #values);))
    });
    let nested = variant.nested.map(|field| {
        let local = local_of(field);
        quote_spanned!(field.ty.span()=> #out.nest(|out| __weft::Routes::write(#local, out));)
    });
    quote! { Self::#ident { #(#names),* } => { #path #(#parameters)* #nested } }
}

/// The variable that holds a field while it is written; it stands at the field's type, as its errors shall.
fn local_of(field: &Field) -> Ident {
    Ident::new(&format!("field_{}", name_of(field)), field.ty.span())
}

fn path_code(pattern: &Pattern, variant: &Variant<'_>, all: &[Variant<'_>]) -> TokenStream {
    let mut code = TokenStream::new();
    let mut literal = String::new();
    for (at, segment) in pattern.segments.iter().enumerate() {
        literal.push('/');
        let call = match segment {
            Segment::Literal(text) => {
                literal.push_str(text);
                continue;
            }
            Segment::Capture(_) => "capture",
            Segment::Rest(_) => "rest",
        };
        let Some(field) = segment.field().and_then(|name| variant.field(name)) else { continue };
        let (call, out) = (Ident::new(call, field.ty.span()), ours("out"));
        let local = local_of(field);
        let rivals = rivals::of(&pattern.segments, at, all);
        code.extend(quote!(out.literal(#literal);));
        code.extend(
            quote_spanned!(field.ty.span()=> __weft::PathWriter::#call(#out, #local, &[#(#rivals),*]);),
        );
        literal.clear();
    }
    if !literal.is_empty() {
        code.extend(quote!(out.literal(#literal);));
    }
    code
}

fn method(variant: &Variant<'_>) -> TokenStream {
    let ident = &variant.item.ident;
    if let Some(field) = variant.nested {
        let local = local_of(field);
        let pattern = match &field.ident {
            Some(name) => quote!(#name: #local, ..),
            None => quote!(0: #local),
        };
        let method = quote_spanned!(field.ty.span()=> __weft::Routes::method(#local));
        return quote! { Self::#ident { #pattern } => #method, };
    }
    let verb: Ident = format_ident!("{}", variant.ways[0].verb);
    match variant.ways[0].verb {
        "ANY" => quote! { Self::#ident { .. } => __weft::Method::GET, },
        _ => quote! { Self::#ident { .. } => __weft::Method::#verb, },
    }
}

/// A variable of the code around. Code that stands at a field's type, so that its errors do, names it by this: a macro
/// may have been given the type, and then the bare name would be one of the macro's caller.
fn ours(name: &str) -> Ident {
    Ident::new(name, Span::call_site())
}

/// A number for the enum (FNV-1a), so that routes of several have different ones.
fn seed(name: &str) -> u64 {
    name.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
