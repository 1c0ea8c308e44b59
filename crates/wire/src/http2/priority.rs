//! Reads the priorities of RFC 9218, which are structured fields (RFC 8941).

use crate::grammar::is_token_byte;

/// The priority of a response (RFC 9218 §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// 0 is the most urgent, 7 the least.
    pub urgency: u8,
    /// Responses of equal urgency share the connection. Otherwise they are sent one after the other.
    pub incremental: bool,
}

impl Default for Priority {
    fn default() -> Self {
        Priority { urgency: 3, incremental: false }
    }
}

impl Priority {
    /// Reads the value of a Priority field, or of PRIORITY_UPDATE. What is missing or out of range has its default (RFC 9218
    /// §4). A value that is no dictionary counts as empty.
    pub fn parse(value: &[u8]) -> Priority {
        let mut priority = Priority::default();
        priority.update(value);
        priority
    }

    /// Reads a further field line.
    pub(super) fn update(&mut self, value: &[u8]) {
        let mut updated = *self;
        let is_whole = Reader(value).dictionary(|key, item| match (key, item) {
            (b"u", Item::Integer(urgency @ 0..=7)) => updated.urgency = urgency as u8,
            (b"i", Item::Boolean(incremental)) => updated.incremental = incremental,
            _ => {}
        });
        if is_whole.is_some() {
            *self = updated;
        }
    }
}

/// The value of a member of a dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    Integer(i64),
    Boolean(bool),
    Other,
}

/// Reads a structured field (RFC 8941 §4.2). None: it is malformed.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn dictionary(&mut self, mut member: impl FnMut(&[u8], Item)) -> Option<()> {
        self.skip(b" ");
        while !self.0.is_empty() {
            let key = self.key()?;
            let item = if self.next_is(b'=') { self.item_or_inner_list()? } else { Item::Boolean(true) };
            self.parameters()?;
            member(key, item);
            self.skip(b" \t");
            if self.0.is_empty() {
                return Some(());
            }
            if !self.next_is(b',') {
                return None;
            }
            self.skip(b" \t");
            // A comma has a member after it.
            self.0.first()?;
        }
        Some(())
    }

    fn item_or_inner_list(&mut self) -> Option<Item> {
        if !self.next_is(b'(') {
            return self.bare_item();
        }
        loop {
            self.skip(b" ");
            if self.next_is(b')') {
                return Some(Item::Other);
            }
            self.bare_item()?;
            self.parameters()?;
            if !matches!(self.0.first(), Some(b' ' | b')')) {
                return None;
            }
        }
    }

    fn parameters(&mut self) -> Option<()> {
        while self.next_is(b';') {
            self.skip(b" ");
            self.key()?;
            if self.next_is(b'=') {
                self.bare_item()?;
            }
        }
        Some(())
    }

    fn key(&mut self) -> Option<&'a [u8]> {
        if !matches!(self.0.first(), Some(b'a'..=b'z' | b'*')) {
            return None;
        }
        Some(self.run(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*')))
    }

    fn bare_item(&mut self) -> Option<Item> {
        match self.0.first()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.string(),
            b':' => {
                self.0 = &self.0[1..];
                self.run(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='));
                self.next_is(b':').then_some(Item::Other)
            }
            b'?' => {
                let [_, digit @ (b'0' | b'1'), rest @ ..] = self.0 else { return None };
                self.0 = rest;
                Some(Item::Boolean(*digit == b'1'))
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'*' => {
                self.run(|byte| is_token_byte(byte) || matches!(byte, b':' | b'/'));
                Some(Item::Other)
            }
            _ => None,
        }
    }

    /// At most 15 digits, or 12 and three decimals.
    fn number(&mut self) -> Option<Item> {
        let is_negative = self.next_is(b'-');
        let digits = self.run(|byte| byte.is_ascii_digit());
        let value = match digits.len() {
            1..=15 => digits.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0')),
            _ => return None,
        };
        if !self.next_is(b'.') {
            return Some(Item::Integer(if is_negative { -value } else { value }));
        }
        let decimals = self.run(|byte| byte.is_ascii_digit()).len();
        (digits.len() <= 12 && matches!(decimals, 1..=3)).then_some(Item::Other)
    }

    fn string(&mut self) -> Option<Item> {
        self.0 = &self.0[1..];
        loop {
            self.run(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\'));
            match self.0 {
                [b'"', rest @ ..] => {
                    self.0 = rest;
                    return Some(Item::Other);
                }
                [b'\\', b'"' | b'\\', rest @ ..] => self.0 = rest,
                _ => return None,
            }
        }
    }

    fn next_is(&mut self, byte: u8) -> bool {
        let rest = self.0.strip_prefix(&[byte]);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn skip(&mut self, bytes: &[u8]) {
        self.run(|byte| bytes.contains(&byte));
    }

    fn run(&mut self, is_member: impl Fn(u8) -> bool) -> &'a [u8] {
        let len = self.0.iter().position(|&byte| !is_member(byte)).unwrap_or(self.0.len());
        let (run, rest) = self.0.split_at(len);
        self.0 = rest;
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: &str, urgency: u8, incremental: bool) {
        assert_eq!(Priority::parse(value.as_bytes()), Priority { urgency, incremental }, "{value}");
    }

    #[test]
    fn rfc9218_4_parameters() {
        check("", 3, false);
        check("u=0", 0, false);
        check("u=7, i", 7, true);
        check("i, u=1", 1, true);
        check("i=?0,u=5", 5, false);
        check("u=2;a=b;c, i;q=0.5", 2, true);
        check("  u=1 \t,\t i", 1, true);
        check("u=1, u=4", 4, false);
    }

    #[test]
    fn rfc9218_4_values_out_of_range_are_ignored() {
        for value in ["u=8", "u=-1", "u=1.5", "u=\"1\"", "u", "u=?1", "u=high", "i=1", "i=(?1)", "x=:aGk=:"] {
            check(value, 3, false);
        }
        check("u=9, i", 3, true);
        check("u=1, x=(a \"b\\\"c\" 1.25;p=:aa==: ?0);r, i", 1, true);
    }

    #[test]
    fn rfc8941_4_2_a_malformed_dictionary_counts_as_empty() {
        for value in [
            "u=1,",
            "u=1,,i",
            "U=1",
            "u =1",
            "u= 1",
            "u=1 i",
            "u=1;",
            "=1",
            "u=1, 9",
            "u=1, x=(a",
            "u=1, x=(a\"\")",
            "u=1, x=\"a",
            "u=1, x=\"\\a\"",
            "u=1, x=?2",
            "u=1, x=1.",
            "u=1, x=1.2345",
            "u=1, x=:a",
            "u=1, x=",
            "u=1\n",
            "u=1, x=1234567890123456",
            "u=1, x=1234567890123.1",
            "u=1, x=@1",
            "u=-",
        ] {
            check(value, 3, false);
        }
    }
}
