//! What `weft help` prints.

use std::fmt::Write;

use weftwork::{ENGINES, Settings};

use crate::args::{Topic, flag};

const ALL: &str = "\
weft: an HTTP server for plain blocking handlers

  weft [demo]       a page that shows what runs, and routes to try and to measure
  weft serve DIR    the files of a directory, or one file
  weft engines      how connections can meet threads, and what each way is for
  weft help [COMMAND]
  weft --version

weft COMMAND --help lists the options and every limit with its default.
Started without a command, weft runs the demo at http://127.0.0.1:8080/.";

const DEMO: &str = "\
weft [demo] [OPTIONS]: a page at / that shows what runs, and routes to try and to measure

  /health  /json  /echo  /headers  /nocontent  /slow?ms=N  /wait?ms=N  /later?ms=N
  /events  /ws/echo  /upload  /files/
";

const SERVE: &str = "\
weft serve DIR [OPTIONS]: the files of a directory; or one file, with its name in place of DIR

A directory is its index.html, else a list. Files are sent with types, tags and dates; downloads can be
resumed. Where FILE.br, FILE.zst or FILE.gz stands beside FILE, clients that take it are sent that.

Files:
  --no-listing           directories without an index are not found
  --hidden               also names that begin with a dot; without it only .well-known
  --symlinks             follow symbolic links, as far as they stay in DIR
  --index NAME           what a directory stands for                            [index.html]
  --spa FILE             the page for paths that name no file, as applications with routes of their own need
  --cache-control VALUE  as in \"max-age=3600\": how long browsers need not ask  [none: they ask]
";

const OPTIONS: &str = "
Options:
  --host HOST     where to listen; may be given several times   [HOST or WEFT_HOST; 127.0.0.1]
  --port N        0 lets the system choose                      [PORT or WEFT_PORT; 8080]
  --bind ADDRESS  127.0.0.1:8080, [::1]:8080, :8080 or unix:/path; may be given several times;
                  proxy+127.0.0.1:8080 expects the PROXY protocol there
  --engine NAME   see weft engines                              [WEFT_ENGINE; adaptive]
  --log LEVEL     off, error, warn, info, debug or trace        [WEFT_LOG; warn]
  -h, --help

A flag wins over its WEFT_ variable, that over PORT and HOST, and these over the default. The variable
of a setting or of the engine that cannot be read is an error all the same.

Limits and deadlines (--head-bytes-max is WEFT_HEAD_BYTES_MAX, and so on):
";

/// The text for `topic`, without the last line's end.
pub(crate) fn text(topic: Topic) -> String {
    let head = match topic {
        Topic::All => return ALL.to_owned(),
        Topic::Demo => DEMO,
        Topic::Serve => SERVE,
    };
    let mut text = format!("{head}{OPTIONS}");
    let settings = Settings::default().list();
    let flags: Vec<String> = settings.iter().map(|setting| format!("--{}", flag(setting.name))).collect();
    let width = flags.iter().map(String::len).max().unwrap_or(0);
    for (flag, setting) in flags.iter().zip(&settings) {
        // Writing to a String does not fail.
        let _ = writeln!(text, "  {flag:width$}  {} [{}]", setting.about, setting.value);
    }
    text.trim_end().to_owned()
}

/// What `weft engines` prints.
pub(crate) fn engines() -> String {
    let mut text =
        String::from("Engines, as --engine and WEFT_ENGINE take them; the first is the default.\n");
    for engine in ENGINES {
        // Writing to a String does not fail.
        let _ = write!(
            text,
            "\n  {}\n    for           {}\n    who waits     {}\n    when blocked  {}\n",
            engine.usage, engine.best_for, engine.waits, engine.blocked
        );
    }
    text.trim_end().to_owned()
}
