//! Parses and formats the values of settings: durations, sizes, numbers and switches.

use std::num::{IntErrorKind, ParseIntError};
use std::time::Duration;

const SIZES: [(&str, u64); 8] = [
    ("gib", 1 << 30),
    ("mib", 1 << 20),
    ("kib", 1 << 10),
    ("gb", 1_000_000_000),
    ("mb", 1_000_000),
    ("kb", 1_000),
    ("b", 1),
    ("", 1),
];

const TIMES: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Parses and formats a type of setting.
pub(super) trait Unit: Sized {
    /// Parses a value.
    ///
    /// # Errors
    /// The text is invalid. The error says what was expected.
    fn parse(text: &str) -> Result<Self, &'static str>;
    /// Formats a value so that [`Unit::parse`] accepts it.
    fn show(&self) -> String;
}

/// Why a text is not a number with a unit.
enum Unfit {
    Malformed,
    /// The text is well-formed, and its value does not fit.
    TooLarge,
}

/// Splits `30s` into 30 and the factor of the unit. Fractions are invalid, because a smaller unit can replace them.
fn scaled(text: &str, units: &[(&str, u64)]) -> Result<u64, Unfit> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let number = text[..digits].replace('_', "");
    let unit = text[digits..].trim().to_ascii_lowercase();
    let factor = units.iter().find(|(name, _)| *name == unit).filter(|_| !number.is_empty());
    let (_, factor) = factor.ok_or(Unfit::Malformed)?;
    // Only digits are left, so parsing fails only if the number is too large.
    number.parse().ok().and_then(|number: u64| number.checked_mul(*factor)).ok_or(Unfit::TooLarge)
}

/// A number of bytes. Written as `512`, `8KiB`, `2MiB`, `1GiB`, or with decimal `kB`, `MB`, `GB`.
impl Unit for u64 {
    fn parse(text: &str) -> Result<u64, &'static str> {
        scaled(text, &SIZES).map_err(|unfit| match unfit {
            Unfit::Malformed => "a size such as 512, 64KiB or 2MiB",
            // Maximum of u64.
            Unfit::TooLarge => "at most 17179869183GiB",
        })
    }
    fn show(&self) -> String {
        let whole = |unit: u64| *self >= unit && self.is_multiple_of(unit);
        match *self {
            n if whole(1 << 30) => format!("{}GiB", n >> 30),
            n if whole(1 << 20) => format!("{}MiB", n >> 20),
            n if whole(1 << 10) => format!("{}KiB", n >> 10),
            n => format!("{n}B"),
        }
    }
}

impl Unit for Duration {
    fn parse(text: &str) -> Result<Duration, &'static str> {
        scaled(text, &TIMES).map(Duration::from_millis).map_err(|unfit| match unfit {
            Unfit::Malformed => "a duration with its unit, such as 500ms, 30s or 5m",
            // Maximum of u64 in milliseconds.
            Unfit::TooLarge => "at most 213503982334d",
        })
    }
    fn show(&self) -> String {
        if self.is_zero() {
            return "0s".into();
        }
        let millis = self.as_millis() as u64;
        let (unit, factor) = TIMES
            .iter()
            .rev()
            .find(|(_, factor)| millis >= *factor && millis.is_multiple_of(*factor))
            .unwrap_or(&TIMES[0]);
        format!("{}{unit}", millis / factor)
    }
}

impl Unit for bool {
    fn parse(text: &str) -> Result<bool, &'static str> {
        match text.trim() {
            "on" | "true" => Ok(true),
            "off" | "false" => Ok(false),
            _ => Err("on or off"),
        }
    }
    fn show(&self) -> String {
        if *self { "on" } else { "off" }.to_owned()
    }
}

macro_rules! numbers {
    ($($type:ty: $too_large:literal),+) => { $( impl Unit for $type {
        fn parse(text: &str) -> Result<$type, &'static str> {
            text.trim().replace('_', "").parse().map_err(|error: ParseIntError| match error.kind() {
                IntErrorKind::PosOverflow => $too_large,
                _ => "a whole number",
            })
        }
        fn show(&self) -> String {
            self.to_string()
        }
    } )+ };
}
numbers!(u16: "at most 65535", u32: "at most 4294967295", usize: "a smaller number");
