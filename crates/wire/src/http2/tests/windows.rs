//! Arithmetic of windows and of expected bodies.

use super::*;
use Violation::*;

#[test]
fn rfc9113_6_9_1_windows() {
    let mut window = Window::default();
    assert_eq!((window.available(), window.size()), (65_535, 65_535));
    assert_eq!(window.take(65_535, 1), Ok(()));
    assert_eq!(window.take(0, 1), Ok(()));
    assert_eq!(window.take(1, 1), Err(Http2Fault::stream_error(1, WindowExceeded)));
    assert_eq!(window.take(1, 0), Err(Http2Fault::connection(WindowExceeded)));
    assert_eq!(window.add(Window::MAX, 1), Ok(()));
    assert_eq!(window.add(1, 3).unwrap_err().code(), ErrorCode::FLOW_CONTROL_ERROR);
    assert_eq!(window.add(1, 3), Err(Http2Fault::stream_error(3, WindowTooLarge)));
    assert_eq!(window.add(1, 0), Err(Http2Fault::connection(WindowTooLarge)));
    assert_eq!(window.available(), Window::MAX);
    assert_eq!(window.take(u32::MAX, 0), Err(Http2Fault::connection(WindowExceeded)));
    assert_eq!(Window::new(u32::MAX).available(), Window::MAX);
}

#[test]
fn rfc9113_6_9_2_initial_window() {
    let mut window = Window::new(100);
    window.take(80, 1).unwrap();
    // 100 becomes 10: the stream has sent 80 of them.
    assert_eq!((window.shift(-90), window.size(), window.available()), (Ok(()), -70, 0));
    assert_eq!(window.take(1, 1), Err(Http2Fault::stream_error(1, WindowExceeded)));
    assert_eq!((window.add(71, 1), window.available()), (Ok(()), 1));
    assert_eq!(window.shift(i32::MAX), Err(Http2Fault::connection(WindowTooLarge)));
    let mut lowest = Window::new(Window::MAX);
    lowest.take(Window::MAX, 1).unwrap();
    assert_eq!((lowest.shift(-i32::MAX), lowest.available()), (Ok(()), 0));
}

#[test]
fn rfc9113_8_1_1_body_length() {
    let mut body = ExpectedBody::new(Framing::Length(5));
    assert_eq!((body.count(2, false), body.left()), (Ok(()), Some(3)));
    assert_eq!(body.count(4, true), Err(ContentLengthDiffers));
    assert_eq!(body.count(2, true), Err(ContentLengthDiffers));
    assert_eq!(ExpectedBody::new(Framing::Length(5)).count(5, true), Ok(()));
    assert_eq!(ExpectedBody::new(Framing::None).count(1, false), Err(ContentLengthDiffers));
    let mut unknown = ExpectedBody::new(Framing::Chunked);
    assert_eq!(
        (unknown.count(u64::MAX, false), unknown.count(9, true), unknown.left()),
        (Ok(()), Ok(()), None)
    );
}
