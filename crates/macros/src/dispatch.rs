//! The search for a route, as code: what is wholly literal is compared at once, the rest segment by segment.
//!
//! It is a search in bytes: to see that a path is text takes longer than to find its route, and only captures have to be.

use std::collections::BTreeMap;

use proc_macro2::{Literal, TokenStream};
use quote::{format_ident, quote};
use syn::Ident;

use crate::pattern::Segment;

/// A way into a route, as the search sees it.
#[derive(Clone)]
pub(crate) struct Target<'p> {
    /// What is left of its path at this place.
    pub(crate) segments: &'p [Segment],
    /// A constant of `Verbs`.
    pub(crate) verb: &'static str,
    /// Its routes are searched for by the enum that it holds.
    pub(crate) nest: bool,
    pub(crate) number: u16,
}

/// The body of a function of `verb` and `path` that returns the number of a way and the parts of the path that
/// fill its captures, `captures_max` of them.
pub(crate) fn search(targets: &[Target<'_>], captures_max: usize) -> TokenStream {
    let writer = Writer { captures_max };
    let node = writer.node(targets, &format_ident!("tail"), &[]);
    quote! {
        let mut allowed = __weft::Verbs::NONE;
        let ::core::option::Option::Some(tail) = path.strip_prefix(b"/") else {
            return ::core::result::Result::Err(__weft::Miss::NotFound);
        };
        #node
        ::core::result::Result::Err(__weft::unmatched(allowed))
    }
}

struct Writer {
    captures_max: usize,
}

impl Writer {
    /// Tries `targets` with `tail`. It returns from the function where one takes it, and goes on behind itself
    /// where none does: that is all there is to trying the less literal ones next.
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

    /// Targets of which nothing is left but literal text.
    fn whole(&self, targets: &[Target<'_>], tail: &Ident, captured: &[Ident]) -> TokenStream {
        let mut texts: BTreeMap<String, Vec<Target<'_>>> = BTreeMap::new();
        for target in targets {
            texts.entry(target.text().unwrap_or_default()).or_default().push(target.clone());
        }
        let arms = texts.into_iter().map(|(text, targets)| (text, self.leaf(&targets, captured, None)));
        switch(tail, arms.collect())
    }

    /// Targets for which the next segment has to be known.
    fn split(&self, targets: &[Target<'_>], tail: &Ident, captured: &[Ident]) -> TokenStream {
        if targets.is_empty() {
            return TokenStream::new();
        }
        // Each level has names of its own: what was captured above must not be hidden.
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
            // A capture has something in it, as with a `Router`.
            open = quote! { if !#segment.is_empty() { #open } };
        }
        quote! {
            let (#segment, #rest) = __weft::split_segment(#tail);
            #literals
            #open
        }
    }

    /// Targets that have taken the segment at `at`.
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
        // What is nested owns its prefix: only more literal ways, above, come before it.
        if let Some(nest) = nests.first() {
            let found = self.found(nest, captured, Some(quote!(__weft::nested_path(#tail, #segment))));
            code.extend(quote! { return #found; });
        }
        code
    }

    /// Targets that take the path, each for its method.
    fn leaf(&self, targets: &[Target<'_>], captured: &[Ident], last: Option<TokenStream>) -> TokenStream {
        let mut targets = targets.to_vec();
        // Its own method first, then HEAD by GET's, then what takes any.
        targets.sort_by_key(|target| match target.verb {
            "ANY" => 2,
            "GET" => 1,
            _ => 0,
        });
        let tries = targets.iter().map(|target| {
            let verb = format_ident!("{}", target.verb);
            let verbs = match target.verb {
                "GET" => quote!(__weft::Verbs::GET.or(__weft::Verbs::HEAD)),
                _ => quote!(__weft::Verbs::#verb),
            };
            let found = self.found(target, captured, last.clone());
            quote! {
                if verb.meets(#verbs) { return #found; }
                allowed = allowed.or(#verbs);
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

/// A segment that was cut from `tail`, and what is behind it.
struct SplitSegment<'t> {
    tail: &'t Ident,
    segment: &'t Ident,
    rest: &'t Ident,
}

impl<'p> Target<'p> {
    fn rest(&self) -> Target<'p> {
        Target { segments: &self.segments[1..], ..self.clone() }
    }

    /// What is left, if it is nothing but literal.
    fn text(&self) -> Option<String> {
        let parts = self.segments.iter().map(|segment| match segment {
            Segment::Literal(text) => Some(text.as_str()),
            Segment::Capture(_) | Segment::Rest(_) => None,
        });
        Some(parts.collect::<Option<Vec<_>>>()?.join("/"))
    }
}

/// Runs the code of the text that `subject` is: by its length, then by the byte that tells most of them apart,
/// then by one comparison.
fn switch(subject: &Ident, arms: Vec<(String, TokenStream)>) -> TokenStream {
    /// So many comparisons are as quick as a jump.
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
    // The first of the best: texts of one length that are not equal differ somewhere.
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
