//! Turns an OpenMetrics page into the older text format of Prometheus (version 0.0.4), for readers of `text/plain`.

/// Returns the page in the older format. Counters are named there with `_total` in their comment lines. It has no
/// units, no exemplars and no end mark.
pub(super) fn from_open_metrics(page: &str) -> String {
    let mut out = String::with_capacity(page.len());
    // The name of a metric depends on its type, which follows the description.
    let mut help = None;
    for line in page.lines() {
        match line.split_once(' ').map_or((line, ""), |(mark, rest)| (mark, rest)) {
            ("#", comment) => match comment.split_once(' ') {
                Some(("HELP", about)) => help = about.split_once(' '),
                Some(("TYPE", about)) => push_type(&mut out, about, help.take()),
                _ => {}
            },
            _ => {
                out.push_str(without_exemplar(line));
                out.push('\n');
            }
        }
    }
    out
}

/// An exemplar follows a number sign. In a label, that sign is part of the quoted value.
fn without_exemplar(sample: &str) -> &str {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let end = sample.bytes().position(|byte| {
        is_quoted ^= byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        byte == b'#' && !is_quoted
    });
    end.map_or(sample, |end| sample[..end].trim_end())
}

fn push_type(out: &mut String, about: &str, help: Option<(&str, &str)>) {
    let Some((name, kind)) = about.split_once(' ') else { return };
    let (suffix, kind) = match kind {
        "counter" => ("_total", "counter"),
        "info" => ("_info", "gauge"),
        "gauge" | "histogram" | "summary" => ("", kind),
        _ => ("", "untyped"),
    };
    if let Some((_, help)) = help.filter(|(of, _)| *of == name) {
        out.push_str(&format!("# HELP {name}{suffix} {help}\n"));
    }
    out.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
}

#[cfg(test)]
mod tests {
    //! Tests the lines that differ between the two formats.

    use super::*;

    #[test]
    fn comments_have_the_names_of_their_samples() {
        let open = "# HELP orders Orders taken.\n# TYPE orders counter\norders_total{a=\"x \\\"} # y\"} 7 # {id=\"1\"} 1.0\n\
            # HELP seconds Time.\n# TYPE seconds histogram\n# UNIT seconds seconds\nseconds_bucket{le=\"+Inf\"} 0\n\
            # HELP build About.\n# TYPE build info\nbuild_info{v=\"1\"} 1\n\
            # HELP now Now.\n# TYPE now gauge\nnow 1\n# TYPE odd unknown\nodd 1\n# EOF\n";
        let classic = "# HELP orders_total Orders taken.\n# TYPE orders_total counter\norders_total{a=\"x \\\"} # y\"} 7\n\
            # HELP seconds Time.\n# TYPE seconds histogram\nseconds_bucket{le=\"+Inf\"} 0\n\
            # HELP build_info About.\n# TYPE build_info gauge\nbuild_info{v=\"1\"} 1\n\
            # HELP now Now.\n# TYPE now gauge\nnow 1\n# TYPE odd untyped\nodd 1\n";
        assert_eq!(from_open_metrics(open), classic);
    }
}
