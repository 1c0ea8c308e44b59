//! Finds the commands that README.md promises. The gate runs them, so the two cannot drift apart.

use std::fs;
use std::path::Path;

/// Prints the fenced block that follows `<!-- name -->` in README.md.
pub(crate) fn run(root: &Path, name: &str) -> Result<(), String> {
    let text = fs::read_to_string(root.join("README.md")).map_err(|why| format!("README.md: {why}"))?;
    let block = block(&text, name).ok_or_else(|| {
        format!("README.md: no fenced block directly after <!-- {name} -->; add the marker and the block")
    })?;
    print!("{block}");
    Ok(())
}

/// The lines between the fences, each with its line end. Only blank lines may stand between the
/// marker and the fence, so that a marker never picks up a block further down. An empty block does not count.
fn block(text: &str, name: &str) -> Option<String> {
    let marker = format!("<!-- {name} -->");
    let mut lines = text.lines().skip_while(|line| line.trim() != marker).skip(1);
    let fence = lines.find(|line| !line.trim().is_empty())?;
    if !fence.starts_with("```") {
        return None;
    }
    let mut block = String::new();
    for line in lines {
        if line.starts_with("```") {
            return Some(block).filter(|block| !block.trim().is_empty());
        }
        block.push_str(line);
        block.push('\n');
    }
    None
}

#[cfg(test)]
mod tests {
    use super::block;

    fn check(text: &str, want: Option<&str>) {
        assert_eq!(block(text, "test").as_deref(), want, "{text}");
    }

    #[test]
    fn finds_the_block_of_its_marker() {
        check("<!-- test -->\n```sh\ncargo test\n```\n", Some("cargo test\n"));
        check("<!-- test -->\n\n```\na\nb\n```\n", Some("a\nb\n"));
        check("<!-- run -->\n```\nrun\n```\n<!-- test -->\n```\ntest\n```\n", Some("test\n"));
    }

    #[test]
    fn anything_else_is_no_block() {
        check("```\ncargo test\n```\n", None);
        check("<!-- run -->\n```\ncargo run\n```\n", None);
        check("<!-- test -->\nwords\n```\ncargo test\n```\n", None);
        check("<!-- test -->\n```\ncargo test\n", None);
        check("<!-- test -->\n```\n\n```\n", None);
    }
}
