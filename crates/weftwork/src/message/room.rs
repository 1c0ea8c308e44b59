//! Where does work run that needs more stack than a fiber has?

/// Runs `work` where there is room for it. What encoders and decoders lay on the stack is as much as all that a
/// fiber has, and so is what JSON does that is nested 127 deep; to overflow it ends the process.
pub(crate) fn with_room<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(all(unix, feature = "fibers"))]
    return weftwork_fiber::on_large_stack(work);
    #[cfg(not(all(unix, feature = "fibers")))]
    work()
}
