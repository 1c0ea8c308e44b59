//! The canned answers are as long as asked for, and whole.

use super::*;
use crate::load::response::{Answer, ResponseParser};

fn options(close: bool, answer_bytes: usize) -> FloorArgs {
    let (floor, loops) = (Floor::Epoll, 1);
    FloorArgs { floor, port: 0, close, pipelined: false, sleep_us: 0, loops, answer_bytes }
}

fn check(close: bool, answer_bytes: usize) {
    let answer = canned_answer(&options(close, answer_bytes)).unwrap();
    assert_eq!(answer.len(), answer_bytes);
    let parsed = ResponseParser::default().feed(&answer).unwrap();
    assert_eq!(parsed, (answer_bytes, Some(Answer { status: 200, close, right: true })));
}

#[test]
fn answers_have_the_length_asked_for() {
    check(false, 60);
    check(false, 120);
    check(false, 130);
    check(true, 140);
    check(true, 2000);
}

#[test]
fn too_short_is_refused() {
    assert!(matches!(canned_answer(&options(false, 20)), Err(Failure::Usage(_))));
}
