//! The static table (RFC 7541, appendix A), and its names by their text.

/// An entry of the static table.
pub(super) struct StaticField {
    /// Name and value, one after the other: the decoder copies them at once.
    pub(super) text: &'static [u8],
    pub(super) name_len: u8,
    /// Index of the first entry with this name.
    pub(super) name_index: u8,
}

impl StaticField {
    #[inline(always)]
    pub(super) fn name(&self) -> &'static [u8] {
        &self.text[..usize::from(self.name_len)]
    }

    #[inline(always)]
    pub(super) fn value(&self) -> &'static [u8] {
        &self.text[usize::from(self.name_len)..]
    }
}

/// Index of the last entry.
pub(super) const LAST: usize = 61;

macro_rules! entries {
    ($($name:literal $value:literal)*) => {
        const TEXTS: [(&str, &str); LAST] = [$(($name, concat!($name, $value))),*];
    };
}

#[rustfmt::skip]
entries! {
    ":authority" ""
    ":method" "GET"
    ":method" "POST"
    ":path" "/"
    ":path" "/index.html"
    ":scheme" "http"
    ":scheme" "https"
    ":status" "200"
    ":status" "204"
    ":status" "206"
    ":status" "304"
    ":status" "400"
    ":status" "404"
    ":status" "500"
    "accept-charset" ""
    "accept-encoding" "gzip, deflate"
    "accept-language" ""
    "accept-ranges" ""
    "accept" ""
    "access-control-allow-origin" ""
    "age" ""
    "allow" ""
    "authorization" ""
    "cache-control" ""
    "content-disposition" ""
    "content-encoding" ""
    "content-language" ""
    "content-length" ""
    "content-location" ""
    "content-range" ""
    "content-type" ""
    "cookie" ""
    "date" ""
    "etag" ""
    "expect" ""
    "expires" ""
    "from" ""
    "host" ""
    "if-match" ""
    "if-modified-since" ""
    "if-none-match" ""
    "if-range" ""
    "if-unmodified-since" ""
    "last-modified" ""
    "link" ""
    "location" ""
    "max-forwards" ""
    "proxy-authenticate" ""
    "proxy-authorization" ""
    "range" ""
    "referer" ""
    "refresh" ""
    "retry-after" ""
    "server" ""
    "set-cookie" ""
    "strict-transport-security" ""
    "transfer-encoding" ""
    "user-agent" ""
    "vary" ""
    "via" ""
    "www-authenticate" ""
}

/// The entries by index. The index 0 names no field.
pub(super) static ENTRIES: [StaticField; LAST + 1] = entries();

const fn entries() -> [StaticField; LAST + 1] {
    let mut table = [const { StaticField { text: b"", name_len: 0, name_index: 0 } }; LAST + 1];
    let mut at = 0;
    while at < LAST {
        let (name, text) = TEXTS[at];
        let is_repeated = at > 0 && is_same(name.as_bytes(), TEXTS[at - 1].0.as_bytes());
        let name_index = if is_repeated { table[at].name_index } else { at as u8 + 1 };
        table[at + 1] = StaticField { text: text.as_bytes(), name_len: name.len() as u8, name_index };
        at += 1;
    }
    table
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// The first index of each name, by [`slot`].
static BY_SLOT: [u8; 256] = by_slot();

const fn by_slot() -> [u8; 256] {
    let mut table = [0; 256];
    let mut index = LAST;
    while index > 0 {
        let name = TEXTS[index - 1].0.as_bytes();
        let (slot, name_index) = (slot(name), entries()[index].name_index);
        assert!(table[slot] == 0 || table[slot] == name_index, "two names have one slot");
        table[slot] = name_index;
        index -= 1;
    }
    table
}

/// A different number for each name of the table. The multipliers were found by trial.
#[inline(always)]
const fn slot(name: &[u8]) -> usize {
    match name {
        [first, .., last] => (name.len() * 13 + *first as usize + *last as usize * 8) % 256,
        _ => 0,
    }
}

/// Returns the index of the first entry with this name, or 0. `name` is in lower case, as in the table.
#[inline]
pub(super) fn name_index(name: &[u8]) -> u8 {
    let index = BY_SLOT[slot(name)];
    if ENTRIES[usize::from(index)].name() == name { index } else { 0 }
}
