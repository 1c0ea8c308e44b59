//! Every connection is accepted that comes while no loop waits for connections.

use super::*;
use crate::engine::adaptive::accept_mode::AcceptMode;
use crate::transport::counters::Counters;

/// Whoever comes back from a call has one of those at the door. The others are not left to chance, nor to one loop.
#[test]
fn who_comes_back_sends_the_loops_to_the_doors_that_nobody_attends() {
    let (house, loops) = House::empty_of(2, slow, Settings::default());
    let shared = &house.shared;
    let next = || {
        eventually("somebody waits at the door", || shared.listeners.has_anybody());
        shared.try_accept(0).expect("somebody waits at the door")
    };
    let are_told = || {
        let mut messages = [const { Vec::new() }; 2];
        (0..2).for_each(|index| shared.loops.handle(index).inbox.take_all(&mut messages[index]));
        messages.map(|messages| matches!(messages[..], [LoopMessage::Accept]))
    };
    let mut clients = vec![house.connect(), house.connect()];
    drop(next());
    assert_eq!(are_told(), [false; 2], "they wait there");
    shared.loops.set_accepting(false);
    let mut were_told = [false; 2];
    for _ in 0..30 {
        clients.extend([house.connect(), house.connect()]);
        drop(next());
        let [first, second] = are_told();
        were_told = [were_told[0] || first, were_told[1] || second];
    }
    assert_eq!(were_told, [true; 2], "of the others");
    // Each of them has come when it is taken in.
    clients.iter().skip(house.stats().accepted as usize).for_each(|_| drop(next()));
    are_told();
    assert!(shared.try_accept(0).is_none());
    assert_eq!(are_told(), [false; 2], "nobody is there");
    drop(loops);
}

/// While those who look there are many, and no longer.
#[test]
fn the_watcher_leaves_the_doors_to_who_looks_there() {
    let (house, loops) = House::empty(slow);
    let shared = &house.shared;
    let mut visits = AcceptMode::new(10, Instant::now());
    let mut look = |looks| {
        shared.looks.fetch_add(looks, Ordering::Relaxed);
        let is_left = shared.check_accept_mode(&mut visits);
        assert_ne!(is_left, shared.loops.is_accepting());
        is_left
    };
    assert!(shared.loops.is_accepting());
    eventually("it leaves them", || look(1_000_000));
    eventually("it comes back", || !look(0));
    drop(loops);
}

/// A watcher that leaves the doors where nobody comes, until somebody does.
fn watch_for_nobody(house: &House) -> std::thread::JoinHandle<()> {
    let shared = house.shared.clone();
    let watcher = std::thread::spawn(move || shared.run_sysmon(0));
    eventually("it leaves them", || !house.shared.loops.is_accepting());
    watcher
}

/// Nobody else would come back to them.
#[test]
fn the_watcher_does_not_sleep_while_the_doors_are_left() {
    let (house, driven) = House::empty(slow);
    let watcher = watch_for_nobody(&house);
    let Shared { loops, cx, .. } = &*house.shared;
    // No loop keeps it awake, for longer than it looks at nothing.
    loops.watch.set_idle(0);
    std::thread::sleep(Duration::from_millis(200));
    eventually("it has them attended", || {
        Counters::count(&cx.counters.accepted);
        loops.is_accepting()
    });
    house.close();
    drop(driven);
    watcher.join().unwrap();
}

/// Whoever looks there meanwhile, and however soon.
#[test]
fn who_comes_while_the_doors_are_left_is_answered() {
    let (house, loops) = House::empty(slow);
    let watcher = watch_for_nobody(&house);
    loops.into_iter().for_each(|lp| house.shared.hand_off(Box::new(lp)));
    for _ in 0..3 {
        eventually("they are left", || !house.shared.loops.is_accepting());
        // A loop that sleeps leaves them when it wakes next.
        house.shared.loops.wake_all();
        let clients: Vec<_> = ["/quick", "/slow", "/slow"].map(|path| house.ask(path)).into();
        clients.into_iter().for_each(is_answered);
    }
    house.close();
    watcher.join().unwrap();
}
