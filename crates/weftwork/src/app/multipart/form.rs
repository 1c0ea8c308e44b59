//! A whole form: fields in memory, files on disk.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{Multipart, part};
use crate::error::{Error, Result};

/// A form that was read to its end. [`Multipart::form`] creates it.
#[derive(Debug, Default)]
pub struct FormData {
    fields: Vec<(String, String)>,
    uploads: Vec<Upload>,
}

impl FormData {
    /// Returns the first value of the field `name`.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// Returns the names and values of all fields that are not files, in order.
    pub fn fields(&self) -> &[(String, String)] {
        &self.fields
    }

    /// Returns the files in order.
    pub fn uploads(&self) -> &[Upload] {
        &self.uploads
    }

    /// Returns the first file of the field `name`.
    pub fn upload(&self, name: &str) -> Option<&Upload> {
        self.uploads.iter().find(|upload| upload.name == name)
    }

    /// Takes the first file of the field `name` out of the form, to [keep](Upload::persist) it.
    pub fn take_upload(&mut self, name: &str) -> Option<Upload> {
        let at = self.uploads.iter().position(|upload| upload.name == name)?;
        Some(self.uploads.remove(at))
    }

    /// Returns the files, to keep them.
    pub fn into_uploads(self) -> Vec<Upload> {
        self.uploads
    }
}

impl Multipart<'_> {
    /// Reads the whole form. Parts with a file name go into temporary files, others into memory. An empty file
    /// input is left out.
    ///
    /// ```
    /// use weftwork::prelude::*;
    ///
    /// fn upload(req: &mut Request) -> Result<String> {
    ///     let form = req.multipart()?.form()?;
    ///     let bytes: u64 = form.uploads().iter().map(|upload| upload.bytes()).sum();
    ///     Ok(format!("{}: {bytes} bytes\n", form.value("title").unwrap_or("untitled")))
    /// }
    /// ```
    ///
    /// # Errors
    /// Same as [`next_part`](Multipart::next_part) and [`Part::save`](super::Part::save). Also fails if the
    /// fields exceed [`fields_bytes_max`](super::MultipartLimits::fields_bytes_max), or if a text is not UTF-8.
    /// After an error, all files of the form are removed.
    pub fn form(mut self) -> Result<FormData> {
        let max = self.limits.fields_bytes_max;
        let (mut form, mut held) = (FormData::default(), 0);
        while let Some(mut part) = self.next_part()? {
            if let Some(file_name) = part.file_name() {
                let is_unnamed = file_name.is_empty();
                let upload = part.save()?;
                // Browsers send this for an empty file input (HTML, "constructing the entry list").
                if !(is_unnamed && upload.bytes() == 0) {
                    form.uploads.push(upload);
                }
                continue;
            }
            let (name, value) = (part.name().to_owned(), part.text()?);
            held += (name.len() + value.len()) as u64;
            if held > max {
                return Err(self.driver.limit_exceeded("fields_bytes_max", max).into());
            }
            form.fields.push((name, value));
        }
        Ok(form)
    }
}

/// A file of a form, in a temporary file that is removed on drop.
#[derive(Debug)]
pub struct Upload {
    pub(super) name: String,
    pub(super) file_name: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) bytes: u64,
    pub(super) path: tempfile::TempPath,
    pub(super) id: FileId,
}

/// Identity of a file, independent of its path. Other programs may write in the directory, and a clean-up job
/// may have removed the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(super) fn of(file: &File) -> io::Result<FileId> {
        let metadata = file.metadata()?;
        Ok(FileId { device: metadata.dev(), inode: metadata.ino() })
    }
}

impl Upload {
    /// Returns the name of the form field.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the file name as it was sent. It is text from the client.
    pub fn file_name(&self) -> Option<&str> {
        self.file_name.as_deref()
    }

    /// Returns a safe form of the file name. See [`Part::safe_file_name`](super::Part::safe_file_name).
    pub fn safe_file_name(&self) -> Option<String> {
        part::safe(self.file_name.as_deref()?)
    }

    /// Returns the `Content-Type` that the client sent.
    pub fn content_type(&self) -> Option<&str> {
        self.content_type.as_deref()
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the path of the temporary file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file for reading, at its start. It is not held open before.
    ///
    /// # Errors
    /// Fails if the file cannot be opened, or if another file has taken its place.
    pub fn open(&self) -> Result<File> {
        self.opened(false)
    }

    fn opened(&self, writes: bool) -> Result<File> {
        let file = OpenOptions::new().read(true).write(writes).open(&self.path)?;
        if FileId::of(&file)? != self.id {
            let why = format!("another file has replaced the upload {}", self.path.display());
            return Err(Error::io(why, io::ErrorKind::NotFound.into()));
        }
        Ok(file)
    }

    /// Moves the file to `path`, replaces an existing file, and opens it at its start for reading and writing.
    /// Only its owner may read it, as with all temporary files.
    ///
    /// # Errors
    /// Fails if the file cannot be moved. A move across file systems always fails: see [`Multipart::save_in`].
    pub fn persist(self, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        let file = self.opened(true)?;
        self.path.persist(path).map_err(|error| persist_error(path, error.error))?;
        Ok(file)
    }
}

pub(super) fn persist_error(path: &Path, error: io::Error) -> Error {
    let why = match error.kind() {
        io::ErrorKind::CrossesDevices => {
            ": temporary files are on another file system: set their directory with `Multipart::save_in`"
        }
        _ => "",
    };
    Error::io(format!("cannot keep an upload as {}{why}", path.display()), error)
}
