//! Indices of names in the static table, as in [`DecodedField::name_index`](super::DecodedField::name_index): the first
//! entry that has the name (RFC 7541, appendix A).

macro_rules! indices {
    ($($name:ident $index:literal $text:literal)*) => {
        $(#[doc = concat!("`", $text, "`")] pub const $name: u8 = $index;)*

        #[cfg(test)]
        pub(super) const ALL: &[(u8, &str)] = &[$(($index, $text)),*];
    };
}

indices! {
    AUTHORITY 1 ":authority"
    METHOD 2 ":method"
    PATH 4 ":path"
    SCHEME 6 ":scheme"
    STATUS 8 ":status"
    AUTHORIZATION 23 "authorization"
    CONTENT_LENGTH 28 "content-length"
    CONTENT_TYPE 31 "content-type"
    COOKIE 32 "cookie"
    DATE 33 "date"
    EXPECT 35 "expect"
    HOST 38 "host"
    PROXY_AUTHORIZATION 49 "proxy-authorization"
    SERVER 54 "server"
    SET_COOKIE 55 "set-cookie"
    TRANSFER_ENCODING 57 "transfer-encoding"
}
