//! Why is a column lost? Only what is known; the pages say of the rest that it is not.

/// Why the default engine is behind somebody. Whoever is first for another reason is not explained by it.
struct Reason {
    /// A column, or the family of some.
    column: &'static str,
    /// Whoever is first there.
    first: &'static str,
    /// What has to stand in the first's description: how it was set up in that run.
    set_up: &'static str,
    why: &'static str,
}

const PARKS: &str = "its handler calls time.Sleep, which parks a goroutine and holds no thread; ours blocks one. From the next \
                     run on Go's /slow blocks its thread too, and /wait parks";

const ECHOES: &str = "its handler gathers the whole body and gives it back in one piece; our demo's sends it back while it comes";

const OPEN_FILES: &str = "it has a cache of open files; we opened a file for each request. Since then ours stay open for a second (docs/performance.md)";

const REASONS: &[Reason] = &[
    Reason { column: "slow", first: "go-", set_up: "/slow is time.Sleep", why: PARKS },
    Reason { column: "slow-close", first: "go-", set_up: "/slow is time.Sleep", why: PARKS },
    Reason {
        column: "wait",
        first: "",
        set_up: "",
        why: "its wait holds no thread; `weftwork::sleep` does, on every engine but `fibers`",
    },
    Reason {
        column: "health",
        first: "hyper",
        set_up: "",
        why: "of our CPU 0.45 to 0.7 us at most are our own code, and the rest is the kernel's; where a process has more than one \
              thread, the kernel counts who uses a descriptor, 0.1 us (docs/performance.md). What else lies between is not \
              yet explained",
    },
    Reason { column: "echo-64k", first: "", set_up: "", why: ECHOES },
    Reason { column: "echo-1m", first: "", set_up: "", why: ECHOES },
    // As they were described while it was so.
    Reason { column: "file", first: "nginx", set_up: "1 worker,", why: OPEN_FILES },
    Reason { column: "file", first: "h2o", set_up: "1 thread,", why: OPEN_FILES },
    Reason { column: "file-range", first: "nginx", set_up: "1 worker,", why: OPEN_FILES },
    Reason { column: "file-range", first: "h2o", set_up: "1 thread,", why: OPEN_FILES },
    Reason {
        column: "mixed",
        first: "",
        set_up: "",
        why: "about 1 says that those who block cost the others nothing; what lies between two such figures is the noise of \
              a 99th percentile",
    },
];

pub(crate) const UNKNOWN: &str = "not yet explained";

/// Why `first`, set up in this way, is before us in a column.
pub(crate) fn why_lost(column: &str, first: &str, set_up: &str) -> &'static str {
    let family = column.rsplit_once('-').map_or(column, |(family, _)| family);
    let fits = |reason: &&Reason| {
        [column, family].contains(&reason.column)
            && first.starts_with(reason.first)
            && set_up.contains(reason.set_up)
    };
    REASONS.iter().find(fits).map_or(UNKNOWN, |reason| reason.why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::{GRID, named};

    #[test]
    fn a_reason_is_of_a_column_and_of_whoever_is_first() {
        let parks = "GOMAXPROCS=1; /slow is time.Sleep, which parks the goroutine";
        assert_eq!(why_lost("slow-100", "go-fasthttp", parks), PARKS);
        assert_eq!(why_lost("slow-close-400", "go-nethttp", parks), PARKS);
        // As it is set up since, it has no such advantage.
        assert_eq!(why_lost("slow-100", "go-fasthttp", "/slow blocks its thread"), UNKNOWN);
        assert_eq!(why_lost("slow-100", "hyper", ""), UNKNOWN);
        assert!(why_lost("wait-400", "hyper", "").contains("holds no thread"));
        assert!(why_lost("echo-64k", "go-fasthttp", "").contains("whole body"));
        assert!(why_lost("file-range-1k", "h2o", "1 thread, no logs").contains("cache of open files"));
        assert_eq!(why_lost("file-range-1k", "h2o", "a thread for each core"), UNKNOWN);
        assert_eq!(why_lost("file-1k", "lighttpd", "1 worker,"), UNKNOWN);
        assert_eq!(why_lost("echo-64", "go-fasthttp", ""), UNKNOWN);
    }

    #[test]
    fn every_reason_is_of_a_column_that_there_is() {
        for reason in REASONS {
            assert!(!named(&GRID, reason.column).is_empty(), "{}", reason.column);
        }
    }
}
