//! Parses the enum: each variant with its route attributes, and its fields matched to captures.

use syn::spanned::Spanned;
use syn::{
    Attribute, Data, DeriveInput, Error, Field, Fields, GenericArgument, LitStr, PathArguments, Result, Type,
};

use crate::pattern::Pattern;

/// Route attributes and the constants of `MethodFilter` for them.
const METHODS: [(&str, &str); 9] = [
    ("get", "GET"),
    ("post", "POST"),
    ("put", "PUT"),
    ("delete", "DELETE"),
    ("patch", "PATCH"),
    ("head", "HEAD"),
    ("options", "OPTIONS"),
    ("trace", "TRACE"),
    ("any", "ANY"),
];

pub(crate) struct Variant<'i> {
    pub(crate) item: &'i syn::Variant,
    pub(crate) attrs: Vec<RouteAttr>,
    pub(crate) blocks: bool,
    pub(crate) quick: bool,
    pub(crate) unbuffered: bool,
    /// Field that holds nested routes.
    pub(crate) nested: Option<&'i Field>,
}

/// One route attribute.
pub(crate) struct RouteAttr {
    /// A constant of `MethodFilter`, or `ANY` for a nest.
    pub(crate) method: &'static str,
    pub(crate) pattern: Pattern,
}

/// How often a field may occur in a query.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Cardinality {
    Once,
    Optional,
    Repeated,
}

pub(crate) fn variants(input: &DeriveInput) -> Result<Vec<Variant<'_>>> {
    let Data::Enum(data) = &input.data else {
        return Err(Error::new(
            input.ident.span(),
            "routes are the variants of an enum: write `enum` instead",
        ));
    };
    if !input.generics.params.is_empty() {
        let why = "an enum of routes cannot have parameters: use `String` for borrowed text";
        return Err(Error::new(input.generics.span(), why));
    }
    if data.variants.is_empty() {
        return Err(Error::new(
            input.ident.span(),
            "the enum has no route: add one, such as `#[get(\"/\")] Home,` inside",
        ));
    }
    let mut read = Vec::new();
    let mut errors = misplaced(&input.attrs, "the enum");
    for variant in &data.variants {
        match self::variant(variant) {
            Ok(variant) => read.push(variant),
            Err(error) => match &mut errors {
                Some(errors) => errors.combine(error),
                None => errors = Some(error),
            },
        }
    }
    errors.map_or(Ok(read), Err)
}

/// Reports attributes on the enum or on a field, which would be ignored.
fn misplaced<'a>(attributes: impl IntoIterator<Item = &'a Attribute>, place: &str) -> Option<Error> {
    let errors = attributes.into_iter().filter_map(|attribute| {
        let name = attribute.path().get_ident()?.to_string();
        let is_ours = ["nest", "blocks", "quick", "unbuffered", "connect"].contains(&name.as_str())
            || METHODS.iter().any(|(known, _)| *known == name);
        let why = format!("`#[{name}]` belongs to a variant: put it above the variant instead of {place}");
        is_ours.then(|| Error::new(attribute.path().span(), why))
    });
    errors.reduce(|mut all, error| {
        all.combine(error);
        all
    })
}

fn variant(item: &syn::Variant) -> Result<Variant<'_>> {
    if let Some(error) = misplaced(item.fields.iter().flat_map(|field| &field.attrs), "a field") {
        return Err(error);
    }
    let mut attrs = Vec::new();
    let mut nests = Vec::new();
    let (mut blocks, mut quick, mut unbuffered) = (false, false, false);
    for attribute in &item.attrs {
        let Some(name) = attribute.path().get_ident().map(ToString::to_string) else { continue };
        if name == "nest" {
            nests.push(RouteAttr {
                method: "ANY",
                pattern: Pattern::parse_prefix(&text(attribute, "/admin")?)?,
            });
        } else if name == "blocks" {
            attribute.meta.require_path_only()?;
            blocks = true;
        } else if name == "quick" {
            attribute.meta.require_path_only()?;
            quick = true;
        } else if name == "unbuffered" {
            attribute.meta.require_path_only()?;
            unbuffered = true;
        } else if name == "connect" {
            let why = "CONNECT has no path: answer it in the fallback";
            return Err(Error::new(attribute.path().span(), why));
        } else if let Some((_, method)) = METHODS.iter().find(|(known, _)| *known == name) {
            attrs.push(RouteAttr { method, pattern: Pattern::parse(&text(attribute, "/users/{id}")?)? });
        }
    }
    if let (Some(nest), Some(_)) = (nests.first(), attrs.first()) {
        let why = "a variant is one route or nested ones, not both: give the route a variant of its own";
        return Err(Error::new(nest.pattern.text.span(), why));
    }
    if blocks && quick {
        let why = "a route blocks or is quick, not both: remove one of the two attributes";
        return Err(Error::new(item.ident.span(), why));
    }
    let is_nest = !nests.is_empty();
    attrs.extend(nests);
    if attrs.is_empty() {
        let why = format!("`{}` has no route: write `#[get(\"/...\")]` above it", item.ident);
        return Err(Error::new(item.ident.span(), why));
    }
    let mut variant = Variant { item, attrs, blocks, quick, unbuffered, nested: None };
    variant.join_fields(is_nest)?;
    Ok(variant)
}

fn text(attribute: &Attribute, example: &str) -> Result<LitStr> {
    attribute.parse_args::<LitStr>().map_err(|error| {
        let name = attribute.path().get_ident().map(ToString::to_string).unwrap_or_default();
        Error::new(error.span(), format!("expected a path in quotes: #[{name}(\"{example}\")]"))
    })
}

impl<'i> Variant<'i> {
    /// Checks that every capture has a field and every field a capture.
    fn join_fields(&mut self, is_nest: bool) -> Result<()> {
        if let Fields::Unnamed(fields) = &self.item.fields {
            return self.join_unnamed(fields, is_nest);
        }
        let first = &self.attrs[0].pattern;
        if is_nest {
            let left: Vec<&Field> =
                self.fields().filter(|field| !first.captures().any(|name| name == name_of(field))).collect();
            let [nested] = left[..] else {
                let why = format!(
                    "a nest must hold the enum of its routes: write `{}(Admin)`, or add one field that is not in the prefix",
                    self.item.ident
                );
                return Err(Error::new(self.item.ident.span(), why));
            };
            self.nested = Some(nested);
        }
        for (at, attr) in self.attrs.iter().enumerate() {
            self.check_attr(&attr.pattern, at == 0)?;
        }
        Ok(())
    }

    fn join_unnamed(&mut self, fields: &'i syn::FieldsUnnamed, is_nest: bool) -> Result<()> {
        let ident = &self.item.ident;
        if !is_nest {
            let names: Vec<String> =
                self.attrs[0].pattern.fields().map(|name| format!("{name}: ...")).collect();
            let fields_now =
                if names.is_empty() { "no fields".into() } else { format!("`{{ {} }}`", names.join(", ")) };
            let why = format!(
                "the fields of a route must have the names of its captures: write `{ident}` with {fields_now}"
            );
            return Err(Error::new(fields.span(), why));
        }
        if fields.unnamed.len() != 1 {
            let why = format!("a nest must hold one enum of routes: write `{ident}(Admin)`");
            return Err(Error::new(fields.span(), why));
        }
        for attr in &self.attrs {
            if let Some(name) = attr.pattern.captures().next() {
                let why = format!(
                    "`{{{name}}}` has no field: name the fields, as in `{ident} {{ {name}: u64, page: Page }}`"
                );
                return Err(Error::new(attr.pattern.text.span(), why));
            }
        }
        self.nested = fields.unnamed.first();
        Ok(())
    }

    fn check_attr(&self, pattern: &Pattern, first: bool) -> Result<()> {
        let ident = &self.item.ident;
        for name in pattern.fields() {
            let Some(field) = self.field(name) else {
                let why = format!(
                    "`{{{name}}}` has no field, so its type is missing: write `{ident} {{ {name}: u64 }}`, or `String`"
                );
                return Err(Error::new(pattern.text.span(), why));
            };
            if pattern.captures().any(|capture| capture == name) && cardinality(field).0 != Cardinality::Once
            {
                let why = format!(
                    "`{name}` is in the path and always occurs once: `Option` and `Vec` are for the query"
                );
                return Err(Error::new(field.ty.span(), why));
            }
        }
        for field in self.fields().filter(|field| !self.is_nested(field)) {
            let name = name_of(field);
            let optional = cardinality(field).0 != Cardinality::Once;
            if !pattern.fields().any(|known| known == name) && (first || !optional) {
                let text = pattern.text.value();
                let why = format!(
                    "`{name}` is not in the route \"{text}\": add `{{{name}}}` or `?{{{name}}}` to it, or remove the field"
                );
                return Err(Error::new(field.span(), why));
            }
        }
        Ok(())
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = &'i Field> {
        self.item.fields.iter()
    }

    pub(crate) fn field(&self, name: &str) -> Option<&'i Field> {
        self.fields().find(|field| name_of(field) == name && !self.is_nested(field))
    }

    pub(crate) fn is_nested(&self, field: &Field) -> bool {
        self.nested.is_some_and(|nested| std::ptr::eq(nested, field))
    }
}

/// Returns the name of a field as in patterns. The only field of a nest may have no name.
pub(crate) fn name_of(field: &Field) -> String {
    use syn::ext::IdentExt;
    field.ident.as_ref().map(|ident| ident.unraw().to_string()).unwrap_or_default()
}

/// Returns how often the field may occur in a query, and the type of one value.
pub(crate) fn cardinality(field: &Field) -> (Cardinality, &Type) {
    let Type::Path(path) = ungrouped(&field.ty) else { return (Cardinality::Once, &field.ty) };
    let Some(last) = path.path.segments.last() else { return (Cardinality::Once, &field.ty) };
    let PathArguments::AngleBracketed(arguments) = &last.arguments else {
        return (Cardinality::Once, &field.ty);
    };
    let Some(GenericArgument::Type(inner)) = arguments.args.first() else {
        return (Cardinality::Once, &field.ty);
    };
    match last.ident.to_string().as_str() {
        "Option" => (Cardinality::Optional, inner),
        "Vec" => (Cardinality::Repeated, inner),
        _ => (Cardinality::Once, &field.ty),
    }
}

/// Removes the invisible group around a type that a macro passed in.
fn ungrouped(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => ungrouped(&group.elem),
        ty => ty,
    }
}
