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
/// | a stream error, and any fault for which a stream is reset | -10 |
/// | DATA without content that does not end the stream, GOAWAY | -10 |
/// | SETTINGS | -5 |
/// | PRIORITY, PRIORITY_UPDATE, trailers, a frame of unknown type | -1 |
/// | PING, a WINDOW_UPDATE below 1,024, except for those that may confirm DATA: see [`note_data`](Budget::note_data) | -1 |
/// | RST_STREAM, a refused stream, DATA for a stream that is over | -1 |
///
/// RST_STREAM is cheap if a request counts until its handler is done, because it then costs no more than a request that
/// is answered. A browser that leaves a page, or a proxy, may cancel a hundred at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// In thousandths of a point, because time adds 33 of those a millisecond.
    thousandths: u32,
    /// Millisecond up to which time was counted.
    counted: u64,
    /// Frames that may confirm DATA, and cost nothing.
    confirmations: u32,
}

impl Budget {
    /// Maximum number of points, and the number at the start.
    pub const POINTS_MAX: u32 = 1_000;
    /// Points that a second adds.
    pub const POINTS_A_SECOND: u32 = 33;
    /// Points for a response that was sent whole.
    pub const RESPONSE: u32 = 10;
    /// Price of a stream that is reset because of an error of the client.
    pub const STREAM_ERROR: u32 = 10;
    /// Price of a request that is refused with `REFUSED_STREAM`. It is low, because a client that has not read SETTINGS
    /// may honestly open some hundred streams at once.
    pub const REFUSED: u32 = 1;
    /// Price of DATA for a stream that is over. It is low, because what was on its way at a reset is no fault.
    pub const LATE_DATA: u32 = 1;

    const FULL: u32 = Budget::POINTS_MAX * 1_000;

    /// Returns a full budget. `now` is in milliseconds since any time.
    pub fn new(now: u64) -> Budget {
        Budget { thousandths: Budget::FULL, counted: now, confirmations: 0 }
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

    /// Notes content of a DATA frame that was sent. `is_cut`: there was more, and a window did not allow it.
    ///
    /// Some clients confirm each frame with windows for the stream and for the connection, and measure the time with a
    /// PING. So these three are free. They are not if the client itself makes the frames small, a window of some bytes at
    /// a time (CVE-2019-9511).
    #[inline]
    pub fn note_data(&mut self, len: usize, is_cut: bool) {
        if !is_cut || len >= CUT_BYTES_MIN {
            self.confirmations = (self.confirmations + CONFIRMATIONS).min(Budget::POINTS_MAX);
        }
    }

    /// Returns the points that a frame costs now. DATA with content costs nothing here. The caller should charge DATA
    /// that nobody reads.
    #[inline]
    pub fn price(&mut self, frame: &Frame) -> u32 {
        match frame.price() {
            0 => 0,
            _ if self.confirmations > 0 && matches!(frame, Frame::Ping(_) | Frame::Window { .. }) => {
                self.confirmations -= 1;
                0
            }
            price => price,
        }
    }

    #[inline]
    fn add(&mut self, thousandths: u64) {
        let sum = u64::from(self.thousandths).saturating_add(thousandths);
        self.thousandths = sum.min(u64::from(Budget::FULL)) as u32;
    }
}

/// Increment of a WINDOW_UPDATE from which on it costs nothing.
const INCREMENT_MIN: u32 = 1_024;
/// Frames by which a client may confirm a DATA frame.
const CONFIRMATIONS: u32 = 3;
/// Content of a DATA frame that a window may cut. Small devices have windows of some hundred bytes.
const CUT_BYTES_MIN: usize = 128;

impl Frame {
    /// Returns the points that the frame costs if it confirms nothing.
    #[inline]
    fn price(&self) -> u32 {
        match self {
            Frame::NeedMore | Frame::Part | Frame::Head { .. } | Frame::Response { .. } => 0,
            // The first part of a DATA frame has all of its length.
            Frame::Data { len: 0, ends: false, .. } => 10,
            Frame::Data { .. } => 0,
            Frame::StreamError { .. } => Budget::STREAM_ERROR,
            Frame::GoAway { .. } => 10,
            Frame::Settings { .. } => 5,
            Frame::Window { by, .. } if *by >= INCREMENT_MIN => 0,
            Frame::Window { .. }
            | Frame::Reset { .. }
            | Frame::Trailers { .. }
            | Frame::SettingsAcked
            | Frame::Priority { .. }
            | Frame::Ping(_)
            | Frame::PingAcked(_)
            | Frame::Nothing => 1,
        }
    }
}
