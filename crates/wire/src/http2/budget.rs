//! Limits work that leads to no response.

use super::fault::{Http2Fault, Violation};
use super::frame::Frame;

/// Points that a client spends with frames that lead to no response, and earns with time and whole responses. One
/// number bounds all floods of cheap frames (RFC 9113 §10.5).
///
/// | event | points |
/// |---|---|
/// | a second passes | +33, up to 1,000 |
/// | a response is sent whole | +10 |
/// | RST_STREAM, a stream error, and any fault for which a stream is reset | -10 |
/// | DATA without content that does not end the stream, GOAWAY | -10 |
/// | SETTINGS | -5 |
/// | PING, PRIORITY, PRIORITY_UPDATE, trailers, a WINDOW_UPDATE below 1,024, a frame of unknown type | -1 |
/// | a refused stream, DATA for a stream that is over | -1 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// In thousandths of a point, because time adds 33 of those a millisecond.
    thousandths: u32,
    /// Millisecond up to which time was counted.
    counted: u64,
}

impl Budget {
    /// Maximum number of points, and the number at the start.
    pub const POINTS_MAX: u32 = 1_000;
    /// Points that a second adds.
    pub const POINTS_A_SECOND: u32 = 33;
    /// Points for a response that was sent whole.
    pub const RESPONSE: u32 = 10;
    /// Price of a stream that is reset, by either side.
    pub const RESET: u32 = 10;
    /// Price of a request that is refused with `REFUSED_STREAM`. It is low, because a client that has not read SETTINGS
    /// may honestly open some hundred streams at once.
    pub const REFUSED: u32 = 1;
    /// Price of DATA for a stream that is over. It is low, because what was on its way at a reset is no fault.
    pub const LATE_DATA: u32 = 1;

    const FULL: u32 = Budget::POINTS_MAX * 1_000;

    /// Returns a full budget. `now` is in milliseconds since any time.
    pub fn new(now: u64) -> Budget {
        Budget { thousandths: Budget::FULL, counted: now }
    }

    /// Returns the points that are left.
    pub fn points(&self) -> u32 {
        self.thousandths / 1_000
    }

    /// Takes points. A price of 0 costs no time either.
    ///
    /// # Errors
    /// [`Violation::BudgetSpent`] if fewer points are left: the connection must end.
    #[inline]
    pub fn spend(&mut self, points: u32, now: u64) -> Result<(), Http2Fault> {
        if points == 0 {
            return Ok(());
        }
        let passed = now.saturating_sub(self.counted);
        self.counted = self.counted.max(now);
        self.add(passed.saturating_mul(u64::from(Budget::POINTS_A_SECOND)));
        match self.thousandths.checked_sub(points.saturating_mul(1_000)) {
            Some(left) => {
                self.thousandths = left;
                Ok(())
            }
            None => Err(Http2Fault::connection(Violation::BudgetSpent)),
        }
    }

    /// Adds points, such as those for a response that was sent whole.
    #[inline]
    pub fn earn(&mut self, points: u32) {
        self.add(u64::from(points) * 1_000);
    }

    #[inline]
    fn add(&mut self, thousandths: u64) {
        let sum = u64::from(self.thousandths).saturating_add(thousandths);
        self.thousandths = sum.min(u64::from(Budget::FULL)) as u32;
    }
}

/// Increment of a WINDOW_UPDATE from which on it costs nothing.
const INCREMENT_MIN: u32 = 1_024;

impl Frame {
    /// Returns the points of [`Budget`] that the frame costs. DATA with content costs nothing here. The caller should
    /// charge DATA that nobody reads.
    #[inline]
    pub fn price(&self) -> u32 {
        match self {
            Frame::NeedMore | Frame::Part | Frame::Head { .. } | Frame::Response { .. } => 0,
            // The first part of a DATA frame has all of its length.
            Frame::Data { len: 0, ends: false, .. } => 10,
            Frame::Data { .. } => 0,
            Frame::StreamError { .. } | Frame::Reset { .. } | Frame::GoAway { .. } => Budget::RESET,
            Frame::Settings { .. } => 5,
            Frame::Window { by, .. } if *by >= INCREMENT_MIN => 0,
            Frame::Window { .. }
            | Frame::Trailers { .. }
            | Frame::SettingsAcked
            | Frame::Priority { .. }
            | Frame::Ping(_)
            | Frame::PingAcked(_)
            | Frame::Nothing => 1,
        }
    }
}
