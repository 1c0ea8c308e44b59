//! One part of a form: its names, and its data as it arrives.

use std::fmt;
use std::io::{self, Read, Write};
use std::path::Path;

use bytes::{Buf, Bytes};

use super::form::FileId;
use super::{Multipart, Upload};
use crate::error::{Error, Result};
use crate::message::BodyError;

/// Maximum length of a file name in file systems.
const FILE_NAME_BYTES_MAX: usize = 255;

/// A part of a form, which implements [`Read`]. [`Multipart::next_part`] returns it.
pub struct Part<'m, 'r> {
    form: &'m mut Multipart<'r>,
    /// Received data that was not read yet.
    buffered: Bytes,
    /// Limit of this part's field.
    own_limit: Option<u64>,
    /// Number of bytes received.
    received: u64,
}

impl<'m, 'r> Part<'m, 'r> {
    pub(super) fn new(form: &'m mut Multipart<'r>) -> Part<'m, 'r> {
        let own_limit = form.field_limit_of();
        Part { form, buffered: Bytes::new(), own_limit, received: 0 }
    }

    /// Returns the name of the form field.
    pub fn name(&self) -> &str {
        &self.form.disposition.name
    }

    /// Returns the file name as it was sent. It is **text from the client** and may be `../../etc/passwd`.
    pub fn file_name(&self) -> Option<&str> {
        self.form.disposition.file_name.as_deref()
    }

    /// Returns the last segment of the file name, without control characters and leading dots, and with at most
    /// 255 bytes. It can only name a visible file in a directory. `None` if nothing is left.
    pub fn safe_file_name(&self) -> Option<String> {
        safe(self.file_name()?)
    }

    /// Returns the `Content-Type` that the client sent.
    pub fn content_type(&self) -> Option<&str> {
        self.form.current.as_ref()?.content_type().map(AsRef::as_ref)
    }

    /// Reads the data.
    ///
    /// # Errors
    /// [`BodyError::FieldTooLarge`] after [`field_bytes_max`](super::MultipartLimits::field_bytes_max) bytes,
    /// or after the bytes of [`Multipart::field_limit`]. Otherwise the same as
    /// [`next_part`](Multipart::next_part).
    pub fn bytes(mut self) -> Result<Vec<u8>, BodyError> {
        let max = self.own_limit.unwrap_or(self.form.limits.field_bytes_max);
        let mut all = Vec::new();
        while let Some(chunk) = self.chunk()? {
            all.extend_from_slice(&chunk);
            if all.len() as u64 > max {
                return Err(self.form.limit_exceeded("field_bytes_max", max));
            }
        }
        Ok(all)
    }

    /// Reads the data as text, which must be UTF-8.
    ///
    /// # Errors
    /// Same as [`bytes`](Part::bytes), and [`BodyError::NotUtf8`].
    pub fn text(self) -> Result<String, BodyError> {
        String::from_utf8(self.bytes()?).map_err(|_| BodyError::NotUtf8)
    }

    /// Writes the data to a temporary file. It is in the system's temporary directory, unless
    /// [`Multipart::save_in`] sets another one.
    ///
    /// # Errors
    /// Fails if the file cannot be created or written. [`BodyError::FieldTooLarge`] after
    /// [`file_bytes_max`](super::MultipartLimits::file_bytes_max) bytes, or after the bytes of
    /// [`Multipart::field_limit`]. Otherwise the same as [`next_part`](Multipart::next_part). After an error,
    /// the file is removed.
    pub fn save(&mut self) -> Result<Upload> {
        let dir = self.form.temp_dir.clone().unwrap_or_else(std::env::temp_dir);
        self.save_in(dir)
    }

    /// Writes the data to a temporary file in `dir`. Choose a directory on the file system where the file will
    /// be kept.
    ///
    /// # Errors
    /// Same as [`save`](Part::save).
    pub fn save_in(&mut self, dir: impl AsRef<Path>) -> Result<Upload> {
        let dir = dir.as_ref();
        let made = tempfile::NamedTempFile::new_in(dir);
        let mut file = made.map_err(|error| {
            Error::io(format!("cannot create a temporary file in {}", dir.display()), error)
        })?;
        let max = self.own_limit.unwrap_or(self.form.limits.file_bytes_max);
        let mut bytes = 0;
        while let Some(chunk) = self.chunk()? {
            bytes += chunk.len() as u64;
            if bytes > max {
                return Err(self.form.limit_exceeded("file_bytes_max", max).into());
            }
            file.write_all(&chunk)?;
        }
        let name = self.name().to_owned();
        let content_type = self.content_type().map(str::to_owned);
        let id = FileId::of(file.as_file())?;
        // Closed, because a form may have a hundred files.
        let path = file.into_temp_path();
        Ok(Upload { name, file_name: self.file_name().map(str::to_owned), content_type, bytes, path, id })
    }

    fn chunk(&mut self) -> Result<Option<Bytes>, BodyError> {
        if self.buffered.has_remaining() {
            return Ok(Some(std::mem::take(&mut self.buffered)));
        }
        let chunk = self.form.chunk()?;
        self.received += chunk.as_ref().map_or(0, Bytes::len) as u64;
        match self.own_limit {
            // The form fails, so that a handler cannot go on. It may read through a parser that hides the
            // reason of a failure.
            Some(max) if self.received > max => {
                let error = self.form.limit_exceeded("field_limit", max);
                Err(self.form.fail(error))
            }
            _ => Ok(chunk),
        }
    }
}

impl Read for Part<'_, '_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while !self.buffered.has_remaining() {
            match self.chunk()? {
                Some(chunk) => self.buffered = chunk,
                None => return Ok(0),
            }
        }
        let count = self.buffered.len().min(into.len());
        self.buffered.copy_to_slice(&mut into[..count]);
        Ok(count)
    }
}

pub(super) fn safe(name: &str) -> Option<String> {
    // Some browsers sent whole Windows paths.
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let plain: String = last.chars().filter(|c| !c.is_control()).collect();
    let hides = |c: char| c == '.' || c.is_whitespace();
    let mut kept = plain.trim_end().trim_start_matches(hides).to_owned();
    while kept.len() > FILE_NAME_BYTES_MAX {
        kept.pop();
    }
    (!kept.is_empty()).then_some(kept)
}

impl fmt::Debug for Part<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part")
            .field("name", &self.name())
            .field("file_name", &self.file_name())
            .finish_non_exhaustive()
    }
}
