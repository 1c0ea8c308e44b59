//! A whole form: its fields in memory, its files on disk.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{Multipart, part};
use crate::error::{Error, Result};

/// A form that was read to its end; made by [`Multipart::form`].
#[derive(Debug, Default)]
pub struct Form {
    fields: Vec<(String, String)>,
    uploads: Vec<Upload>,
}

impl Form {
    /// The first value of the field `name`.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// Every field that is no file, in order: name and value.
    pub fn fields(&self) -> &[(String, String)] {
        &self.fields
    }

    /// The files, in order.
    pub fn uploads(&self) -> &[Upload] {
        &self.uploads
    }

    /// The first file of the field `name`.
    pub fn upload(&self, name: &str) -> Option<&Upload> {
        self.uploads.iter().find(|upload| upload.name == name)
    }

    /// The same, taken out of the form, to be [kept](Upload::persist).
    pub fn take_upload(&mut self, name: &str) -> Option<Upload> {
        let at = self.uploads.iter().position(|upload| upload.name == name)?;
        Some(self.uploads.remove(at))
    }

    /// The files, to be kept.
    pub fn into_uploads(self) -> Vec<Upload> {
        self.uploads
    }
}

impl Multipart<'_> {
    /// Reads the whole form: parts with a file name into temporary files, others into memory. An input for files that
    /// was left empty is none.
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
    /// As [`next_part`](Multipart::next_part) and [`Part::save`](super::Part::save);
    /// [`fields_bytes_max`](super::MultipartLimits::fields_bytes_max); text that is not UTF-8. There is no half
    /// form: its files are gone.
    pub fn form(mut self) -> Result<Form> {
        let max = self.limits.fields_bytes_max;
        let (mut form, mut held) = (Form::default(), 0);
        while let Some(mut part) = self.next_part()? {
            if let Some(file_name) = part.file_name() {
                let is_unnamed = file_name.is_empty();
                let upload = part.save()?;
                // What browsers send of an input for files that was left empty (HTML, "constructing the entry list").
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

/// A file of a form, in a temporary file that is removed when this is dropped.
#[derive(Debug)]
pub struct Upload {
    pub(super) name: String,
    pub(super) file_name: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) bytes: u64,
    pub(super) path: tempfile::TempPath,
    pub(super) id: FileId,
}

/// Which file it is, wherever it is: others may write in the directory, too, and who cleans it up may have removed this one.
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
    /// The name of the form's field.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of the file as it was sent: text from the client.
    pub fn file_name(&self) -> Option<&str> {
        self.file_name.as_deref()
    }

    /// As [`Part::safe_file_name`](super::Part::safe_file_name).
    pub fn safe_file_name(&self) -> Option<String> {
        part::safe(self.file_name.as_deref()?)
    }

    /// Its `Content-Type`, as the client says.
    pub fn content_type(&self) -> Option<&str> {
        self.content_type.as_deref()
    }

    /// How large it is.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where it is now.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file, opened at its beginning to be read. It is not held open until then.
    ///
    /// # Errors
    /// It cannot be opened, or there is another one in its place.
    pub fn open(&self) -> Result<File> {
        self.opened(false)
    }

    fn opened(&self, writes: bool) -> Result<File> {
        let file = OpenOptions::new().read(true).write(writes).open(&self.path)?;
        if FileId::of(&file)? != self.id {
            let why = format!("another file has taken the place of an upload, {}", self.path.display());
            return Err(Error::io(why, io::ErrorKind::NotFound.into()));
        }
        Ok(file)
    }

    /// Keeps it as `path`, in the place of what may be there, and opens it at its beginning to be read and written. Only its
    /// owner may read it, as with all temporary files.
    ///
    /// # Errors
    /// It cannot be moved there; across file systems nothing can: see [`Multipart::save_in`].
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
            ": temporary files are on another file system: choose the folder with `Multipart::save_in`"
        }
        _ => "",
    };
    Error::io(format!("cannot keep an upload as {}{why}", path.display()), error)
}
