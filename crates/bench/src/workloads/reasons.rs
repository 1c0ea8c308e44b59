//! The known reasons for lost columns. The pages say of the others that they are not explained.

/// Why the default engine is behind another server. A third server that is first is not explained by it.
struct Reason {
    /// A column, or the family of some.
    column: &'static str,
    /// The beginning of the name of the server that is first.
    first: &'static str,
    why: &'static str,
}

const REASONS: &[Reason] = &[
    Reason {
        column: "health",
        first: "hyper",
        why: "of our CPU 0.45 to 0.7 us at most are our own code, and the rest is the kernel's; where a process has more than one \
              thread, the kernel counts who uses a descriptor, 0.1 us (docs/performance.md). What else lies between is not \
              yet explained",
    },
    Reason {
        column: "echo-1m",
        first: "axum",
        why: "not yet explained: a thread waits for each of the bodies, where axum waits for all of them in one place. Both take the \
              same where the cores are near, and far apart axum 4 % less (docs/performance.md)",
    },
    Reason { column: "file-1m", first: "lighttpd", why: PACED },
    Reason { column: "file-10m", first: "lighttpd", why: PACED },
];

const PACED: &str = "where BBR paces what is sent, who sends less at a time waits, and the client's core does more of the work (docs/performance.md). With \
                     CUBIC it is not yet explained: the load is what all wait for there, and servers rest for most of the time";

pub(crate) const UNKNOWN: &str = "not yet explained";

/// Returns why `first` is ahead of us in a column.
pub(crate) fn why_lost(column: &str, first: &str) -> &'static str {
    let family = column.rsplit_once('-').map_or(column, |(family, _)| family);
    let fits =
        |reason: &&Reason| [column, family].contains(&reason.column) && first.starts_with(reason.first);
    REASONS.iter().find(fits).map_or(UNKNOWN, |reason| reason.why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::{GRID, named};

    #[test]
    fn a_reason_is_of_a_column_and_of_the_first_server() {
        assert!(why_lost("file-1m", "lighttpd").contains("BBR"));
        assert_eq!(why_lost("echo-64", "axum"), UNKNOWN);
        assert!(why_lost("health-10", "hyper").contains("not yet explained"));
        assert_eq!(why_lost("health-10", "h2o"), UNKNOWN);
    }

    #[test]
    fn every_reason_is_of_a_column_that_there_is() {
        for reason in REASONS {
            assert!(!named(&GRID, reason.column).is_empty(), "{}", reason.column);
        }
    }
}
