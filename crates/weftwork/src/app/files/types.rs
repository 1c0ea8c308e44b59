//! Content types by file extension.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use http::HeaderValue;

/// Content type of the files with an extension.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Type {
    pub(super) value: HeaderValue,
    /// Whether compression makes such files notably smaller. Media and archives are compressed already.
    pub(super) is_compressible: bool,
}

const TEXT: &str = "text/plain; charset=utf-8";

/// Type of unknown extensions.
static OCTETS: Type =
    Type { value: HeaderValue::from_static("application/octet-stream"), is_compressible: false };

/// Web types, media, documents, archives, and source code as text, sorted. Text is declared as UTF-8, which is
/// nearly always right. The table is our own, because crates for this have a thousand types and no charset.
#[rustfmt::skip]
const TYPES: &[(&str, &str)] = &[
    ("7z", "application/x-7z-compressed"),
    ("aac", "audio/aac"),
    ("adoc", TEXT),
    ("apk", "application/vnd.android.package-archive"),
    ("apng", "image/apng"),
    ("atom", "application/atom+xml"),
    ("avi", "video/x-msvideo"),
    ("avif", "image/avif"),
    ("bash", TEXT),
    ("bmp", "image/bmp"),
    ("bz2", "application/x-bzip2"),
    ("c", TEXT),
    ("cc", TEXT),
    ("cfg", TEXT),
    ("cjs", "text/javascript; charset=utf-8"),
    ("clj", TEXT),
    ("cmake", TEXT),
    ("conf", TEXT),
    ("cpp", TEXT),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("cxx", TEXT),
    ("deb", "application/vnd.debian.binary-package"),
    ("diff", TEXT),
    ("doc", "application/msword"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("el", TEXT),
    ("epub", "application/epub+zip"),
    ("erl", TEXT),
    ("ex", TEXT),
    ("flac", "audio/flac"),
    ("geojson", "application/geo+json"),
    ("gif", "image/gif"),
    ("go", TEXT),
    ("gpx", "application/gpx+xml"),
    ("gz", "application/gzip"),
    ("h", TEXT),
    ("heic", "image/heic"),
    ("hpp", TEXT),
    ("hs", TEXT),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/x-icon"),
    ("ics", "text/calendar; charset=utf-8"),
    ("ini", TEXT),
    ("iso", "application/x-iso9660-image"),
    ("jar", "application/java-archive"),
    ("java", TEXT),
    ("jl", TEXT),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("jsonl", "application/jsonl"),
    ("jsonld", "application/ld+json"),
    ("jsx", TEXT),
    ("jxl", "image/jxl"),
    ("kt", TEXT),
    ("lean", TEXT),
    ("less", TEXT),
    ("lisp", TEXT),
    ("lock", TEXT),
    ("log", TEXT),
    ("lua", TEXT),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4a", "audio/mp4"),
    ("m4v", "video/mp4"),
    ("map", "application/json"),
    ("md", "text/markdown; charset=utf-8"),
    ("mid", "audio/midi"),
    ("midi", "audio/midi"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mk", TEXT),
    ("mkv", "video/x-matroska"),
    ("ml", TEXT),
    ("mov", "video/quicktime"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("mpd", "application/dash+xml"),
    ("mpeg", "video/mpeg"),
    ("mpg", "video/mpeg"),
    ("ndjson", "application/jsonl"),
    ("nix", TEXT),
    ("odp", "application/vnd.oasis.opendocument.presentation"),
    ("ods", "application/vnd.oasis.opendocument.spreadsheet"),
    ("odt", "application/vnd.oasis.opendocument.text"),
    ("oga", "audio/ogg"),
    ("ogg", "audio/ogg"),
    ("ogv", "video/ogg"),
    ("opus", "audio/opus"),
    ("otf", "font/otf"),
    ("patch", TEXT),
    ("pdf", "application/pdf"),
    ("pl", TEXT),
    ("png", "image/png"),
    ("ppt", "application/vnd.ms-powerpoint"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("proto", TEXT),
    ("py", TEXT),
    ("r", TEXT),
    ("rar", "application/vnd.rar"),
    ("rb", TEXT),
    ("rs", TEXT),
    ("rss", "application/rss+xml"),
    ("rst", TEXT),
    ("rtf", "application/rtf"),
    ("scm", TEXT),
    ("scss", TEXT),
    ("sh", TEXT),
    ("sql", TEXT),
    ("sqlite", "application/vnd.sqlite3"),
    ("srt", TEXT),
    ("svg", "image/svg+xml"),
    ("swift", TEXT),
    ("tar", "application/x-tar"),
    ("tex", TEXT),
    ("text", TEXT),
    ("tgz", "application/gzip"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("toml", "application/toml"),
    ("ts", TEXT),
    ("tsv", "text/tab-separated-values; charset=utf-8"),
    ("tsx", TEXT),
    ("ttc", "font/collection"),
    ("ttf", "font/ttf"),
    ("txt", TEXT),
    ("vcf", "text/vcard; charset=utf-8"),
    ("vtt", "text/vtt; charset=utf-8"),
    ("vue", TEXT),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("weba", "audio/webm"),
    ("webm", "video/webm"),
    ("webmanifest", "application/manifest+json"),
    ("webp", "image/webp"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xhtml", "application/xhtml+xml"),
    ("xls", "application/vnd.ms-excel"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("xml", "application/xml"),
    ("xsd", "application/xml"),
    ("xsl", "application/xml"),
    ("xz", "application/x-xz"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zip", "application/zip"),
    ("zst", "application/zstd"),
];

/// The table by [`key`]. Values are made once, because making one checks its bytes.
static KNOWN: LazyLock<BTreeMap<u128, Type>> = LazyLock::new(|| {
    let typed = |content_type| Type::from(HeaderValue::from_static(content_type));
    TYPES.iter().filter_map(|(extension, value)| Some((key(extension.as_bytes())?, typed(value)))).collect()
});

/// Packs an extension in lower case into a number. `None` if it is longer than every extension in the table.
fn key(extension: &[u8]) -> Option<u128> {
    let packed = |key, byte: &u8| key << u8::BITS | u128::from(byte.to_ascii_lowercase());
    (extension.len() <= size_of::<u128>()).then(|| extension.iter().fold(0, packed))
}

/// Returns the type of the file at `path`. `given` takes precedence over the table.
pub(super) fn of<'a>(path: &[u8], given: &'a [(String, Type)]) -> &'a Type {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let extension = name.iter().rposition(|byte| *byte == b'.').map_or(&b""[..], |dot| &name[dot + 1..]);
    match given.iter().find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(extension)) {
        Some((_, given)) => given,
        None => key(extension).and_then(|key| KNOWN.get(&key)).unwrap_or(&OCTETS),
    }
}

impl From<HeaderValue> for Type {
    fn from(value: HeaderValue) -> Type {
        let is_compressible = is_compressible(value.as_bytes());
        Type { value, is_compressible }
    }
}

fn is_compressible(content_type: &[u8]) -> bool {
    let kind = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    kind.starts_with(b"text/")
        || kind.ends_with(b"+xml")
        || kind.ends_with(b"+json")
        || matches!(
            kind,
            b"application/json"
                | b"application/jsonl"
                | b"application/javascript"
                | b"application/xml"
                | b"application/toml"
                | b"application/yaml"
                | b"application/wasm"
                | b"application/rtf"
                | b"application/x-tar"
                | b"application/vnd.apple.mpegurl"
                | b"font/otf"
                | b"font/ttf"
                | b"image/bmp"
                | b"image/x-icon"
        )
}

#[cfg(test)]
mod tests {
    //! Tests that the table is sorted, and has the types that browsers need.

    use super::*;

    #[test]
    fn the_table_is_sorted_and_well_formed() {
        assert!(TYPES.is_sorted_by(|one, next| one.0 < next.0));
        assert_eq!(KNOWN.len(), TYPES.len());
        for (extension, content_type) in TYPES {
            assert_eq!(*extension, extension.to_ascii_lowercase());
            assert_eq!(of(format!("a.{extension}").as_bytes(), &[]).value, content_type);
        }
    }

    #[test]
    fn names() {
        let check = |name: &str, want: &str| assert_eq!(of(name.as_bytes(), &[]).value, want, "{name}");
        check("a/b.CSS", "text/css; charset=utf-8");
        check("app.min.js", "text/javascript; charset=utf-8");
        check("x.d/plain", "application/octet-stream");
        check("png", "application/octet-stream");
        check("a.", "application/octet-stream");
        check("a.webmanifests", "application/octet-stream");
        check("a.longer-than-any-extension", "application/octet-stream");
        check("", "application/octet-stream");
        let given = [("css".to_owned(), HeaderValue::from_static("text/x-own").into())];
        assert_eq!(of(b"a.CSS", &given).value, "text/x-own");
        assert_eq!(of(b"a.js", &given).value, "text/javascript; charset=utf-8");
    }

    #[test]
    fn what_is_worth_compressing() {
        for (extension, want) in [
            ("html", true),
            ("svg", true),
            ("json", true),
            ("wasm", true),
            ("geojson", true),
            ("png", false),
            ("gz", false),
            ("mp4", false),
        ] {
            assert_eq!(of(format!("a.{extension}").as_bytes(), &[]).is_compressible, want, "{extension}");
        }
    }
}
