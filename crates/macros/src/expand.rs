//! Generates the implementation of the trait from the enum.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{DeriveInput, Field, Ident, Result};

use crate::dispatch::{self, Target};
use crate::model::{self, Cardinality, RouteAttr, Variant, cardinality, name_of};
use crate::overlap;
use crate::pattern::{Pattern, Segment};
use crate::sibling_literals;

/// A route attribute with its index among all attributes of the enum.
struct NumberedAttr<'v> {
    number: u16,
    variant: &'v Variant<'v>,
    attr: &'v RouteAttr,
}

pub(crate) fn routes(input: &DeriveInput) -> Result<TokenStream> {
    let variants = model::variants(input)?;
    overlap::check(&variants)?;
    let attrs = variants.iter().flat_map(|variant| variant.attrs.iter().map(move |attr| (variant, attr)));
    let attrs: Vec<NumberedAttr<'_>> =
        (0u16..).zip(attrs).map(|(number, (variant, attr))| NumberedAttr { number, variant, attr }).collect();
    let name = &input.ident;
    let (search, table) = (search(&attrs), table(&attrs));
    let (constructed, request_properties) =
        (attrs.iter().map(constructed), request_properties(&name.to_string(), &attrs));
    let written = variants.iter().map(|variant| written(variant, &variants));
    let methods = variants.iter().map(method);
    let captures_max = captures_max(&attrs);
    Ok(quote! {
        // The generated code is in the user's crate, which may have stricter lints.
        #[allow(non_snake_case, unused_qualifications)]
        const _: () = {
            // Our names are behind a path, because the enum or a type in it may have the same names.
            use ::weftwork::derived as __weft;

            #[allow(unused_mut, unused_assignments, unused_variables, clippy::all)]
            fn search(
                method: __weft::MethodFilter,
                path: &[u8],
            ) -> ::core::result::Result<(u16, [&[u8]; #captures_max]), __weft::MatchError> {
                #search
            }

            #[automatically_derived]
            impl __weft::Routes for #name {
                const ROUTES: &'static [__weft::Route] = &[#(#table),*];

                #[allow(unused_variables, clippy::all)]
                fn parse(
                    method: __weft::MethodFilter,
                    path: &[u8],
                    query: &str,
                ) -> ::core::result::Result<Self, __weft::MatchError> {
                    let (number, parts) = search(method, path)?;
                    match number {
                        #(#constructed)*
                        _ => ::core::result::Result::Err(__weft::MatchError::NotFound),
                    }
                }

                #request_properties

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

/// Returns the error and an empty implementation of the trait, so that uses of the enum cause no further
/// errors.
pub(crate) fn error_impl(input: &DeriveInput, error: &syn::Error) -> TokenStream {
    let (error, name) = (error.to_compile_error(), &input.ident);
    if !input.generics.params.is_empty() {
        return error;
    }
    quote! {
        #error
        #[automatically_derived]
        impl ::weftwork::Routes for #name {
            const ROUTES: &'static [::weftwork::Route] = &[];
            fn parse(_: ::weftwork::MethodFilter, _: &[u8], _: &str) -> ::core::result::Result<Self, ::weftwork::MatchError> {
                ::core::unreachable!()
            }
            fn blocking_of(
                _: ::weftwork::MethodFilter,
                _: &[u8],
            ) -> ::core::option::Option<::weftwork::Blocking> {
                ::core::unreachable!()
            }
            fn reads_ahead(_: ::weftwork::MethodFilter, _: &[u8]) -> ::core::option::Option<bool> {
                ::core::unreachable!()
            }
            fn pattern(
                _: ::weftwork::MethodFilter,
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

fn search(attrs: &[NumberedAttr<'_>]) -> TokenStream {
    let targets: Vec<Target<'_>> = attrs
        .iter()
        .map(|NumberedAttr { number, variant, attr }| Target {
            segments: &attr.pattern.segments,
            method: attr.method,
            nest: variant.nested.is_some(),
            number: *number,
        })
        .collect();
    dispatch::search(&targets, captures_max(attrs))
}

/// Returns the maximum number of parts. A nest has one more part, the remaining path.
fn captures_max(attrs: &[NumberedAttr<'_>]) -> usize {
    attrs
        .iter()
        .map(|attr| attr.attr.pattern.captures().count() + usize::from(attr.variant.nested.is_some()))
        .max()
        .unwrap_or(0)
}

fn table<'v>(attrs: &'v [NumberedAttr<'_>]) -> impl Iterator<Item = TokenStream> + 'v {
    attrs.iter().map(|NumberedAttr { variant, attr, .. }| {
        let (name, pattern) = (variant.item.ident.to_string(), attr.pattern.text.value());
        let method = format_ident!("{}", attr.method);
        let (methods, nested) = match variant.nested {
            Some(field) => {
                let inner = &field.ty;
                (
                    quote!(__weft::MethodFilter::NONE),
                    quote_spanned!(inner.span()=> <#inner as __weft::Routes>::ROUTES),
                )
            }
            None => (quote!(__weft::MethodFilter::#method), quote!(&[])),
        };
        quote! { __weft::Route { methods: #methods, pattern: #pattern, name: #name, nested: #nested } }
    })
}

/// Returns the match arm that constructs the value of a route attribute.
fn constructed(attr: &NumberedAttr<'_>) -> TokenStream {
    let NumberedAttr { number, variant, attr } = attr;
    let ident = &variant.item.ident;
    let fields = variant.fields().map(|field| {
        let value = if variant.is_nested(field) {
            let (inner, at) = (&field.ty, attr.pattern.captures().count());
            let (method, parts, query) = (call_site("method"), call_site("parts"), call_site("query"));
            quote_spanned!(inner.span()=> <#inner as __weft::Routes>::parse(#method, #parts[#at], #query)?)
        } else {
            field_value(field, &attr.pattern)
        };
        match &field.ident {
            Some(name) => quote!(#name: #value),
            None => quote!(0: #value),
        }
    });
    quote! { #number => ::core::result::Result::Ok(Self::#ident { #(#fields),* }), }
}

/// Returns the code for a field's value. It has the span of the field's type, so that errors about the type are
/// reported there.
fn field_value(field: &Field, pattern: &Pattern) -> TokenStream {
    let (name, span) = (name_of(field), field.ty.span());
    let (parts, query) = (call_site("parts"), call_site("query"));
    if let Some(at) = pattern.captures().position(|known| known == name) {
        return quote_spanned!(span=> __weft::capture(#name, #parts[#at])?);
    }
    let parameter = pattern.parameters.iter().find(|parameter| parameter.field == name);
    match (parameter, cardinality(field).0) {
        (Some(parameter), cardinality) => {
            let read = match cardinality {
                Cardinality::Once => "required",
                Cardinality::Optional => "optional",
                Cardinality::Repeated => "repeated",
            };
            let (read, key) = (Ident::new(read, span), &parameter.name);
            quote_spanned!(span=> __weft::#read(#query, #key)?)
        }
        // A field that a further attribute does not fill: `None`, or no values.
        (None, _) => quote!(::core::default::Default::default()),
    }
}

/// Returns the functions that describe a request before its route is constructed.
fn request_properties(name: &str, attrs: &[NumberedAttr<'_>]) -> TokenStream {
    let (seed, blocking, buffering) =
        (seed(name), attrs.iter().map(blocking_arm), attrs.iter().map(buffering));
    let nested = attrs.iter().map(nested_pattern);
    quote! {
        #[allow(unused_variables, clippy::all)]
        fn blocking_of(method: __weft::MethodFilter, path: &[u8]) -> ::core::option::Option<__weft::Blocking> {
            const SEED: u64 = #seed;
            match search(method, path) {
                #(#blocking)*
                ::core::result::Result::Ok((number, _)) => {
                    ::core::option::Option::Some(__weft::Blocking::Learn { route: __weft::route_id(SEED, number as u64) })
                }
                // Rejected without a handler.
                ::core::result::Result::Err(_) => ::core::option::Option::None,
            }
        }

        #[allow(unused_variables, clippy::all)]
        fn reads_ahead(method: __weft::MethodFilter, path: &[u8]) -> ::core::option::Option<bool> {
            match search(method, path) {
                #(#buffering)*
                ::core::result::Result::Ok(_) => ::core::option::Option::Some(true),
                ::core::result::Result::Err(_) => ::core::option::Option::None,
            }
        }

        #[allow(unused_variables, clippy::all)]
        fn pattern(
            method: __weft::MethodFilter,
            path: &[u8],
        ) -> ::core::option::Option<::std::borrow::Cow<'static, str>> {
            match search(method, path) {
                #(#nested)*
                ::core::result::Result::Ok((number, _)) => {
                    ::core::option::Option::Some(__weft::path_pattern(<Self as __weft::Routes>::ROUTES, number))
                }
                ::core::result::Result::Err(_) => ::core::option::Option::None,
            }
        }
    }
}

/// Returns a call to the nested enum with the method and the rest of the path. `None` if the variant is not a
/// nest.
fn ask_nested(NumberedAttr { variant, attr, .. }: &NumberedAttr<'_>, function: &str) -> Option<TokenStream> {
    let inner = &variant.nested?.ty;
    let (at, function) = (attr.pattern.captures().count(), Ident::new(function, inner.span()));
    let (method, parts) = (call_site("method"), call_site("parts"));
    Some(quote_spanned!(inner.span()=> <#inner as __weft::Routes>::#function(#method, #parts[#at])))
}

/// Returns the match arm that states whether a route is known to block, or never to block. Other routes are learned.
fn blocking_arm(attr: &NumberedAttr<'_>) -> TokenStream {
    let NumberedAttr { number, variant, .. } = attr;
    let known = match (variant.blocks, variant.quick) {
        (true, _) => Some(quote!(__weft::Blocking::Always)),
        (_, true) => Some(quote!(__weft::Blocking::Never)),
        _ => None,
    };
    if let Some(known) = known {
        return quote! { ::core::result::Result::Ok((#number, _)) => ::core::option::Option::Some(#known), };
    }
    let Some(inner) = ask_nested(attr, "blocking_of") else { return TokenStream::new() };
    quote! {
        ::core::result::Result::Ok((#number, parts)) => {
            #inner.map(|inner| __weft::nested_blocking(__weft::route_id(SEED, #number as u64), inner))
        }
    }
}

/// Returns the match arm that states whether a handler waits for the body. Most handlers do.
fn buffering(attr: &NumberedAttr<'_>) -> TokenStream {
    let NumberedAttr { number, variant, .. } = attr;
    if variant.unbuffered {
        return quote!(::core::result::Result::Ok((#number, _)) => ::core::option::Option::Some(false),);
    }
    let Some(inner) = ask_nested(attr, "reads_ahead") else { return TokenStream::new() };
    quote!(::core::result::Result::Ok((#number, parts)) => #inner,)
}

/// Returns the match arm for the pattern of a nest, followed by the pattern of the nested route.
fn nested_pattern(attr: &NumberedAttr<'_>) -> TokenStream {
    let number = attr.number;
    let Some(inner) = ask_nested(attr, "pattern") else { return TokenStream::new() };
    quote! {
        ::core::result::Result::Ok((#number, parts)) => {
            __weft::nested_pattern(&__weft::path_pattern(<Self as __weft::Routes>::ROUTES, #number), #inner)
        }
    }
}

/// Returns the match arm that writes the path of a variant, from its first attribute.
fn written(variant: &Variant<'_>, all: &[Variant<'_>]) -> TokenStream {
    let (ident, out) = (&variant.item.ident, call_site("out"));
    let names = variant.fields().map(|field| {
        let local = local_of(field);
        match &field.ident {
            Some(name) => quote!(#name: #local),
            None => quote!(0: #local),
        }
    });
    let pattern = &variant.attrs[0].pattern;
    let path = path_code(pattern, variant, all);
    let parameters = pattern.parameters.iter().filter_map(|parameter| {
        let field = variant.field(&parameter.field)?;
        let (local, key, span) = (local_of(field), &parameter.name, field.ty.span());
        let values = match cardinality(field).0 {
            Cardinality::Once => quote_spanned!(span=> [#local]),
            Cardinality::Optional | Cardinality::Repeated => quote_spanned!(span=> #local),
        };
        Some(quote_spanned!(span=> #out.parameter(#key, #values);))
    });
    let nested = variant.nested.map(|field| {
        let local = local_of(field);
        quote_spanned!(field.ty.span()=> #out.nest(|out| __weft::Routes::write(#local, out));)
    });
    quote! { Self::#ident { #(#names),* } => { #path #(#parameters)* #nested } }
}

/// Returns the variable that holds a field while its path is written. It has the span of the field's type, for
/// error messages.
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
        let (call, out) = (Ident::new(call, field.ty.span()), call_site("out"));
        let local = local_of(field);
        let sibling_literals = sibling_literals::of(&pattern.segments, at, all);
        code.extend(quote!(out.literal(#literal);));
        code.extend(
            quote_spanned!(field.ty.span()=> __weft::PathWriter::#call(#out, #local, &[#(#sibling_literals),*]);),
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
    let method: Ident = format_ident!("{}", variant.attrs[0].method);
    match variant.attrs[0].method {
        "ANY" => quote! { Self::#ident { .. } => __weft::Method::GET, },
        _ => quote! { Self::#ident { .. } => __weft::Method::#method, },
    }
}

/// Returns an identifier with the span of the macro call. Code with the span of a field's type must use it: if
/// a macro passed the type in, a plain name would belong to the caller of that macro.
fn call_site(name: &str) -> Ident {
    Ident::new(name, Span::call_site())
}

/// Returns a number for the enum (FNV-1a), so that routes of different enums have different numbers.
fn seed(name: &str) -> u64 {
    name.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
