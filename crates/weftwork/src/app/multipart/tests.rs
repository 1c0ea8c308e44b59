//! Tests that forms are read as browsers send them, in any pieces, and that an incomplete form is an error.

use std::io::Read;

use http::StatusCode;

use super::*;
use crate::message::testing::Canned;
use crate::{Response, Result};

const FORM: &str = "--x\r\nContent-Disposition: form-data; name=\"title\"\r\n\r\nA title\r\n\
    --x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\nContent-Type: text/plain\r\n\r\n\
    line one\r\n--not a boundary\r\n-\r\n\r\n--x\r\n\
    Content-Disposition: form-data; name=\"empty\"\r\n\r\n\r\n--x--\r\n";
const FILE: &str = "line one\r\n--not a boundary\r\n-\r\n";

fn canned(parts: &[&[u8]]) -> Canned {
    Canned::asking("POST", "/", &[("Content-Type", "multipart/form-data; boundary=x")]).carrying(parts)
}

/// Returns the result of `read` for a form that arrives in these pieces.
fn read<T>(parts: &[&[u8]], read: impl FnOnce(Multipart<'_>) -> Result<T>) -> Result<T> {
    let mut canned = canned(parts);
    let mut request = canned.request(2 << 20);
    read(request.multipart()?)
}

fn whole(parts: &[&[u8]]) -> Result<Vec<(String, String)>> {
    read(parts, |form| {
        let form = form.form()?;
        let mut all = form.fields().to_vec();
        for upload in form.uploads() {
            let mut text = String::new();
            upload.open()?.read_to_string(&mut text)?;
            assert_eq!(text.len() as u64, upload.bytes());
            all.push((format!("{}/{}", upload.name(), upload.file_name().unwrap()), text));
        }
        Ok(all)
    })
}

fn refusal(parts: &[&[u8]]) -> StatusCode {
    whole(parts).unwrap_err().status()
}

fn expected() -> Vec<(String, String)> {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    vec![pair("title", "A title"), pair("empty", ""), pair("file/a.txt", FILE)]
}

/// For example, a middleware that checks a signature. The log names the author of the mistake.
#[test]
fn a_form_that_was_read_before_is_no_fault_of_its_client() {
    let mut canned = canned(&[FORM.as_bytes()]);
    let mut request = canned.request(2 << 20);
    assert!(request.multipart().is_ok() && request.multipart().is_ok(), "nothing is read yet");
    assert_eq!(request.body().bytes().unwrap(), FORM);
    assert_eq!(request.multipart().err(), Some(BodyError::AlreadyRead));
}

/// It is unknown which of them an earlier filter has checked.
#[test]
fn a_content_type_that_comes_twice_is_none() {
    let fields = [("Content-Type", "multipart/form-data; boundary=x"), ("Content-Type", "application/json")];
    let mut canned = Canned::asking("POST", "/", &fields).carrying(&[FORM.as_bytes()]);
    assert_eq!(canned.request(2 << 20).multipart().err(), Some(BodyError::NotMultipart));
}

#[test]
fn a_form_whole_byte_by_byte_and_cut_anywhere() {
    let bytes = FORM.as_bytes();
    assert_eq!(whole(&[bytes]).unwrap(), expected());
    assert_eq!(whole(&bytes.chunks(1).collect::<Vec<_>>()).unwrap(), expected());
    for at in 1..bytes.len() {
        assert_eq!(whole(&[&bytes[..at], &bytes[at..]]).unwrap(), expected(), "cut at {at}");
    }
    let padded = [b"a preamble\r\n", bytes, b"and an epilogue"].concat();
    assert_eq!(whole(&[&padded]).unwrap(), expected());
}

/// A client that disconnected must not leave half a file that looks whole.
#[test]
fn a_form_that_is_not_whole_is_an_error_wherever_it_ends() {
    let end = FORM.len() - "\r\n".len();
    for at in 0..end {
        let error = whole(&[&FORM.as_bytes()[..at]]).unwrap_err();
        assert_eq!(error.status(), StatusCode::BAD_REQUEST, "ends at {at}: {error}");
    }
    assert!(whole(&[&FORM.as_bytes()[..end]]).is_ok(), "the line end behind it is not needed");
}

#[test]
fn a_body_that_fails_keeps_its_error() {
    let mut canned = canned(&[&FORM.as_bytes()[..150]]);
    canned.parts.insert(0, Err(BodyError::Disconnected));
    let mut request = canned.request(2 << 20);
    let mut form = request.multipart().unwrap();
    let mut last = Ok(());
    while last.is_ok() {
        last = form.next_part().map(|part| assert!(part.is_some()));
    }
    assert_eq!(last, Err(BodyError::Disconnected));
    assert_eq!(form.next_part().map(|_| ()), Err(BodyError::Disconnected), "and goes on to");
}

#[test]
fn parts_are_read_or_skipped() {
    let names = read(&[FORM.as_bytes()], |mut form| {
        let mut names = Vec::new();
        while let Some(mut part) = form.next_part()? {
            names.push(part.name().to_owned());
            if part.file_name().is_some() {
                assert_eq!(part.content_type(), Some("text/plain"));
                let mut start = [0; 4];
                part.read_exact(&mut start).unwrap();
                assert_eq!(&start, b"line");
            }
        }
        assert!(form.next_part()?.is_none(), "still over");
        Ok(names)
    });
    assert_eq!(names.unwrap(), ["title", "file", "empty"]);
    let rest = read(&[FORM.as_bytes()], |mut form| {
        form.next_part()?;
        let mut part = form.next_part()?.unwrap();
        part.read_exact(&mut [0; 4])?;
        // With `Read` in scope, whose `bytes` is a different method.
        Ok(part.bytes()?)
    });
    assert_eq!(rest.unwrap(), FILE.as_bytes()[4..]);
}

/// CVE-2022-41725, CVE-2023-24536, CVE-2023-30798 and similar.
#[test]
fn bombs_meet_their_limits() {
    let part = "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n";
    let ends = |text: String| format!("{text}--x--\r\n");
    assert_eq!(whole(&[ends(part.repeat(100)).as_bytes()]).unwrap().len(), 100);
    let limit_exceeded = |text: String, said: &str| {
        let error = whole(&[text.as_bytes()]).unwrap_err();
        assert_eq!(error.status(), StatusCode::PAYLOAD_TOO_LARGE, "{error}");
        assert!(error.message().contains(said), "{error}");
    };
    let head = "more than 8192 bytes before the data of a part";
    limit_exceeded(ends(part.repeat(101)), "more than 100 parts");
    let long_field =
        format!("--x\r\nContent-Disposition: form-data; name=\"{}\"\r\n\r\n1\r\n", "n".repeat(20_000));
    limit_exceeded(ends(long_field), head);
    // Also if most of the head was read together with the previous part.
    limit_exceeded(
        format!("{part}{}", ends(part.replace("\"a\"", &format!("\"{}\"", "n".repeat(8_192))))),
        head,
    );
    limit_exceeded("a preamble without end ".repeat(2000), head);
    limit_exceeded(format!("--x{}", " ".repeat(20_000)), head);
    limit_exceeded(
        ends(part.replace("\r\n1", &format!("\r\n{}", "1".repeat(65_537)))),
        "a form whose field `a` has more than 65536 bytes",
    );
    limit_exceeded(
        ends(part.replace("\r\n1", &format!("\r\n{}", "1".repeat(65_536))).repeat(17)),
        "fields of more than 1048576 bytes together",
    );
    limit_exceeded(ends(part.replace("\r\n1", &format!("\r\n{}", "1".repeat(3 << 20)))), "larger than the");
    let many_fields = format!("--x\r\n{}\r\n1\r\n", "X: y\r\n".repeat(33));
    assert_eq!(refusal(&[ends(many_fields).as_bytes()]), StatusCode::BAD_REQUEST);
}

#[test]
fn files_have_a_limit_too() {
    let result = read(&[FORM.as_bytes()], |form| {
        form.limits(MultipartLimits { file_bytes_max: 5, ..Default::default() }).form().map(|_| ())
    });
    assert!(result.unwrap_err().message().contains("a form whose field `file` has more than 5 bytes"));
}

/// The limit of a field applies while it is read, whatever the others' limits. The refusal names the field.
#[test]
fn a_field_may_have_a_limit_of_its_own() {
    let limited = |name: &'static str, bytes_max: u64| {
        read(&[FORM.as_bytes()], move |form| {
            let tight = MultipartLimits { field_bytes_max: 7, file_bytes_max: 5, ..Default::default() };
            form.limits(tight).field_limit("file", 1000).field_limit(name, bytes_max).form().map(|_| ())
        })
    };
    let (title, file) = ("A title".len() as u64, FILE.len() as u64);
    for (name, bytes_max) in [("title", title), ("file", file), ("other", 0), ("empty", 0)] {
        assert!(limited(name, bytes_max).is_ok(), "{name}");
    }
    for (name, bytes_max) in [("title", title - 1), ("file", file - 1), ("title", 0)] {
        let error = limited(name, bytes_max).unwrap_err();
        assert_eq!(error.status(), StatusCode::PAYLOAD_TOO_LARGE, "{name}");
        let said = format!("the request body is a form whose field `{name}` has more than {bytes_max} bytes");
        assert_eq!(error.to_string(), said);
        assert_eq!(error.problem().and_then(|problem| problem.member("field")), Some(name));
    }
    let problem = crate::IntoResponse::into_response(limited("title", 1));
    assert_eq!(problem.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

/// Also if its data passes a reader that hides the reason of its error. A skipped field has no limit.
#[test]
fn the_limit_of_a_field_holds_for_every_way_to_read_it() {
    let mut canned = canned(&[FORM.as_bytes()]);
    let answer = canned.call(&|req: &mut Request<'_>| -> Result<Response> {
        let mut form = req.multipart()?.field_limit("title", 1).field_limit("file", 4);
        form.next_part()?;
        let mut part = form.next_part()?.unwrap();
        let read = part.read_to_end(&mut Vec::new()).map_err(|_| std::io::Error::other("hidden"));
        assert!(form.next_part().is_err(), "nothing of the rest is believed");
        read?;
        Ok(Response::text("read"))
    });
    assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[test]
fn an_input_for_files_that_was_left_empty_is_no_upload() {
    let part = |file_name: &str, data: &str| {
        format!(
            "--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"{file_name}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n{data}\r\n--x--\r\n"
        )
    };
    let pair = |name: &str, text: &str| vec![(name.to_owned(), text.to_owned())];
    assert_eq!(whole(&[part("", "").as_bytes()]).unwrap(), []);
    assert_eq!(whole(&[part("", "data").as_bytes()]).unwrap(), pair("f/", "data"));
    assert_eq!(whole(&[part("empty.txt", "").as_bytes()]).unwrap(), pair("f/empty.txt", ""));
}

/// As text it would have another limit, and code that looks for files would not see it.
#[test]
fn a_file_whose_name_cannot_be_read_is_no_text() {
    let part = |parameters: &str| {
        let mut part = b"--x\r\nContent-Disposition: form-data; name=\"f\"".to_vec();
        // \u{ff} stands for that byte alone.
        part.extend(parameters.chars().map(|c| u8::try_from(c).unwrap()));
        part.extend(b"\r\n\r\ndata\r\n--x--\r\n");
        part
    };
    for unread in [
        "; filename=\"\u{ff}.txt\"",
        "; filename=\u{ff}.txt",
        "; filename=\"a.txt",
        "; filename",
        "; filename*=a.txt",
    ] {
        assert_eq!(refusal(&[&part(unread)]), StatusCode::BAD_REQUEST, "{unread}");
    }
    for (parameters, name) in [
        ("", "f"),
        ("; x=\"; filename=a.txt\"", "f"),
        ("; x=\"\\\"; filename=a.txt\"", "f"),
        ("; y=filename", "f"),
        (";Filename=\"a.txt\"", "f/a.txt"),
        ("; x=\"\\\";\" ; FILENAME = a.txt", "f/a.txt"),
    ] {
        let pair = vec![(name.to_owned(), "data".to_owned())];
        assert_eq!(whole(&[&part(parameters)]).unwrap(), pair, "{parameters}");
    }
}

#[test]
fn what_is_no_form_is_415() {
    for content_type in [
        "",
        "text/plain",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/mixed; boundary=x",
        "multipart/form-data; boundary=\"\"",
        &format!("multipart/form-data; boundary={}", "x".repeat(71)),
    ] {
        let mut canned =
            Canned::asking("POST", "/", &[("Content-Type", content_type)]).carrying(&[b"--x--\r\n"]);
        let mut request = canned.request(100);
        assert_eq!(request.multipart().unwrap_err(), BodyError::NotMultipart, "{content_type}");
    }
    let mut canned = Canned::with_body(&["--x--\r\n"]);
    let answer = canned.call(&|req: &mut Request<'_>| -> Result<Response> {
        req.multipart()?;
        Ok(Response::text("read"))
    });
    assert_eq!(answer.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

#[test]
fn garbage_is_400() {
    for garbage in [
        "",
        "no boundary at all",
        "--y\r\n\r\n1\r\n--y--\r\n",
        "--x\r\nno colon\r\n\r\n1\r\n--x--\r\n",
        "--xyz\r\n\r\n",
    ] {
        assert_eq!(refusal(&[garbage.as_bytes()]), StatusCode::BAD_REQUEST, "{garbage:?}");
    }
    let latin = b"--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n\xfc\r\n--x--\r\n";
    assert_eq!(refusal(&[latin]), StatusCode::BAD_REQUEST, "not UTF-8");
    assert_eq!(whole(&[b"--x--\r\n"]).unwrap(), [], "a form without parts is one");
}

/// Files are removed when their owner is dropped, on every path. Only persisted files stay.
#[test]
fn temporary_files_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let left = || std::fs::read_dir(dir.path()).unwrap().count();
    let file_of = |bytes: &[u8], keep: bool| {
        read(&[bytes], |mut form| {
            form.next_part()?;
            let upload = form.next_part()?.unwrap().save_in(dir.path())?;
            assert_eq!((left(), upload.path().parent()), (1, Some(dir.path())));
            if keep {
                upload.persist(dir.path().join(upload_name()))?;
            }
            Ok(())
        })
    };
    file_of(FORM.as_bytes(), false).unwrap();
    assert_eq!(left(), 0, "dropped");
    assert!(file_of(&FORM.as_bytes()[..FORM.find("boundary").unwrap()], false).is_err());
    assert_eq!(left(), 0, "failed");
    file_of(FORM.as_bytes(), true).unwrap();
    assert_eq!(std::fs::read_to_string(dir.path().join(upload_name())).unwrap(), FILE);
}

/// A hundred uploads in each of a few hundred requests would use up the open files of a process.
#[test]
#[cfg(target_os = "linux")]
fn a_saved_file_is_not_kept_open() {
    read(&[FORM.as_bytes()], |form| {
        let form = form.form()?;
        let path = form.uploads()[0].path();
        let is_open = || {
            let links = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
            // Files of other tests come and go.
            links.filter_map(|link| std::fs::read_link(link).ok()).any(|to| to == path)
        };
        assert!(!is_open());
        let _opened = form.uploads()[0].open()?;
        assert!(is_open());
        Ok(())
    })
    .unwrap();
}

/// Another program that may write in the directory must not get its own file accepted as an upload.
#[test]
fn another_file_in_the_place_of_an_upload_is_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    read(&[FORM.as_bytes()], |mut form| {
        form.next_part()?;
        let upload = form.next_part()?.unwrap().save_in(dir.path())?;
        std::fs::rename(upload.path(), dir.path().join("elsewhere")).unwrap();
        std::fs::write(upload.path(), "of somebody else").unwrap();
        let why = upload.open().unwrap_err().to_string();
        assert!(why.contains("another file has replaced the upload"), "{why}");
        assert!(upload.persist(dir.path().join(upload_name())).is_err());
        Ok(())
    })
    .unwrap();
    assert!(!dir.path().join(upload_name()).exists());
}

fn upload_name() -> &'static str {
    "kept.txt"
}

#[test]
fn names_of_files_are_made_harmless() {
    for (name, safe_name) in [
        ("a.txt", Some("a.txt")),
        ("../../etc/passwd", Some("passwd")),
        ("C:\\dir\\a b.txt", Some("a b.txt")),
        ("/", None),
        ("..", None),
        (".", None),
        ("", None),
        (".htaccess", Some("htaccess")),
        ("a\0b\r\n.txt", Some("ab.txt")),
        ("..\\..\\x", Some("x")),
        (" .. hidden ", Some("hidden")),
        (". .htaccess", Some("htaccess")),
        (". ..", None),
        (".\u{a0}. . x. y ", Some("x. y")),
        ("\u{fc}.png", Some("\u{fc}.png")),
    ] {
        assert_eq!(part::safe(name).as_deref(), safe_name, "{name:?}");
    }
    assert_eq!(part::safe(&"\u{fc}".repeat(200)).unwrap().len(), 254);
}

#[test]
fn temporary_files_are_where_the_form_says() {
    let dir = tempfile::tempdir().unwrap();
    let in_form = read(&[FORM.as_bytes()], |form| form.save_in(dir.path()).form()).unwrap();
    assert_eq!(in_form.uploads()[0].path().parent(), Some(dir.path()));
    read(&[FORM.as_bytes()], |form| {
        let mut form = form.save_in(dir.path());
        while let Some(mut part) = form.next_part()? {
            assert_eq!(part.save()?.path().parent(), Some(dir.path()));
        }
        Ok(())
    })
    .unwrap();
    let nowhere = dir.path().join("missing");
    let error = read(&[FORM.as_bytes()], |form| form.save_in(&nowhere).form()).unwrap_err();
    assert!(error.to_string().contains(nowhere.to_str().unwrap()), "{error}");
}

/// If shared memory is a file system of its own, as on Linux, the kernel itself refuses.
#[test]
fn a_file_that_is_kept_on_another_file_system_says_what_to_do() {
    use std::os::unix::fs::MetadataExt;
    let (other, here) = (std::path::Path::new("/dev/shm"), tempfile::tempdir().unwrap());
    let device = |path: &std::path::Path| path.metadata().map(|known| known.dev()).ok();
    let crosses = device(other).is_some_and(|other| Some(other) != device(here.path()));
    let error = match crosses {
        true => {
            let mut form = read(&[FORM.as_bytes()], |form| form.save_in(here.path()).form()).unwrap();
            let target = other.join(format!("weftwork-upload-{}", std::process::id()));
            form.take_upload("file").unwrap().persist(target).unwrap_err()
        }
        false => form::persist_error(other, std::io::Error::from(std::io::ErrorKind::CrossesDevices)),
    };
    assert!(error.to_string().contains("set their directory with `Multipart::save_in`"), "{error}");
}

#[test]
fn a_file_is_found_by_its_field() {
    let mut form = read(&[FORM.as_bytes()], |form| form.form()).unwrap();
    assert!(form.upload("title").is_none(), "it is no file");
    assert_eq!(form.upload("file").unwrap().file_name(), Some("a.txt"));
    assert_eq!(form.take_upload("file").unwrap().bytes(), FILE.len() as u64);
    assert!(form.upload("file").is_none() && form.take_upload("file").is_none());
}

/// The parser takes everything up to the end of the next head for its head.
#[test]
fn a_part_without_a_head_does_not_consume_the_next_part() {
    const FILE: &str =
        "--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\n\r\ndata\r\n--x--\r\n";
    for first in
        ["--x\r\n\r\nvalue\r\n", "--x\r\n\r\n\r\n", "--x\r\nContent-Type: text/plain\r\n\r\nvalue\r\n"]
    {
        assert_eq!(refusal(&[format!("{first}{FILE}").as_bytes()]), StatusCode::BAD_REQUEST, "{first:?}");
    }
}

/// The field of RFC 6266, as clients of .NET and Java send it.
#[test]
fn a_file_with_an_extended_name_alone_is_a_file() {
    for (parameter, name) in
        [("filename*=utf-8''%C3%BC.txt", "\u{fc}.txt"), ("filename*=\"UTF-8''a.txt\"", "a.txt")]
    {
        let form =
            format!("--x\r\nContent-Disposition: form-data; name=f; {parameter}\r\n\r\ndata\r\n--x--\r\n");
        assert_eq!(whole(&[form.as_bytes()]).unwrap(), [(format!("f/{name}"), "data".to_owned())]);
    }
}
