//! Multipart forms: reading forms with files without keeping a file in memory.
//!
//! [`Request::multipart`] returns the parts of a form one by one. [`Multipart::form`] reads the whole form.

mod body_driver;
mod form;
mod parameters;
mod part;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;

use crate::message::{Body, BodyError, Request};
use body_driver::BodyDriver;
use parameters::{Disposition, boundary};

pub use form::{FormData, Upload};
pub use part::Part;

/// RFC 2046 section 5.1.1
const BOUNDARY_BYTES_MAX: usize = 70;

/// Limits of a form. [`Multipart::field_limit`] sets a limit for a single field. The whole body has a limit of
/// 2 MiB by default, set by `body_bytes_max`, [`BodyLimit`](crate::middleware::BodyLimit) or
/// [`Request::set_body_bytes_max`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MultipartLimits {
    /// Maximum number of parts. Default: 100. A form that a person fills in has about a dozen, and each part
    /// costs work. When exceeded: 413.
    pub parts_max: usize,
    /// Maximum size of a part's boundary and fields. Default: 8 KiB. Browsers send about 200 bytes. When
    /// exceeded: 413.
    pub part_head_bytes_max: u64,
    /// Maximum size of a part that is read into memory ([`Part::bytes`], [`Part::text`]). Default: 64 KiB. When
    /// exceeded: 413.
    pub field_bytes_max: u64,
    /// Maximum size of all fields that a [`FormData`] holds in memory. Default: 1 MiB. When exceeded: 413.
    pub fields_bytes_max: u64,
    /// Maximum size of a part that is saved in a file. Default: `u64::MAX`, because the limit on the body
    /// applies anyway. When exceeded: 413.
    pub file_bytes_max: u64,
}

impl Default for MultipartLimits {
    fn default() -> MultipartLimits {
        MultipartLimits {
            parts_max: 100,
            part_head_bytes_max: 8 << 10,
            field_bytes_max: 64 << 10,
            fields_bytes_max: 1 << 20,
            file_bytes_max: u64::MAX,
        }
    }
}

/// The parts of a `multipart/form-data` body (RFC 7578), one after another. [`Request::multipart`] creates it.
pub struct Multipart<'r> {
    parser: multer::Multipart<'static>,
    /// The part that was returned last. Its unread data is skipped.
    current: Option<multer::Field<'static>>,
    /// Name and file name of the current part.
    disposition: Disposition,
    driver: BodyDriver<'r>,
    limits: MultipartLimits,
    /// Limits of single fields by name. The last limit of a name counts.
    field_limits: Vec<(String, u64)>,
    temp_dir: Option<PathBuf>,
    parts: usize,
    /// Error after which no more parts are read.
    failed: Option<BodyError>,
}

/// Forms with files (feature `multipart`).
impl Request<'_> {
    /// Returns the parts of a form as they arrive. A part can be read like any [`Read`](std::io::Read), or
    /// saved in a file. [`Multipart::form`] reads all parts at once.
    ///
    /// ```
    /// use weftwork::prelude::*;
    ///
    /// fn upload(req: &mut Request) -> Result<String> {
    ///     req.set_body_bytes_max(1 << 30);
    ///     let mut saved = String::new();
    ///     let mut form = req.multipart()?;
    ///     while let Some(mut part) = form.next_part()? {
    ///         if let Some(name) = part.safe_file_name() {
    ///             let upload = part.save()?; // in a temporary file, removed when it is dropped
    ///             saved += &format!("{name}: {} bytes\n", upload.bytes());
    ///             upload.persist(std::env::temp_dir().join("last-upload"))?;
    ///         }
    ///     }
    ///     Ok(saved)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`BodyError::NotMultipart`] (415) if the `Content-Type` is another one, occurs twice, or has no
    /// boundary. [`BodyError::AlreadyRead`] if a part of the body was read before.
    pub fn multipart(&mut self) -> Result<Multipart<'_>, BodyError> {
        let content_type = self.only("content-type").value().ok_or(BodyError::NotMultipart)?;
        let boundary = boundary(content_type).ok_or(BodyError::NotMultipart)?;
        if !(1..=BOUNDARY_BYTES_MAX).contains(&boundary.len()) {
            return Err(BodyError::NotMultipart);
        }
        let body = self.body();
        if body.has_been_read() { Err(BodyError::AlreadyRead) } else { Ok(Multipart::new(body, boundary)) }
    }
}

impl<'r> Multipart<'r> {
    fn new(body: Body<'r>, boundary: String) -> Multipart<'r> {
        let driver = BodyDriver::new(body);
        let parser = multer::Multipart::new(driver.stream(), boundary);
        let limits = MultipartLimits::default();
        Multipart {
            parser,
            current: None,
            disposition: Disposition::default(),
            driver,
            limits,
            field_limits: Vec::new(),
            temp_dir: None,
            parts: 0,
            failed: None,
        }
    }

    /// Sets the limits.
    #[must_use]
    pub fn limits(self, limits: MultipartLimits) -> Multipart<'r> {
        Multipart { limits, ..self }
    }

    /// Limits each part of the field `name` to `bytes_max` bytes, instead of `field_bytes_max` or
    /// `file_bytes_max`. The limit applies to every way of reading: [`form`](Multipart::form), [`Part`] and
    /// [`Read`](std::io::Read). Default: the limits of all fields. When exceeded: 413 with a problem that names
    /// the field and the limit.
    ///
    /// The whole body has its own limit, 2 MiB by default. The texts of a [`FormData`] together have one too
    /// ([`fields_bytes_max`](MultipartLimits::fields_bytes_max)).
    ///
    /// ```
    /// use weftwork::prelude::*;
    ///
    /// fn profile(req: &mut Request) -> Result<String> {
    ///     // All else is text, of 64 KiB at most.
    ///     let form = req.multipart()?.field_limit("avatar", 1 << 20).field_limit("name", 100).form()?;
    ///     let avatar = form.upload("avatar").map_or(0, |avatar| avatar.bytes());
    ///     Ok(format!("{}: {avatar} bytes\n", form.value("name").unwrap_or_default()))
    /// }
    ///
    /// let mut client = weftwork::TestClient::new(profile);
    /// let sent = client.post("/").multipart(&[("name", "Ada")], &[("avatar", "a.png", &[0; 1 << 20])]).send();
    /// assert_eq!(sent.text(), "Ada: 1048576 bytes\n");
    /// let long = client.post("/").multipart(&[("name", &"Ada ".repeat(26))], &[]).send();
    /// assert_eq!(long.status, StatusCode::PAYLOAD_TOO_LARGE);
    /// assert!(long.text().contains("field `name` has more than 100 bytes"), "{long:?}");
    /// ```
    #[must_use]
    pub fn field_limit(mut self, name: &str, bytes_max: u64) -> Multipart<'r> {
        self.field_limits.push((name.to_owned(), bytes_max));
        self
    }

    /// Puts temporary files in `dir` instead of the system's temporary directory. [`Upload::persist`] moves a
    /// file, which works only within one file system. `/tmp` is often on another file system than the target,
    /// for example in a container, or under systemd with `PrivateTmp`.
    ///
    /// ```
    /// use weftwork::prelude::*;
    ///
    /// fn upload(req: &mut Request) -> Result<&'static str> {
    ///     # let kept = std::env::temp_dir();
    ///     # let kept = kept.as_path();
    ///     # #[cfg(any())]
    ///     let kept = std::path::Path::new("/var/lib/notes");
    ///     for (number, upload) in req.multipart()?.save_in(kept).form()?.into_uploads().into_iter().enumerate() {
    ///         upload.persist(kept.join(format!("upload-{number}")))?;
    ///     }
    ///     Ok("kept\n")
    /// }
    /// ```
    #[must_use]
    pub fn save_in(self, dir: impl Into<PathBuf>) -> Multipart<'r> {
        Multipart { temp_dir: Some(dir.into()), ..self }
    }

    /// Skips the rest of the current part and returns the next one. `None` means that the form ended properly.
    ///
    /// # Errors
    /// - Every [`BodyError`] of a body.
    /// - [`BodyError::FormLimit`] and [`BodyError::FieldTooLarge`] (413).
    /// - [`BodyError::MultipartMalformed`] (400) for a form that ends early, and for a part whose name is
    ///   missing. Also if the name or the file name of a part is not UTF-8 or occurs twice. RFC 7578 forbids
    ///   `filename*`, but clients send it. It takes precedence over `filename`. If it cannot be decoded, `filename`
    ///   counts, and without `filename` it is an error. If a field line occurs twice, which no client sends, the
    ///   last one counts.
    ///
    /// After an error there are no more parts.
    pub fn next_part(&mut self) -> Result<Option<Part<'_, 'r>>, BodyError> {
        while self.chunk()?.is_some() {}
        self.current = None;
        let head_bytes_max = usize::try_from(self.limits.part_head_bytes_max).unwrap_or(usize::MAX);
        let mut poll = |cx: &mut std::task::Context<'_>| self.parser.poll_next_field(cx);
        let field = self.driver.drive(&mut poll, Some(head_bytes_max)).and_then(|field| {
            let field = field.map_err(|error| malformed(&error))?;
            if field.as_ref().is_some_and(|field| head_bytes(field) > head_bytes_max) {
                return Err(self.driver.limit_exceeded("part_head_bytes_max", head_bytes_max as u64));
            }
            self.parts += usize::from(field.is_some());
            if self.parts > self.limits.parts_max {
                return Err(self.driver.limit_exceeded("parts_max", self.limits.parts_max as u64));
            }
            let described = |field: multer::Field<'static>| {
                let disposition = Disposition::of(field.headers())?;
                Ok((field, disposition))
            };
            field.map(described).transpose()
        });
        match field {
            Ok(None) => Ok(None),
            Ok(Some((field, disposition))) => {
                (self.current, self.disposition) = (Some(field), disposition);
                Ok(Some(Part::new(self)))
            }
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Returns data of the current part, or `None` at its end.
    fn chunk(&mut self) -> Result<Option<bytes::Bytes>, BodyError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let Some(field) = &mut self.current else { return Ok(None) };
        let mut poll = |cx: &mut std::task::Context<'_>| {
            futures_core::Stream::poll_next(std::pin::Pin::new(&mut *field), cx)
        };
        let chunk = self.driver.drive(&mut poll, None);
        match chunk.and_then(|chunk| chunk.transpose().map_err(|error| malformed(&error))) {
            Ok(chunk) => Ok(chunk),
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Returns the limit of the current part's field, if it has one.
    fn field_limit_of(&self) -> Option<u64> {
        let name = &self.disposition.name;
        self.field_limits.iter().rev().find(|(known, _)| known == name).map(|(_, limit)| *limit)
    }

    /// Returns the error for a limit that the current part exceeds.
    fn limit_exceeded(&self, limit: &'static str, value: u64) -> BodyError {
        self.driver.field_limit_exceeded(&self.disposition.name, limit, value)
    }

    fn fail(&mut self, error: BodyError) -> BodyError {
        self.failed = Some(error.clone());
        self.driver.fail(error)
    }
}

/// Size of the part's fields. The exact size is unknown, because the head may have been read with the part
/// before.
fn head_bytes(field: &multer::Field<'_>) -> usize {
    field.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

fn malformed(error: &multer::Error) -> BodyError {
    BodyError::MultipartMalformed(error.to_string())
}

impl fmt::Debug for Multipart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Multipart")
            .field("parts", &self.parts)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
