//! Warns that a prefix is removed twice: by a mount, and by the handler that is mounted.

use std::sync::Once;

use crate::message::Request;
use crate::transport::log_queue::log_line;

/// Warns once if a mount has removed the prefix that `option` of a handler removes. The path of this request does not have that
/// prefix any more, so the answer is 404.
pub(super) fn warn_if_removed(req: &Request<'_>, option: &str, prefix: &str, once: &Once) {
    let mount = req.mounted_at();
    if !prefix.is_empty() && mount.ends_with(prefix) {
        once.call_once(|| {
            log_line!(
                Warn,
                "the handler at {mount} answers 404: the mount has removed the prefix, so leave out {option}({prefix:?})"
            );
        });
    }
}
