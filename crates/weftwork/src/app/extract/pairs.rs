//! Deserializes name-value pairs with serde: queries, forms, header fields, cookies and path captures. The
//! errors name the pair at fault, which existing crates do not offer.

use std::borrow::Cow;
use std::fmt::{self, Display};

use http::StatusCode;
use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use crate::error::{Error, Result};
use crate::message::{Problem, checkbox, form_decoded};

/// Maximum number of pairs. No person fills in more fields, and each pair costs time.
const PAIRS_MAX: usize = 1000;

/// Name-value pairs and how to read them.
pub(super) struct Pairs<'t> {
    what: &'static str,
    /// Converts a name to the form that clients use.
    shown_as: fn(&str) -> String,
    /// Pairs in the order in which they arrived, until a struct sorts them by name.
    pairs: Vec<Pair<'t>>,
    /// Whether a name may occur more than once, at any position.
    may_repeat: bool,
    error: Option<PairError>,
    /// Names of missing fields, which are tried as empty lists.
    empty: Vec<&'static str>,
}

/// Parses the pairs of a query or form.
pub(super) fn form_pairs(text: &str) -> impl Iterator<Item = Result<Pair<'_>, PairError>> {
    text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        form_decoded(name).zip(form_decoded(value)).ok_or_else(|| PairError::not_utf8(None))
    })
}

impl<'t> Pairs<'t> {
    /// Collects pairs. `what` is the term for one pair in error messages.
    pub(super) fn of(
        what: &'static str,
        pairs: impl Iterator<Item = Result<Pair<'t>, PairError>>,
    ) -> Pairs<'t> {
        let (mut kept, mut error) = (Vec::new(), None);
        for pair in pairs {
            match pair {
                Ok(pair) if kept.len() < PAIRS_MAX => kept.push(pair),
                Ok(_) => error = Some(PairError::new(format_args!("more than {PAIRS_MAX}"))),
                Err(wrong) => error = Some(wrong),
            }
        }
        Pairs { what, shown_as: str::to_owned, pairs: kept, may_repeat: false, error, empty: Vec::new() }
    }

    /// Sets a function that converts names for error messages, if clients use other names than the type.
    pub(super) fn shown_as(self, shown_as: fn(&str) -> String) -> Pairs<'t> {
        Pairs { shown_as, ..self }
    }

    /// Allows repeated names. Equal names are grouped, and their texts keep their order.
    pub(super) fn repeated(self) -> Pairs<'t> {
        Pairs { may_repeat: true, ..self }
    }

    /// Deserializes the pairs. `status` is the status on failure.
    pub(super) fn read<T: DeserializeOwned>(mut self, status: StatusCode) -> Result<T> {
        let (what, shown_as) = (self.what, self.shown_as);
        Ok(self.value().map_err(|error| {
            let name = error.name.as_deref().map(shown_as);
            PairError { name, ..error }.problem(what, status)
        })?)
    }

    /// Deserializes captures. The route determines their number and names, so a mismatch is not the client's
    /// fault.
    pub(super) fn read_of_route<T: DeserializeOwned>(mut self) -> Result<T> {
        let what = self.what;
        self.value().map_err(|error| match (error.is_shape_error, self.single()) {
            (true, _) => {
                let wrong = error.problem(what, StatusCode::INTERNAL_SERVER_ERROR);
                Error::internal(format!("handler arguments do not match the route: {wrong}"))
            }
            // A type with rules of its own does not know the name of the pair.
            (false, Ok(text)) => text.with_pair(error).problem(what, StatusCode::BAD_REQUEST).into(),
            (false, Err(_)) => error.problem(what, StatusCode::BAD_REQUEST).into(),
        })
    }

    /// Deserializes the value. A missing field may be an empty list. Only its type knows that, so the list is
    /// tried.
    fn value<T: DeserializeOwned>(&mut self) -> Result<T, PairError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        loop {
            match T::deserialize(&mut *self) {
                Err(PairError { missing: Some(name), .. }) if !self.empty.contains(&name) => {
                    self.empty.push(name)
                }
                done => return done,
            }
        }
    }
}

/// An error and the pair that caused it.
#[derive(Debug)]
pub(super) struct PairError {
    name: Option<String>,
    text: Option<String>,
    why: String,
    /// Name of the field, if the field is missing.
    missing: Option<&'static str>,
    /// Whether the number or the names of the pairs are wrong.
    is_shape_error: bool,
}

impl PairError {
    fn new(why: impl Display) -> PairError {
        PairError { name: None, text: None, why: why.to_string(), missing: None, is_shape_error: false }
    }

    /// Creates the error for text that is not UTF-8. `name` is given if it comes from the route. Names in a
    /// query come from the client.
    pub(super) fn not_utf8(name: Option<&str>) -> PairError {
        let why = if name.is_some() { "is not UTF-8" } else { "a name or value is not UTF-8" };
        PairError { name: name.map(str::to_owned), ..PairError::new(why) }
    }

    /// Creates the error for a name that a type rejected.
    fn of_name(name: &str, error: PairError) -> PairError {
        let why = format_args!("has an invalid name: {}", error.why);
        PairError { name: Some(name.to_owned()), is_shape_error: true, ..PairError::new(why) }
    }

    fn of_number(there: usize, taken: usize) -> PairError {
        PairError { is_shape_error: true, ..PairError::new(format_args!("expected {taken}, found {there}")) }
    }

    fn problem(self, what: &str, status: StatusCode) -> Problem {
        const SHOWN_CHARS_MAX: usize = 40;
        let problem = Problem::new(status);
        let Some(name) = self.name else { return problem.detail(format!("the {what}s: {}", self.why)) };
        let detail = match self.text {
            Some(text) => {
                let shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
                format!("the {what} `{name}` is {shown:?}: {}", self.why)
            }
            None => format!("the {what} `{name}` {}", self.why),
        };
        problem.detail(detail).with("field", name)
    }
}

impl Display for PairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for PairError {}

impl de::Error for PairError {
    fn custom<T: Display>(why: T) -> PairError {
        PairError::new(why)
    }

    fn missing_field(name: &'static str) -> PairError {
        let name_text = Some(name.to_owned());
        PairError {
            name: name_text,
            missing: Some(name),
            is_shape_error: true,
            ..PairError::new("is missing")
        }
    }
}

/// Forwards types that consist of a single text to the only pair.
macro_rules! forward_to_single {
    ($($method:ident)*) => { $(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PairError> {
            self.single()?.$method(visitor)
        }
    )* };
}

impl<'t> Pairs<'t> {
    /// Returns the only text, for a value that is not a struct.
    fn single(&self) -> Result<Texts<'_, 't>, PairError> {
        match &self.pairs[..] {
            [single] => Ok(Texts::of(std::slice::from_ref(single))),
            pairs => Err(PairError::of_number(pairs.len(), 1)),
        }
    }
}

impl<'de> Deserializer<'de> for &mut Pairs<'_> {
    type Error = PairError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PairError> {
        if self.may_repeat {
            self.pairs.sort_by(|one, two| one.0.cmp(&two.0));
        }
        visitor.visit_map(Groups { left: &self.pairs, empty: &self.empty, next: None })
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PairError> {
        visitor.visit_seq(PairSequence { left: &self.pairs, named: true })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, PairError> {
        match self.pairs.len() {
            there if there == length => self.deserialize_seq(visitor),
            there => Err(PairError::of_number(there, length)),
        }
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, PairError> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, PairError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, PairError> {
        self.single()?.deserialize_enum(name, variants, visitor)
    }

    forward_to_single! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64 deserialize_char deserialize_str deserialize_string
        deserialize_bytes deserialize_byte_buf
    }

    /// The whole value is always present. Only parts of it may be missing.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PairError> {
        visitor.visit_some(self)
    }

    forward_to_deserialize_any! { unit unit_struct map struct identifier ignored_any }
}

type Pair<'t> = (Cow<'t, str>, Cow<'t, str>);

/// Iterates over the fields of a struct: each name once with all its texts, then the names without a text.
struct Groups<'p, 't> {
    left: &'p [Pair<'t>],
    empty: &'p [&'static str],
    next: Option<Group<'p, 't>>,
}

enum Group<'p, 't> {
    Texts(Texts<'p, 't>),
    Empty(EmptyValue),
}

impl<'de> MapAccess<'de> for Groups<'_, '_> {
    type Error = PairError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, PairError> {
        let name: &str = match (self.left.first(), self.empty.split_first()) {
            (Some((name, _)), _) => {
                let count = self.left.iter().take_while(|(other, _)| other == name).count();
                let (texts, left) = self.left.split_at(count);
                (self.left, self.next) = (left, Some(Group::Texts(Texts::of(texts))));
                name
            }
            (None, Some((name, left))) => {
                (self.empty, self.next) = (left, Some(Group::Empty(EmptyValue(name))));
                name
            }
            (None, None) => return Ok(None),
        };
        let key: StrDeserializer<'_, PairError> = name.into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, PairError> {
        match self.next.take() {
            Some(Group::Texts(texts)) => seed.deserialize(texts).map_err(|error| texts.with_pair(error)),
            Some(Group::Empty(empty)) => seed.deserialize(empty),
            None => Err(PairError::new("a value was asked for before its name")),
        }
    }
}

/// A name without a text. It is an empty list, or a missing value of any other type.
struct EmptyValue(&'static str);

impl<'de> Deserializer<'de> for EmptyValue {
    type Error = PairError;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, PairError> {
        Err(de::Error::missing_field(self.0))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PairError> {
        visitor.visit_seq(PairSequence { left: &[], named: false })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, PairError> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Iterates over the values of a tuple or a list, one text each.
struct PairSequence<'p, 't> {
    left: &'p [Pair<'t>],
    /// Whether elements may include the name. A list of all pairs needs names. A list of the texts of one name
    /// does not.
    named: bool,
}

impl<'de> SeqAccess<'de> for PairSequence<'_, '_> {
    type Error = PairError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, PairError> {
        let Some((first, left)) = self.left.split_first() else { return Ok(None) };
        self.left = left;
        let text = Texts { named: self.named, ..Texts::of(std::slice::from_ref(first)) };
        seed.deserialize(text).map(Some).map_err(|error| text.with_pair(error))
    }
}

/// A name followed by its text, as a tuple.
struct NameAndText<'p, 't> {
    name: Option<&'p str>,
    text: Option<Texts<'p, 't>>,
}

impl<'de> SeqAccess<'de> for NameAndText<'_, '_> {
    type Error = PairError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, PairError> {
        if let Some(name) = self.name.take() {
            let pair = (Cow::Borrowed(name), Cow::Borrowed(name));
            let value = seed.deserialize(Texts::of(std::slice::from_ref(&pair)));
            return value.map(Some).map_err(|error| PairError::of_name(name, error));
        }
        self.text.take().map(|text| seed.deserialize(text)).transpose()
    }
}

/// The texts of one name. There is at least one.
#[derive(Clone, Copy)]
struct Texts<'p, 't> {
    all: &'p [Pair<'t>],
    /// Text that a single value is read from.
    chosen: &'p str,
    /// Whether a tuple of two is the name and the text.
    named: bool,
}

impl<'p, 't> Texts<'p, 't> {
    /// Chooses the first of several texts.
    fn of(all: &'p [Pair<'t>]) -> Texts<'p, 't> {
        let chosen = all.first().map(|(_, text)| &**text).unwrap_or_default();
        Texts { all, chosen, named: false }
    }

    fn with_pair(&self, error: PairError) -> PairError {
        // An error with a name is about a missing field, which has no text.
        if error.name.is_some() {
            return error;
        }
        let name = self.all.first().map(|(name, _)| name.to_string());
        let text = error.text.or_else(|| Some(self.chosen.to_owned()));
        PairError { name, text, ..error }
    }

    fn parsed<T: std::str::FromStr<Err: Display>>(&self) -> Result<T, PairError> {
        self.parsed_as(self.chosen)
    }

    fn parsed_as<T: std::str::FromStr<Err: Display>>(&self, text: &str) -> Result<T, PairError> {
        text.parse().map_err(|why| self.with_pair(PairError::new(why)))
    }
}

/// Parses values from the chosen text.
macro_rules! parse {
    ($($method:ident $visit:ident)*) => { $(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PairError> {
            visitor.$visit(self.parsed()?)
        }
    )* };
}

impl<'de> Deserializer<'de> for Texts<'_, '_> {
    type Error = PairError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PairError> {
        visitor.visit_str(self.chosen).map_err(|error: PairError| self.with_pair(error))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PairError> {
        visitor.visit_bool(self.parsed_as(checkbox(self.chosen))?)
    }

    parse! {
        deserialize_i8 visit_i8 deserialize_i16 visit_i16 deserialize_i32 visit_i32 deserialize_i64 visit_i64
        deserialize_i128 visit_i128 deserialize_u8 visit_u8 deserialize_u16 visit_u16 deserialize_u32 visit_u32
        deserialize_u64 visit_u64 deserialize_u128 visit_u128 deserialize_f32 visit_f32
        deserialize_f64 visit_f64 deserialize_char visit_char
    }

    /// Empty inputs count as missing. Of several texts, the first that is not empty is chosen.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PairError> {
        match self.all.iter().find(|(_, text)| !text.is_empty()) {
            Some((_, chosen)) => visitor.visit_some(Texts { chosen, ..self }),
            None => visitor.visit_none(),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PairError> {
        visitor.visit_seq(PairSequence { left: self.all, named: false })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, PairError> {
        match self.all {
            [(name, _)] if self.named && length == 2 => {
                let text = Texts { named: false, ..self };
                visitor.visit_seq(NameAndText { name: Some(name), text: Some(text) })
            }
            _ => self.deserialize_seq(visitor),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, PairError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, PairError> {
        let variant: StrDeserializer<'_, PairError> = self.chosen.into_deserializer();
        visitor.visit_enum(variant).map_err(|error| self.with_pair(error))
    }

    forward_to_deserialize_any! {
        str string bytes byte_buf unit unit_struct tuple_struct map struct identifier ignored_any
    }
}
