//! Floods of frames that lead to no response. Each of them ends the connection.

use super::*;
use Violation::*;

fn begun(payload: &[u8]) -> Vec<u8> {
    frame(kind::HEADERS, flag::END_STREAM, 1, payload)
}

fn continued(flags: u8, payload: &[u8]) -> Vec<u8> {
    frame(kind::CONTINUATION, flags, 1, payload)
}

#[test]
fn continuations_are_few_and_not_empty() {
    let parts = |count: usize| {
        let block = block(&[&GET[..], &[("a", "b"); 2]].concat());
        let mut bytes = begun(b"");
        (0..count - 1).for_each(|at| bytes.extend(continued(0, &block[at..at + 1])));
        bytes.extend(continued(flag::END_HEADERS, &block[count - 1..]));
        bytes
    };
    assert!(matches!(events(&parts(8))[..], [Seen::Head { ends: true, .. }]));
    refused(&parts(9), ContinuationsTooMany);
    refused(&[begun(&block(&GET)), continued(flag::END_HEADERS, b"")].concat(), ContinuationEmpty);
    refused(&[begun(b""), continued(0, b"")].concat(), ContinuationEmpty);
}

/// Of a field block that is cut, no more is kept than four times the limit of a head.
#[test]
fn a_cut_block_is_bounded() {
    let limits = Limits { head_bytes_max: 300, ..Limits::default() };
    let mut fields = block(&GET);
    // Indexed entries: a byte each.
    fields.resize(1_190, 0x82);
    let bytes = |len| [begun(&fields[..600]), continued(flag::END_HEADERS, &fields[600..len])].concat();
    assert_eq!(talk_within(&limits, &bytes(1_190)).fault, Some(BlockTooLarge));
    fields.resize(1_201, 0x82);
    let started = [begun(&fields[..600]), continued(0, &fields[600..1_200])].concat();
    let bytes = [PREFACE, &frame(kind::SETTINGS, 0, 0, b""), &started].concat();
    let whole = talk(Http2::server(&Http2Settings::default()), &bytes, |_| bytes.len(), &limits);
    assert_eq!((whole.fault, whole.used), (None, bytes.len()));
    let over = [&started[..], &continued(0, b"a")].concat();
    assert_eq!(talk_within(&limits, &over).fault, Some(BlockTooLarge));
}

/// A reference of one byte to a large entry.
#[test]
fn a_bomb_is_counted_before_it_is_written() {
    let mut first = block(&GET);
    first.extend_from_slice(&[0x40, 1, b'a', 0x7f, 0xa1, 0x1e]);
    first.extend_from_slice(&[b'x'; 4_000]);
    let mut bomb = block(&GET);
    bomb.resize(bomb.len() + 1_000, 0xbe);
    let request =
        |stream, block: &[u8]| frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, block);
    let bytes =
        [PREFACE, &frame(kind::SETTINGS, 0, 0, b""), &request(1, &first), &request(3, &bomb)].concat();
    let (mut http, mut head, mut text) =
        (Http2::server(&Http2Settings::default()), Head::default(), Vec::new());
    let (mut at, limits) = (0, Limits::default());
    let fault = loop {
        match http.read(&bytes[at..], &limits, &mut head, &mut text) {
            Ok((used, _)) => at += used,
            Err(fault) => break fault,
        }
    };
    assert_eq!(fault.violation, BlockTooLarge);
    assert!(text.capacity() <= 3 * limits.head_bytes_max as usize, "{}", text.capacity());
}

#[test]
fn settings_are_few() {
    let settings = |count: usize| frame(kind::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 1].repeat(count));
    assert_eq!(events(&settings(32)).len(), 1);
    refused(&settings(33), SettingsTooMany);
}

#[test]
fn prices() {
    let price = |bytes: &[u8]| {
        let talk = talk_within(&Limits::default(), &[&post(1), bytes].concat());
        assert_eq!(talk.fault, None);
        talk.price
    };
    let padded = |content: &[u8]| frame(kind::DATA, flag::PADDED, 1, content);
    let window = |by: u32| frame(kind::WINDOW_UPDATE, 0, 1, &by.to_be_bytes());
    assert_eq!(price(b""), 0);
    assert_eq!(price(&data(1, false, b"a")), 0);
    assert_eq!(price(&data(1, true, b"")), 0);
    assert_eq!(price(&data(1, false, b"")), 10);
    assert_eq!(price(&padded(b"\x02\0\0")), 10);
    assert_eq!(price(&padded(b"\x02a\0\0")), 0);
    let last = frame(kind::DATA, flag::PADDED | flag::END_STREAM, 1, b"\x02\0\0");
    assert_eq!(price(&last), 0);
    assert_eq!(price(&headers(1, true, &[])), 1);
    assert_eq!(price(&headers(3, true, &[])), 10);
    assert_eq!(price(&frame(kind::RST_STREAM, 0, 1, &[0; 4])), 1);
    assert_eq!(price(&frame(kind::GOAWAY, 0, 0, &[0; 20])), 10);
    assert_eq!(price(&frame(kind::SETTINGS, 0, 0, b"")), 5);
    assert_eq!(price(&frame(kind::SETTINGS, flag::ACK, 0, b"")), 1);
    assert_eq!(price(&frame(kind::PING, 0, 0, &[0; 8])), 1);
    assert_eq!(price(&frame(kind::PRIORITY, 0, 1, &[0; 5])), 1);
    assert_eq!(price(&frame(kind::PRIORITY_UPDATE, 0, 0, &[0, 0, 0, 1])), 1);
    assert_eq!(price(&frame(0x20, 0, 0, &[0; 100])), 1);
    assert_eq!((price(&window(1_023)), price(&window(1_024))), (1, 0));
}

#[test]
fn budget() {
    let mut budget = Budget::new(50);
    assert_eq!(budget.points(), 1_000);
    for _ in 0..100 {
        assert_eq!(budget.spend(10, 50), Ok(()));
    }
    assert_eq!(budget.spend(1, 50), Err(Http2Fault::connection(BudgetSpent)));
    assert_eq!(budget.spend(0, 50), Ok(()));
    // 33 points a second, and no part of a point is lost.
    assert_eq!(budget.spend(1, 80).map_err(|fault| fault.code()), Err(ErrorCode::ENHANCE_YOUR_CALM));
    assert_eq!((budget.spend(1, 81), budget.points()), (Ok(()), 0));
    budget.earn(Budget::RESPONSE);
    assert_eq!(budget.points(), 10);
    assert_eq!((budget.spend(42, 1_050).is_ok(), budget.points()), (true, 0));
    assert_eq!((budget.spend(33, 2_050).is_ok(), budget.points()), (true, 0));
    // It is never more than full, and time never runs backwards.
    assert_eq!((budget.spend(1, u64::MAX).is_ok(), budget.points()), (true, 999));
    assert_eq!((budget.spend(1, 0).is_ok(), budget.points()), (true, 998));
    budget.earn(u32::MAX);
    assert_eq!(budget.points(), 1_000);
}

/// Three frames may confirm a DATA frame, unless windows have made it small.
#[test]
fn confirmations_of_data_cost_nothing() {
    let frames =
        [Frame::Window { stream: 1, by: 1 }, Frame::Window { stream: 0, by: 1 }, Frame::Ping([0; 8])];
    let spent = |budget: &mut Budget| frames.each_ref().map(|frame| budget.price(frame));
    let mut budget = Budget::new(0);
    assert_eq!(spent(&mut budget), [1, 1, 1]);
    for (len, is_cut, free) in [(1, false, true), (128, true, true), (127, true, false), (1, true, false)] {
        budget.note_data(len, is_cut);
        // What is free anyway confirms nothing.
        assert_eq!(budget.price(&Frame::Window { stream: 1, by: 1_024 }), 0);
        assert_eq!(budget.price(&Frame::PingAcked([0; 8])), 1);
        assert_eq!(spent(&mut budget), if free { [0; 3] } else { [1; 3] }, "{len} {is_cut}");
        assert_eq!(spent(&mut budget), [1, 1, 1]);
    }
    (0..100_000).for_each(|_| budget.note_data(1, false));
    let free = (0..2_000).filter(|_| budget.price(&frames[0]) == 0).count();
    assert_eq!(free, 1_000);
}

/// However often time is counted, 33 points come in a second.
#[test]
fn a_budget_loses_no_part_of_a_point() {
    for step in [1, 7, 30, 31, 333] {
        let mut budget = Budget::new(0);
        budget.spend(1_000, 0).unwrap();
        let mut spent = 0;
        for now in (0..=20_000).step_by(step) {
            while budget.spend(1, now).is_ok() {
                spent += 1;
            }
        }
        let last = 20_000 / step as u64 * step as u64;
        assert!((last * 33 / 1_000).abs_diff(spent) <= 1, "{step}: {spent}");
    }
}
