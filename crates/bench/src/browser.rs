//! The header fields that a browser sends: nineteen, and Host before them.

/// The lines after the Host line, each with its end.
pub(crate) const FIELDS: &str = "\
User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36\r\n\
Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
Accept-Language: en-GB,en;q=0.9,de;q=0.8\r\n\
Accept-Encoding: gzip, deflate, br, zstd\r\n\
Cache-Control: max-age=0\r\n\
Connection: keep-alive\r\n\
Cookie: session=d41d8cd98f00b204e9800998ecf8427e; theme=dark; consent=1; _ga=GA1.1.1234567890.1234567890\r\n\
DNT: 1\r\n\
If-Modified-Since: Tue, 01 Sep 2026 10:00:00 GMT\r\n\
If-None-Match: \"5f3c-62a1b0c9d8e7f\"\r\n\
Priority: u=0, i\r\n\
Referer: https://www.example.com/articles/2026/09/how-a-request-is-read\r\n\
Sec-CH-UA: \"Chromium\";v=\"140\", \"Not=A?Brand\";v=\"24\"\r\n\
Sec-CH-UA-Mobile: ?0\r\n\
Sec-Fetch-Dest: document\r\n\
Sec-Fetch-Mode: navigate\r\n\
Sec-Fetch-Site: same-origin\r\n\
Sec-Fetch-User: ?1\r\n\
Upgrade-Insecure-Requests: 1\r\n";

#[cfg(test)]
mod tests {
    #[test]
    fn twenty_with_host() {
        assert_eq!(1 + super::FIELDS.matches("\r\n").count(), 20);
    }
}
