//! Tests that the wheel returns every entry once, at its time, and forgets disarmed entries.

use super::*;

struct Table(Vec<Link>);

impl Links for Table {
    fn link(&mut self, entry: u32) -> &mut Link {
        &mut self.0[entry as usize]
    }
}

fn wheel(entries: usize) -> (Wheel, Table) {
    wheel_from(0, entries)
}

fn wheel_from(now: u64, entries: usize) -> (Wheel, Table) {
    (Wheel::new(Tick(now)), Table(vec![Link::default(); entries]))
}

fn due(wheel: &mut Wheel, table: &mut Table, now: u64) -> Vec<u32> {
    let mut out: Vec<u32> = std::iter::from_fn(|| wheel.expire(table, Tick(now))).collect();
    out.sort_unstable();
    out
}

const WAITS: [u64; 7] = [0, 1, 63, 64, 500, 10_000, 30_000];

#[test]
fn an_entry_comes_out_at_its_time_and_not_before() {
    for (from, wait) in [0, 1_000_000].into_iter().flat_map(|from| WAITS.map(|wait| (from, wait))) {
        let ((mut wheel, mut table), at) = (wheel_from(from, 1), from + wait);
        wheel.arm(&mut table, 0, Tick(at));
        assert_eq!(due(&mut wheel, &mut table, at.saturating_sub(1)), [0_u32; 0], "{at}");
        assert_eq!(due(&mut wheel, &mut table, at + 2 * SLOT_MILLIS), [0], "{at}");
        assert_eq!(wheel.next(), None);
    }
}

#[test]
fn a_deadline_past_the_wheel_comes_out_early_to_be_armed_again() {
    let (mut wheel, mut table) = wheel(1);
    wheel.arm(&mut table, 0, Tick(3_600_000));
    let first = wheel.next().unwrap().0;
    assert!((SLOTS - 2) * SLOT_MILLIS < first && first < SLOTS * SLOT_MILLIS);
    assert_eq!(due(&mut wheel, &mut table, first), [0]);
    wheel.arm(&mut table, 0, Tick(3_600_000));
    assert!(wheel.next().unwrap().0 > first);
}

#[test]
fn moving_later_is_free_and_moving_sooner_moves() {
    let (mut wheel, mut table) = wheel(2);
    wheel.arm(&mut table, 0, Tick(1_000));
    wheel.arm(&mut table, 1, Tick(9_000));
    let before = wheel.next();
    wheel.arm(&mut table, 0, Tick(5_000));
    assert_eq!(wheel.next(), before);
    wheel.arm(&mut table, 1, Tick(100));
    assert_eq!(due(&mut wheel, &mut table, 300), [1]);
    assert_eq!(due(&mut wheel, &mut table, 1_200), [0]);
}

/// Miri takes a thousand times as long for each entry.
const STEPS: usize = if cfg!(miri) { 500 } else { 20_000 };

#[test]
fn random_arming_agrees_with_a_sorted_list() {
    let (mut wheel, mut table) = wheel(64);
    let mut model: Vec<Option<u64>> = vec![None; 64];
    let (mut now, mut seed) = (0_u64, 0x9e37_79b9_7f4a_7c15_u64);
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    for _ in 0..STEPS {
        let entry = random(64) as usize;
        match random(4) {
            0 => {
                wheel.disarm(&mut table, entry as u32);
                model[entry] = None;
            }
            1 => now += random(300),
            _ => {
                // Almost a full rotation later, in the same bitmap word as the current slot.
                let at = now + random(32_000);
                let sooner = model[entry].map_or(at, |old| old.min(at));
                wheel.arm(&mut table, entry as u32, Tick(at));
                model[entry] = Some(sooner);
            }
        }
        while let Some(out) = wheel.expire(&mut table, Tick(now)) {
            let at = model[out as usize].take().expect("armed");
            assert!(at <= now, "{at} came out at {now}");
        }
        for at in model.iter().flatten() {
            assert!(at + 2 * SLOT_MILLIS > now, "{at} is late at {now}");
        }
        let next = wheel.next().map(|at| at.0);
        match model.iter().flatten().min() {
            Some(at) => assert!(next.is_some_and(|next| now < next && next <= at + 2 * SLOT_MILLIS), "{at}"),
            None => assert_eq!(next, None),
        }
    }
}
