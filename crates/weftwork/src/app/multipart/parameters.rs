//! Parses the parameters of a field: the boundary of a form, and the name and file name of a part.

use http::{HeaderMap, header};
use percent_encoding::percent_decode_str;

use crate::message::{BodyError, split_unquoted};

/// A parameter occurs twice, its quotes are malformed, or the name is missing. The meaning is then ambiguous.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidDisposition;

impl From<InvalidDisposition> for BodyError {
    fn from(InvalidDisposition: InvalidDisposition) -> BodyError {
        BodyError::MultipartMalformed("the name or file name of a part is missing or invalid".into())
    }
}

/// Name and file name in the head of a part.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Disposition {
    pub(super) name: String,
    pub(super) file_name: Option<String>,
}

impl Disposition {
    /// Parses the field of RFC 7578 section 4.2. A name that cannot be parsed is an error, because a file would
    /// otherwise be taken for text. A missing name is an error too: if a part starts with an empty line, the
    /// parser takes everything up to the end of the next head for the head.
    pub(super) fn of(head: &HeaderMap) -> Result<Disposition, InvalidDisposition> {
        let mut values = head.get_all(header::CONTENT_DISPOSITION).iter();
        let value = values.next().ok_or(InvalidDisposition)?;
        let text = std::str::from_utf8(value.as_bytes()).map_err(|_| InvalidDisposition)?;
        if values.next().is_some() {
            return Err(InvalidDisposition);
        }
        let name = parameter(text, "name")?.ok_or(InvalidDisposition)?;
        Ok(Disposition { name, file_name: file_name(text)? })
    }
}

/// Returns the file name. That section forbids `filename*`, but clients built on .NET and Java send it beside a
/// `filename` in ASCII, or alone. It then has the whole name, as in RFC 6266 section 4.3.
fn file_name(text: &str) -> Result<Option<String>, InvalidDisposition> {
    let plain = parameter(text, "filename")?;
    match (plain, parameter(text, "filename*")) {
        (Some(plain), extended) => {
            let extended = extended.ok().flatten().and_then(|value| decoded(&value));
            Ok(Some(extended.filter(|name| !name.is_empty()).unwrap_or(plain)))
        }
        (None, Ok(Some(extended))) => decoded(&extended).map(Some).ok_or(InvalidDisposition),
        (None, missing) => missing,
    }
}

/// Decodes an extended value, such as `UTF-8''%C3%BC.txt` (RFC 8187 section 3.2).
fn decoded(value: &str) -> Option<String> {
    let (charset, rest) = value.split_once('\'')?;
    let (_language, encoded) = rest.split_once('\'')?;
    let is_whole = |part: &str| part.len() >= 2 && part.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit);
    if !encoded.is_ascii() || !encoded.split('%').skip(1).all(is_whole) {
        return None;
    }
    let bytes: Vec<u8> = percent_decode_str(encoded).collect();
    match charset {
        _ if charset.eq_ignore_ascii_case("utf-8") => String::from_utf8(bytes).ok(),
        _ if charset.eq_ignore_ascii_case("iso-8859-1") => Some(bytes.into_iter().map(char::from).collect()),
        _ => None,
    }
}

/// Returns the boundary of a form. `None` if the type is another one, or has no boundary.
pub(super) fn boundary(content_type: &str) -> Option<String> {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    parameter(content_type, "boundary").ok()?
}

/// Returns the parameter `wanted` after the value of a field, without its quotes (RFC 9110 section 5.6.6).
fn parameter(text: &str, wanted: &str) -> Result<Option<String>, InvalidDisposition> {
    let mut found = None;
    for (index, part) in split_unquoted(text, b';').into_iter().enumerate() {
        let (name, value) = part.split_once('=').map_or((part, None), |(name, value)| (name, Some(value)));
        if name.contains('"') {
            return Err(InvalidDisposition);
        }
        if index > 0 && name.trim().eq_ignore_ascii_case(wanted) {
            let value = value.and_then(|value| unquoted(value.trim())).ok_or(InvalidDisposition)?;
            if found.replace(value).is_some() {
                return Err(InvalidDisposition);
            }
        }
    }
    Ok(found)
}

/// Removes quotes. A backslash is literal, except before a quote or a backslash, because some clients send
/// names with a Windows path.
fn unquoted(value: &str) -> Option<String> {
    let Some(opened) = value.strip_prefix('"') else {
        return (!value.contains('"')).then(|| value.to_owned());
    };
    let (mut text, mut chars) = (String::new(), opened.strip_suffix('"')?.chars().peekable());
    while let Some(char) = chars.next() {
        text.push(match char {
            '"' => return None,
            '\\' => chars.next_if(|next| matches!(next, '"' | '\\')).unwrap_or('\\'),
            char => char,
        });
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    //! Tests that parameters are found at every valid place, and nowhere else.

    use http::HeaderValue;

    use super::*;

    fn read(values: &[&[u8]]) -> Result<Disposition, InvalidDisposition> {
        let mut head = HeaderMap::new();
        for value in values {
            head.append(header::CONTENT_DISPOSITION, HeaderValue::from_bytes(value).unwrap());
        }
        Disposition::of(&head)
    }

    #[track_caller]
    fn check(value: &str, name: Option<&str>, file_name: Option<&str>) {
        let file_name = file_name.map(str::to_owned);
        let wanted =
            name.map(|name| Disposition { name: name.to_owned(), file_name }).ok_or(InvalidDisposition);
        assert_eq!(read(&[value.as_bytes()]), wanted, "{value}");
    }

    #[test]
    fn names_as_clients_write_them() {
        assert_eq!(read(&[]), Err(InvalidDisposition));
        check("form-data", None, None);
        check("form-data; name=\"a\"", Some("a"), None);
        check("form-data; name=\"\"; filename=\"\"", Some(""), Some(""));
        check("form-data;NAME = a ;Filename= \"b c.txt\" ; x", Some("a"), Some("b c.txt"));
        check("form-data; filename=\u{fc}.txt; name=\"\u{fc}\"", Some("\u{fc}"), Some("\u{fc}.txt"));
        check("form-data; name=\"%22a%22\"", Some("%22a%22"), None);
        check("form-data; name=f; filename=a.txt; filename*=utf-8''a.txt", Some("f"), Some("a.txt"));
        check("form-data; name=f; filename=\"C:\\dir\\a.txt\"", Some("f"), Some("C:\\dir\\a.txt"));
        check("form-data; name=\"a\\\"b\\\\\"; filename=\"\\\\\\\"\"", Some("a\"b\\"), Some("\\\""));
    }

    /// `HttpClient` of .NET, Spring 5 and 6, and Apache HttpClient 5 (which quotes the value).
    #[test]
    fn extended_file_names() {
        let extended = |rest: &str, file_name: &str| {
            check(&format!("form-data; name=f; {rest}"), Some("f"), Some(file_name));
        };
        extended("filename*=UTF-8''%C3%BC%20b.txt", "\u{fc} b.txt");
        extended("filename=\"=?utf-8?B?w7wudHh0?=\"; filename*=utf-8''%C3%BC.txt", "\u{fc}.txt");
        extended("filename*=UTF-8''%C3%BC.txt; filename=\"?.txt\"", "\u{fc}.txt");
        extended("filename*=\"UTF-8''%C3%BC.txt\"", "\u{fc}.txt");
        extended("FileName*=utf-8'de'a%27b%25.txt", "a'b%.txt");
        extended("filename*=ISO-8859-1''%FC.txt", "\u{fc}.txt");
        extended("filename*=UTF-8''", "");
        // The other name counts if this one cannot be read.
        extended("filename=a.txt; filename*=UTF-8''", "a.txt");
        extended("filename=a.txt; filename*=UTF-16''b.txt", "a.txt");
        extended("filename=a.txt; filename*=UTF-8''b; filename*=UTF-8''c", "a.txt");
    }

    #[test]
    fn what_stands_in_quotes_is_no_parameter() {
        check("form-data; name=\"x; filename=evil.txt\"", Some("x; filename=evil.txt"), None);
        check("form-data; name=\"x; \\\"; filename=evil\"", Some("x; \"; filename=evil"), None);
        check("form-data; x=\"; name=b\"; name=a; filenames=c; y=filename", Some("a"), None);
        check("name=a", None, None);
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_not_read() {
        for parameters in [
            "; name=a; name=b",
            "; name=a; filename=b; FileName=b",
            "; name",
            "; filename",
            "; filename=\"a.txt",
            "; filename=a\".txt",
            "; name=\"a\"b",
            "; name=\"a\"\"b\"",
            "; \"x\"; name=a",
            "\"; name=a; filename=b\"",
            "; filename*=UTF-8''a.txt",
            "; name=a; filename*",
            "; name=a; filename*=a.txt",
            "; name=a; filename*=UTF-8'a.txt",
            "; name=a; filename*=UTF-8''%C3.txt",
            "; name=a; filename*=UTF-8''%zz",
            "; name=a; filename*=UTF-8''a%2",
            "; name=a; filename*=UTF-16''a.txt",
            "; name=a; filename*=UTF-8''a; filename*=UTF-8''b",
        ] {
            assert_eq!(
                read(&[format!("form-data{parameters}").as_bytes()]),
                Err(InvalidDisposition),
                "{parameters}"
            );
        }
        assert_eq!(read(&[b"form-data; name=\"\xff\""]), Err(InvalidDisposition));
        assert_eq!(read(&[b"form-data; name=a", b"form-data; name=b; filename=c"]), Err(InvalidDisposition));
    }

    #[test]
    fn boundaries() {
        for (content_type, wanted) in [
            ("multipart/form-data; boundary=x", Some("x")),
            ("Multipart/Form-Data ; charset=utf-8 ;BOUNDARY=\"a b\"", Some("a b")),
            ("multipart/form-data; x=\"; boundary=y\"; boundary=z", Some("z")),
            ("multipart/form-data; boundary=", Some("")),
            ("multipart/form-data; boundary=a; boundary=b", None),
            ("multipart/form-data; boundary=\"a", None),
            ("multipart/form-data", None),
            ("multipart/form-data2; boundary=x", None),
            ("boundary=x", None),
        ] {
            assert_eq!(boundary(content_type).as_deref(), wanted, "{content_type}");
        }
    }
}
