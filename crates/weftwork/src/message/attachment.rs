//! Marks a response as a download with a file name.

use http::{HeaderValue, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::response::Response;

/// Characters allowed unescaped in an extended value: `attr-char` of RFC 8187 section 3.2.1.
const ATTR_CHAR: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

impl Response {
    /// Makes a browser save the body as a file with this name, instead of showing it: `Content-Disposition: attachment`
    /// (RFC 6266). Works for any body: text, a file, or a stream. An error response stays unchanged and is shown.
    ///
    /// Every name gives a valid field. A name that is not plain ASCII is also sent in UTF-8 (`filename*`, RFC 8187),
    /// which all browsers prefer. Control characters and path separators become `_`. Without a name (`""`), the browser
    /// derives one from the path.
    ///
    /// ```
    /// use weftwork::prelude::*;
    ///
    /// fn export(_: &mut Request) -> Response {
    ///     text("code,hits\n").with_content_type(HeaderValue::from_static("text/csv")).with_attachment("links.csv")
    /// }
    /// let answer = weftwork::TestClient::new(export).get("/export").send();
    /// assert_eq!(answer.header("content-disposition"), Some("attachment; filename=\"links.csv\""));
    /// ```
    #[must_use]
    pub fn with_attachment(mut self, file_name: &str) -> Response {
        if self.status().is_client_error() || self.status().is_server_error() {
            return self;
        }
        match HeaderValue::try_from(disposition(file_name)) {
            Ok(value) => self.set_header(header::CONTENT_DISPOSITION, value),
            Err(_) => unreachable!("only visible ASCII and spaces are written"),
        }
        self
    }
}

fn disposition(file_name: &str) -> String {
    let is_separator = |c: char| c == '/' || c == '\\';
    let name: String =
        file_name.chars().map(|c| if c.is_control() || is_separator(c) { '_' } else { c }).collect();
    if name.is_empty() {
        return "attachment".into();
    }
    // Some browsers would decode a percent sign (RFC 6266 appendix D).
    let is_plain = |c: char| matches!(c, ' '..='~') && c != '"' && c != '%';
    let plain: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    if plain == name {
        return format!("attachment; filename=\"{plain}\"");
    }
    let extended = utf8_percent_encode(&name, ATTR_CHAR);
    format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{extended}")
}

#[cfg(test)]
mod tests {
    //! Tests that hostile names give one valid field.

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_is_written_in_one_or_two_forms() {
        let table = [
            ("", "attachment"),
            ("links.csv", "attachment; filename=\"links.csv\""),
            ("my links.csv", "attachment; filename=\"my links.csv\""),
            ("süß.csv", "attachment; filename=\"s__.csv\"; filename*=UTF-8''s%C3%BC%C3%9F.csv"),
            ("100%.csv", "attachment; filename=\"100_.csv\"; filename*=UTF-8''100%25.csv"),
            ("a\"b.csv", "attachment; filename=\"a_b.csv\"; filename*=UTF-8''a%22b.csv"),
            ("../etc\\passwd", "attachment; filename=\".._etc_passwd\""),
            ("a\r\nSet-Cookie: b", "attachment; filename=\"a__Set-Cookie: b\""),
            ("€ 5", "attachment; filename=\"_ 5\"; filename*=UTF-8''%E2%82%AC%205"),
        ];
        for (name, disposition_value) in table {
            assert_eq!(disposition(name), disposition_value, "{name:?}");
        }
    }

    #[test]
    fn an_error_is_shown() {
        let missing = Response::decline().with_attachment("a.pdf");
        assert_eq!(missing.header(header::CONTENT_DISPOSITION), None);
    }

    proptest! {
        #[test]
        fn every_name_makes_one_field(name in any::<String>()) {
            let response = Response::text("").with_attachment("before").with_attachment(&name);
            let disposition_value = response.header(header::CONTENT_DISPOSITION).unwrap();
            prop_assert_eq!(response.header_values(header::CONTENT_DISPOSITION).count(), 1);
            prop_assert!(disposition_value.starts_with("attachment"));
            prop_assert!(disposition_value.bytes().filter(|&byte| byte == b'"').count() <= 2);
            if let Some((_, extended)) = disposition_value.split_once("UTF-8''") {
                let decoded = percent_encoding::percent_decode_str(extended).decode_utf8().unwrap();
                prop_assert_eq!(decoded.chars().count(), name.chars().count());
            }
        }
    }
}
