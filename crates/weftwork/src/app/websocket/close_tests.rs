//! Tests which codes of a close are answered with the same code.

use super::frames::{self, FrameEvent};
use super::tests::{frame, read};

/// RFC 6455 section 7.4, and the registry of IANA.
#[test]
fn a_close_is_answered_with_its_code_if_it_may_be_sent() {
    let answer = |code: u16| {
        let (all, _) = read(vec![&frame(0x88, &[&code.to_be_bytes()[..], b"why"].concat())]);
        let [FrameEvent::Close(Some(said))] = all.as_slice() else { panic!("{code}: {all:?}") };
        assert_eq!(said.1 == "why", said.0 == code, "{code}: {}", said.1);
        frames::close_reply(Some(said))
    };
    for code in (1000..=1003).chain(1007..=1014).chain([3000, 3999, 4000, 4999]) {
        assert_eq!(answer(code)[2..], code.to_be_bytes(), "{code}");
    }
    for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65_535] {
        assert_eq!(answer(code)[2..], frames::CLOSE_PROTOCOL.to_be_bytes(), "{code}");
    }
}
