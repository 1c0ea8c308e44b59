//! Finds the known word that an unknown word probably stands for.

/// Returns the known word nearest to `word`, if at most a third of `word` differs.
pub(super) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let near = known.into_iter().map(|candidate| (distance(word, candidate), candidate));
    let (edits, candidate) = near.min_by_key(|(edits, _)| *edits)?;
    (edits <= word.chars().count().div_ceil(3)).then_some(candidate)
}

/// Counts the characters to insert, remove, replace, or swap with the next character.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let replaced = last[j] + usize::from(a[i] != b[j]);
            let mut least = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found() {
        let known = ["port", "host", "head-bytes-max", "head-timeout", "bind"];
        let check = |word: &str, want: Option<&str>| assert_eq!(nearest(word, known), want, "{word}");
        check("prot", Some("port"));
        check("ports", Some("port"));
        check("hots", Some("host"));
        check("head-byte-max", Some("head-bytes-max"));
        check("head-bytes", Some("head-bytes-max"));
        check("headtimeout", Some("head-timeout"));
        check("verbose", None);
        check("", None);
    }

    #[test]
    fn distances() {
        for (a, b, want) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("abc", "abc", 0),
            ("abc", "acb", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!((distance(a, b), distance(b, a)), (want, want), "{a} {b}");
        }
    }
}
