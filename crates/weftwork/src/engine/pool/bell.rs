//! How the threads at the door are woken: one for each connection, and not all of them for every one.

#[cfg(any(target_os = "linux", target_os = "android"))]
mod linux;
#[cfg(any(test, not(any(target_os = "linux", target_os = "android"))))]
mod portable;

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) use linux::Bell;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) use portable::Bell;
