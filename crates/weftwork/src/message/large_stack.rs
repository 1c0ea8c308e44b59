//! Runs work that needs more stack than a fiber has.

/// Runs `work` on a large stack. Encoders and decoders need as much stack as a fiber has, and so does JSON that is
/// nested 127 levels deep. A stack overflow would end the process.
pub(crate) fn with_large_stack<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(all(unix, feature = "fibers"))]
    return weftwork_fiber::on_large_stack(work);
    #[cfg(not(all(unix, feature = "fibers")))]
    work()
}
