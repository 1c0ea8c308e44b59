//! Flow-control windows.

use super::fault::{Http2Fault, Violation};

/// Bytes of DATA that one side may still send, on a stream or on the connection (RFC 9113 §6.9.1). The window of a
/// stream may be negative after the initial window was lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window(i32);

impl Window {
    /// Maximum size of a window.
    pub const MAX: u32 = i32::MAX as u32;
    /// Size of the window of a connection, and of a stream unless SETTINGS say otherwise.
    pub const DEFAULT: u32 = 65_535;

    /// Returns a window of this size. A size above [`MAX`](Window::MAX) counts as that.
    pub fn new(size: u32) -> Window {
        Window(size.min(Window::MAX) as i32)
    }

    /// Returns how many bytes may be sent.
    #[inline]
    pub fn available(self) -> u32 {
        self.0.max(0) as u32
    }

    /// Returns its size, which may be negative.
    pub fn size(self) -> i32 {
        self.0
    }

    /// Takes the bytes of a DATA frame: those that were received, or those that are sent. `stream` is 0 for the
    /// window of the connection.
    ///
    /// # Errors
    /// [`Violation::WindowExceeded`]: the window has fewer bytes, and stays as it is.
    #[inline]
    pub fn take(&mut self, bytes: u32, stream: u32) -> Result<(), Http2Fault> {
        if bytes > self.available() {
            return Err(Http2Fault { violation: Violation::WindowExceeded, stream });
        }
        self.0 -= bytes as i32;
        Ok(())
    }

    /// Adds the increment of a WINDOW_UPDATE frame. `stream` is 0 for the window of the connection.
    ///
    /// # Errors
    /// [`Violation::WindowTooLarge`]: the window stays as it is.
    #[inline]
    pub fn add(&mut self, increment: u32, stream: u32) -> Result<(), Http2Fault> {
        self.set(i64::from(self.0) + i64::from(increment), stream)
    }

    /// Changes the window of a stream by the difference of a new initial window to the last one (RFC 9113 §6.9.2).
    ///
    /// # Errors
    /// [`Violation::WindowTooLarge`], which ends the connection.
    #[inline]
    pub fn shift(&mut self, by: i32) -> Result<(), Http2Fault> {
        self.set(i64::from(self.0) + i64::from(by), 0)
    }

    fn set(&mut self, size: i64, stream: u32) -> Result<(), Http2Fault> {
        // The lower bound cannot be passed: a window is at least 0 minus what was sent within the last one.
        self.0 =
            i32::try_from(size).map_err(|_| Http2Fault { violation: Violation::WindowTooLarge, stream })?;
        Ok(())
    }
}

impl Default for Window {
    fn default() -> Self {
        Window::new(Window::DEFAULT)
    }
}
