//! How do names with texts become a value? serde on one side, and on the other what queries, forms, fields and
//! paths all are. Its errors know the name, which is why this is not a crate's.

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

/// More are refused: nobody fills in so many, and each costs time.
const PAIRS_MAX: usize = 1000;

/// Names and their texts.
pub(super) struct Pairs<'t> {
    what: &'static str,
    /// What a name is called by those who send it.
    shown_as: fn(&str) -> String,
    /// As they came, until they are asked for by name.
    pairs: Vec<Pair<'t>>,
    /// Names may come more than once, anywhere.
    may_repeat: bool,
    error: Option<PairError>,
    /// Names that were missing, and are given as lists without a value.
    empty: Vec<&'static str>,
}

/// The pairs of a query or form.
pub(super) fn form_pairs(text: &str) -> impl Iterator<Item = Result<Pair<'_>, PairError>> {
    text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        form_decoded(name).zip(form_decoded(value)).ok_or_else(|| PairError::not_utf8(None))
    })
}

impl<'t> Pairs<'t> {
    /// `what` one of them is called.
    pub(super) fn of(
        what: &'static str,
        pairs: impl Iterator<Item = Result<Pair<'t>, PairError>>,
    ) -> Pairs<'t> {
        let (mut kept, mut error) = (Vec::new(), None);
        for pair in pairs {
            match pair {
                Ok(pair) if kept.len() < PAIRS_MAX => kept.push(pair),
                Ok(_) => {
                    error = Some(PairError::new(format_args!("there are more than {PAIRS_MAX} of them")))
                }
                Err(wrong) => error = Some(wrong),
            }
        }
        Pairs { what, shown_as: str::to_owned, pairs: kept, may_repeat: false, error, empty: Vec::new() }
    }

    /// Clients send other names than the type has.
    pub(super) fn shown_as(self, shown_as: fn(&str) -> String) -> Pairs<'t> {
        Pairs { shown_as, ..self }
    }

    /// Equal names belong together, each with its texts in order.
    pub(super) fn repeated(self) -> Pairs<'t> {
        Pairs { may_repeat: true, ..self }
    }

    /// Makes a value of them, which `status` answers for.
    pub(super) fn read<T: DeserializeOwned>(mut self, status: StatusCode) -> Result<T> {
        let (what, shown_as) = (self.what, self.shown_as);
        Ok(self.value().map_err(|error| {
            let name = error.name.as_deref().map(shown_as);
            PairError { name, ..error }.problem(what, status)
        })?)
    }

    /// The same for captures. How many there are, and their names, is for the route to say, and so not for the client.
    pub(super) fn read_of_route<T: DeserializeOwned>(mut self) -> Result<T> {
        let what = self.what;
        self.value().map_err(|error| match (error.is_shape_error, self.single()) {
            (true, _) => {
                let wrong = error.problem(what, StatusCode::INTERNAL_SERVER_ERROR);
                Error::ours(format!("handler arguments do not match the route: {wrong}"))
            }
            // A type that refuses a text by a rule of its own does not know whose it is.
            (false, Ok(text)) => text.with_pair(error).problem(what, StatusCode::BAD_REQUEST).into(),
            (false, Err(_)) => error.problem(what, StatusCode::BAD_REQUEST).into(),
        })
    }

    /// Whoever takes a list takes one without a value, too; only its type knows that it is one, so it is tried.
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

/// What is wrong, and with which of them.
#[derive(Debug)]
pub(super) struct PairError {
    name: Option<String>,
    text: Option<String>,
    why: String,
    /// The field that is missing, if that is it.
    missing: Option<&'static str>,
    /// It is with how many there are, or how they are called.
    is_shape_error: bool,
}

impl PairError {
    fn new(why: impl Display) -> PairError {
        PairError { name: None, text: None, why: why.to_string(), missing: None, is_shape_error: false }
    }

    /// `name` is known to whoever made the route; those of a query are the client's.
    pub(super) fn not_utf8(name: Option<&str>) -> PairError {
        let why = if name.is_some() { "is not UTF-8" } else { "one of them is not UTF-8" };
        PairError { name: name.map(str::to_owned), ..PairError::new(why) }
    }

    /// A type refused what a pair is called.
    fn of_name(name: &str, error: PairError) -> PairError {
        let why = format_args!("cannot be called so: {}", error.why);
        PairError { name: Some(name.to_owned()), is_shape_error: true, ..PairError::new(why) }
    }

    fn of_number(there: usize, taken: usize) -> PairError {
        PairError { is_shape_error: true, ..PairError::new(format_args!("expected {taken}, found {there}")) }
    }

    fn problem(self, what: &str, status: StatusCode) -> Problem {
        const TOLD_CHARS_MAX: usize = 40;
        let problem = Problem::new(status);
        let Some(name) = self.name else { return problem.detail(format!("the {what}s: {}", self.why)) };
        let detail = match self.text {
            Some(text) => {
                let told: String = text.chars().take(TOLD_CHARS_MAX).collect();
                format!("the {what} `{name}` is {told:?}: {}", self.why)
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

/// Values that are one text: what holds the texts hands over its only one.
macro_rules! forward_to_single {
    ($($method:ident)*) => { $(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PairError> {
            self.single()?.$method(visitor)
        }
    )* };
}

impl<'t> Pairs<'t> {
    /// For a value that is no struct: the only text there is.
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

    /// It is there whatever it holds: what may be missing is a part of it.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PairError> {
        visitor.visit_some(self)
    }

    forward_to_deserialize_any! { unit unit_struct map struct identifier ignored_any }
}

type Pair<'t> = (Cow<'t, str>, Cow<'t, str>);

/// A struct's fields: each name once, with all of its texts; then those that have none.
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

/// A name without a text: a list of none, and for all else missing.
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

/// A tuple's or a list's values, one text each.
struct PairSequence<'p, 't> {
    left: &'p [Pair<'t>],
    /// Who lists all pairs may want their names, too; who lists the texts of one name knows it.
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

/// A name, and behind it its text.
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

/// The texts of one name, of which there is one at least.
#[derive(Clone, Copy)]
struct Texts<'p, 't> {
    all: &'p [Pair<'t>],
    /// What a value of one text is made of.
    chosen: &'p str,
    /// Two values of it are the name and the text.
    named: bool,
}

impl<'p, 't> Texts<'p, 't> {
    /// Of several the first one is chosen.
    fn of(all: &'p [Pair<'t>]) -> Texts<'p, 't> {
        let chosen = all.first().map(|(_, text)| &**text).unwrap_or_default();
        Texts { all, chosen, named: false }
    }

    fn with_pair(&self, error: PairError) -> PairError {
        // A name that is there already is of a field that is missing: there is no text.
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

/// Values that are parsed from the first text.
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

    /// Inputs that were left empty are none; of several the first that is filled in is chosen.
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
