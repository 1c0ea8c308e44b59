//! Every cell of the tables.

use super::*;

const READINGS: [Reading; 4] = [Reading::Head, Reading::Body, Reading::Whole, Reading::Refused];
const WRITINGS: [Writing; 4] = [Writing::Head, Writing::Body, Writing::Whole, Writing::Broken];

/// Where each state of reading goes on this event, in the order of `READINGS`.
#[track_caller]
fn reads(on: ReadEvent, want: [Reading; 4]) {
    assert_eq!(READINGS.map(|at| at.next(on)), want);
}

/// Where each state of writing goes on this event, in the order of `WRITINGS`. None: it is out of turn.
#[track_caller]
fn writes(on: WriteEvent, want: [Option<Writing>; 4]) {
    assert_eq!(WRITINGS.map(|at| at.next(on).ok()), want);
    for at in WRITINGS {
        if let Err(misuse) = at.next(on) {
            assert_eq!(misuse, Misuse::OutOfTurn { at, on });
            assert_eq!(misuse.to_string(), format!("{on} is out of turn: {at}."));
        }
    }
}

#[test]
fn reading() {
    use Reading::*;
    reads(ReadEvent::HeadWithBody, [Body, Body, Whole, Refused]);
    reads(ReadEvent::HeadWithoutBody, [Whole, Body, Whole, Refused]);
    reads(ReadEvent::BodyEnd, [Head, Whole, Whole, Refused]);
    reads(ReadEvent::NextRequest, [Head, Body, Head, Refused]);
    reads(ReadEvent::Fault, [Refused; 4]);
}

#[test]
fn writing() {
    use Writing::*;
    writes(WriteEvent::Interim, [Some(Head), None, None, None]);
    writes(WriteEvent::Head, [Some(Body), None, None, None]);
    writes(WriteEvent::Body, [None, Some(Body), None, None]);
    writes(WriteEvent::Finish, [None, Some(Whole), None, None]);
    writes(WriteEvent::Break, [None, Some(Broken), None, None]);
    writes(WriteEvent::NextRequest, [None, None, Some(Head), None]);
}

#[test]
fn keep_alive_only_falls() {
    let mut keep_alive = KeepAlive::default();
    keep_alive.and(true);
    assert_eq!(keep_alive, KeepAlive::Yes);
    keep_alive.and(false);
    keep_alive.and(true);
    assert_eq!(keep_alive, KeepAlive::No);
}

#[test]
fn after_a_response() {
    use After::*;
    assert_eq!(READINGS.map(|reading| after(reading, KeepAlive::Yes)), [Linger, Drain, Next, Linger]);
    assert_eq!(READINGS.map(|reading| after(reading, KeepAlive::No)), [Linger, Linger, Close, Linger]);
}
