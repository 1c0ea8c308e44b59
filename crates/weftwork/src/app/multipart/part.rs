//! One part of a form: what it is called, and its data as it arrives.

use std::fmt;
use std::io::{self, Read, Write};
use std::path::Path;

use bytes::{Buf, Bytes};

use super::form::FileId;
use super::{Multipart, Upload};
use crate::error::{Error, Result};
use crate::message::BodyError;

/// What file systems take.
const FILE_NAME_BYTES_MAX: usize = 255;

/// A part of a form, which implements [`Read`]; made by [`Multipart::next_part`].
pub struct Part<'m, 'r> {
    form: &'m mut Multipart<'r>,
    /// Came, and was not read yet.
    buffered: Bytes,
    /// The limit of its field alone.
    own_limit: Option<u64>,
    /// Bytes of it that came.
    received: u64,
}

impl<'m, 'r> Part<'m, 'r> {
    pub(super) fn new(form: &'m mut Multipart<'r>) -> Part<'m, 'r> {
        let own_limit = form.field_limit_of();
        Part { form, buffered: Bytes::new(), own_limit, received: 0 }
    }

    /// The name of the form's field.
    pub fn name(&self) -> &str {
        &self.form.disposition.name
    }

    /// The name of the file as it was sent: **text from the client**, which may be `../../etc/passwd`.
    pub fn file_name(&self) -> Option<&str> {
        self.form.disposition.file_name.as_deref()
    }

    /// The last segment of the file's name, without control characters and leading dots, 255 bytes at most: it
    /// names a file in a directory and nothing else, and does not hide it. None where nothing is left of it.
    pub fn safe_file_name(&self) -> Option<String> {
        safe(self.file_name()?)
    }

    /// The part's `Content-Type`, as the client says.
    pub fn content_type(&self) -> Option<&str> {
        self.form.current.as_ref()?.content_type().map(AsRef::as_ref)
    }

    /// Its data.
    ///
    /// # Errors
    /// [`BodyError::FieldTooLarge`] after [`field_bytes_max`](super::MultipartLimits::field_bytes_max) bytes, or those of
    /// [`Multipart::field_limit`], and as [`next_part`](Multipart::next_part).
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

    /// Its data as text, which has to be UTF-8.
    ///
    /// # Errors
    /// As [`bytes`](Part::bytes), and [`BodyError::NotUtf8`].
    pub fn text(self) -> Result<String, BodyError> {
        String::from_utf8(self.bytes()?).map_err(|_| BodyError::NotUtf8)
    }

    /// Writes its data to a temporary file, in the system's directory for such unless
    /// [`Multipart::save_in`] names another.
    ///
    /// # Errors
    /// The file cannot be made or written; [`BodyError::FieldTooLarge`] after
    /// [`file_bytes_max`](super::MultipartLimits::file_bytes_max) bytes, or those of [`Multipart::field_limit`]; and as
    /// [`next_part`](Multipart::next_part).
    /// What was written until then is removed.
    pub fn save(&mut self) -> Result<Upload> {
        let dir = self.form.temp_dir.clone().unwrap_or_else(std::env::temp_dir);
        self.save_in(dir)
    }

    /// As [`save`](Part::save), in `dir`: on the same file system as where it will be kept.
    ///
    /// # Errors
    /// As [`save`](Part::save).
    pub fn save_in(&mut self, dir: impl AsRef<Path>) -> Result<Upload> {
        let dir = dir.as_ref();
        let made = tempfile::NamedTempFile::new_in(dir);
        let mut file = made.map_err(|error| {
            Error::io(format!("no temporary file can be made in {}", dir.display()), error)
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
        // Closed: a form may have a hundred of them.
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
            // Not for the handler to go on: it may read through a parser that hides why it has failed.
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
    // Some browsers sent whole paths of Windows.
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
