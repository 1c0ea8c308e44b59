//! Generates the search for a route. Fully literal paths are compared at once, others segment by segment.
//!
//! The search works on bytes. Checking that a path is UTF-8 takes longer than finding its route, and only
//! captures need it.

use std::collections::BTreeMap;

use proc_macro2::{Literal, TokenStream};
use quote::{format_ident, quote};
use syn::Ident;

use crate::pattern::Segment;

/// A route attribute as the search sees it.
#[derive(Clone)]
pub(crate) struct Target<'p> {
    /// Remaining segments of its path.
    pub(crate) segments: &'p [Segment],
    /// A constant of `MethodFilter`.
    pub(crate) method: &'static str,
    /// Whether the routes of a nested enum continue the search.
    pub(crate) nest: bool,
    pub(crate) number: u16,
}

/// Returns the body of a function of `method` and `path`. It returns the number of a route attribute and the
/// `captures_max` parts of the path that fill its captures.
pub(crate) fn search(targets: &[Target<'_>], captures_max: usize) -> TokenStream {
    let writer = Writer { captures_max };
    let node = writer.node(targets, &format_ident!("tail"), &[]);
    quote! {
        let mut allowed = __weft::MethodFilter::NONE;
        let ::core::option::Option::Some(tail) = path.strip_prefix(b"/") else {
            return ::core::result::Result::Err(__weft::MatchError::NotFound);
        };
        #node
        ::core::result::Result::Err(__weft::unmatched(allowed))
    }
}

struct Writer {
    captures_max: usize,
}

impl Writer {
    /// Generates code that tries `targets` with `tail`. The code returns if a target matches, and otherwise
    /// continues after itself. Less literal targets thus come next.
    fn node(&self, targets: &[Target<'_>], tail: &Ident, captured: &[Ident]) -> TokenStream {
        let (literal, open): (Vec<Target<'_>>, Vec<Target<'_>>) =
            targets.iter().cloned().partition(|target| !target.nest && target.text().is_some());
        let whole = self.whole(&literal, tail, captured);
        let (rests, open): (Vec<Target<'_>>, Vec<Target<'_>>) =
            open.into_iter().partition(|target| matches!(target.segments, [Segment::Rest(_)]));
        let split = self.split(&open, tail, captured);
        let rest = self.leaf(&rests, captured, Some(quote!(#tail)));
        quote! { #whole #split #rest }
    }

    /// Generates code for targets with literal segments only.
    fn whole(&self, targets: &[Target<'_>], tail: &Ident, captured: &[Ident]) -> TokenStream {
        let mut texts: BTreeMap<String, Vec<Target<'_>>> = BTreeMap::new();
        for target in targets {
            texts.entry(target.text().unwrap_or_default()).or_default().push(target.clone());
        }
        let arms = texts.into_iter().map(|(text, targets)| (text, self.leaf(&targets, captured, None)));
        switch(tail, arms.collect())
    }

    /// Generates code for targets that need the next segment.
    fn split(&self, targets: &[Target<'_>], tail: &Ident, captured: &[Ident]) -> TokenStream {
        if targets.is_empty() {
            return TokenStream::new();
        }
        // Each level has its own variable names, because inner code uses outer captures.
        let (segment, rest) = (format_ident!("{tail}_segment"), format_ident!("{tail}_rest"));
        let mut literals: BTreeMap<String, Vec<Target<'_>>> = BTreeMap::new();
        let mut captures = Vec::new();
        for target in targets {
            match &target.segments[0] {
                Segment::Literal(text) => literals.entry(text.clone()).or_default().push(target.rest()),
                _ => captures.push(target.rest()),
            }
        }
        let at = SplitSegment { tail, segment: &segment, rest: &rest };
        let arms =
            literals.into_iter().map(|(text, targets)| (text, self.after_segment(&targets, &at, captured)));
        let literals = switch(&segment, arms.collect());
        let with_segment: Vec<Ident> = captured.iter().chain([&segment]).cloned().collect();
        let mut open = self.after_segment(&captures, &at, &with_segment);
        if !captures.is_empty() {
            // A capture is never empty, the same as in a `Router`.
            open = quote! { if !#segment.is_empty() { #open } };
        }
        quote! {
            let (#segment, #rest) = __weft::split_segment(#tail);
            #literals
            #open
        }
    }

    /// Generates code for targets that have consumed the segment at `at`.
    fn after_segment(
        &self,
        targets: &[Target<'_>],
        at: &SplitSegment<'_>,
        captured: &[Ident],
    ) -> TokenStream {
        let SplitSegment { tail, segment, rest } = at;
        let (ended, going): (Vec<Target<'_>>, Vec<Target<'_>>) =
            targets.iter().cloned().partition(|target| target.segments.is_empty());
        let (nests, ended): (Vec<Target<'_>>, Vec<Target<'_>>) =
            ended.into_iter().partition(|target| target.nest);
        let mut code = TokenStream::new();
        if !ended.is_empty() {
            let leaf = self.leaf(&ended, captured, None);
            code.extend(quote! { if #rest.is_none() { #leaf } });
        }
        if !going.is_empty() {
            let next = format_ident!("{tail}_next");
            let node = self.node(&going, &next, captured);
            code.extend(quote! { if let ::core::option::Option::Some(#next) = #rest { #node } });
        }
        // A nest owns its prefix. Only more literal routes, above, come before it.
        if let Some(nest) = nests.first() {
            let found = self.found(nest, captured, Some(quote!(__weft::nested_path(#tail, #segment))));
            code.extend(quote! { return #found; });
        }
        code
    }

    /// Generates code for targets that match the path, one for each method.
    fn leaf(&self, targets: &[Target<'_>], captured: &[Ident], last: Option<TokenStream>) -> TokenStream {
        let mut targets = targets.to_vec();
        // The exact method comes first, then GET for HEAD, then any method.
        targets.sort_by_key(|target| match target.method {
            "ANY" => 2,
            "GET" => 1,
            _ => 0,
        });
        let tries = targets.iter().map(|target| {
            let method = format_ident!("{}", target.method);
            let methods = match target.method {
                "GET" => quote!(__weft::MethodFilter::GET.or(__weft::MethodFilter::HEAD)),
                _ => quote!(__weft::MethodFilter::#method),
            };
            let found = self.found(target, captured, last.clone());
            quote! {
                if method.intersects(#methods) { return #found; }
                allowed = allowed.or(#methods);
            }
        });
        quote! { #(#tries)* }
    }

    fn found(&self, target: &Target<'_>, captured: &[Ident], last: Option<TokenStream>) -> TokenStream {
        let number = target.number;
        let mut parts: Vec<TokenStream> = captured.iter().map(|part| quote!(#part)).chain(last).collect();
        parts.resize(self.captures_max, quote!(b"".as_slice()));
        quote! { ::core::result::Result::Ok((#number, [#(#parts),*])) }
    }
}

/// The first segment of `tail`, and the text after it.
struct SplitSegment<'t> {
    tail: &'t Ident,
    segment: &'t Ident,
    rest: &'t Ident,
}

impl<'p> Target<'p> {
    fn rest(&self) -> Target<'p> {
        Target { segments: &self.segments[1..], ..self.clone() }
    }

    /// Returns the rest of the path if all its segments are literal.
    fn text(&self) -> Option<String> {
        let parts = self.segments.iter().map(|segment| match segment {
            Segment::Literal(text) => Some(text.as_str()),
            Segment::Capture(_) | Segment::Rest(_) => None,
        });
        Some(parts.collect::<Option<Vec<_>>>()?.join("/"))
    }
}

/// Generates a search for `subject` among texts: by length, then by the byte that distinguishes most of them,
/// then by one comparison.
fn switch(subject: &Ident, arms: Vec<(String, TokenStream)>) -> TokenStream {
    /// Maximum number of comparisons that are as fast as a jump.
    const FEW: usize = 2;
    if arms.len() <= FEW {
        return compare(subject, &arms);
    }
    let mut lengths: BTreeMap<usize, Vec<(String, TokenStream)>> = BTreeMap::new();
    for arm in arms {
        lengths.entry(arm.0.len()).or_default().push(arm);
    }
    let arms = lengths.into_iter().map(|(length, arms)| {
        let code = if arms.len() <= FEW { compare(subject, &arms) } else { by_byte(subject, length, &arms) };
        quote! { #length => { #code } }
    });
    quote! { match #subject.len() { #(#arms)* _ => {} } }
}

fn by_byte(subject: &Ident, length: usize, arms: &[(String, TokenStream)]) -> TokenStream {
    let distinct = |at: usize| {
        let mut bytes: Vec<u8> = arms.iter().map(|(text, _)| text.as_bytes()[at]).collect();
        bytes.sort_unstable();
        bytes.dedup();
        bytes.len()
    };
    // Takes the first of the best positions. Different texts of one length differ somewhere.
    let at = (0..length).rev().max_by_key(|at| distinct(*at)).unwrap_or(0);
    let mut groups: BTreeMap<u8, Vec<(String, TokenStream)>> = BTreeMap::new();
    for (text, code) in arms {
        groups.entry(text.as_bytes()[at]).or_default().push((text.clone(), code.clone()));
    }
    let arms = groups.into_iter().map(|(byte, arms)| {
        let code = compare(subject, &arms);
        quote! { #byte => { #code } }
    });
    quote! { match #subject[#at] { #(#arms)* _ => {} } }
}

fn compare(subject: &Ident, arms: &[(String, TokenStream)]) -> TokenStream {
    let arms = arms.iter().map(|(text, code)| {
        let text = Literal::byte_string(text.as_bytes());
        quote! { if #subject == #text { #code } }
    });
    quote! { #(#arms)* }
}
