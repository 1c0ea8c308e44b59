//! Does the thread-maker help everybody who waits, and does its task go from thread to thread?

#[cfg(any(target_os = "linux", target_os = "android"))]
mod members;

use super::*;
use crate::engine::testing::burst::{Burst, PATIENCE, Site, eventually};
use crate::engine::testing::client::{ask_on, connect, is_next_answer};
use crate::settings::Settings;
use crate::transport::address::Address;

/// A pool with nobody in it: the test plays the one thread at the door, which has just left with a connection,
/// and the maker, who was asked for that.
fn pool(site: Site) -> Arc<Shared> {
    let (shared, _porter) = Shared::new(1, site.cx, site.handler, vec![site.listener]).unwrap();
    assert_eq!(shared.roster.open(), 1);
    shared.roster.leave_door();
    assert!(shared.roster.wait_until_asked());
    shared
}

/// All of the burst are in the handler.
#[track_caller]
fn there_are_enough_and_one(shared: &Shared, burst: usize) {
    let count = shared.roster.count();
    // One is the test.
    assert_eq!((count.threads, count.at_door, count.line), (1 + burst + 1, 1, false));
    eventually("nobody is held back", || shared.gate.is_open());
}

fn stop(shared: &Shared) {
    shared.cx.enter(Stage::Closing);
    shared.wake();
    assert_eq!(shared.join(PATIENCE), 0);
}

/// A maker that was asked once makes a thread for each connection that waits. Nobody could ask for a second one:
/// no maker is there any more.
#[test]
fn one_asking_is_enough_for_all_who_wait() {
    let size = SPAWNS_PER_TURN - 1;
    let (burst, site) = Burst::at_the_door(size);
    let shared = pool(site);
    assert_eq!(shared.make_enough(&mut 0), Maker::Stays);
    burst.wait_until_all_are_in();
    there_are_enough_and_one(&shared, size);
    burst.goes_on_and_is_answered();
    stop(&shared);
}

/// A maker that has made a few goes to the door itself, and the next one goes on.
#[test]
fn the_task_of_the_maker_goes_from_thread_to_thread() {
    let size = 5 * SPAWNS_PER_TURN;
    let (burst, site) = Burst::at_the_door(size);
    let shared = pool(site);
    let mut made = 0;
    assert_eq!(shared.make_enough(&mut made), Maker::HasHandedOn);
    assert_eq!(made, SPAWNS_PER_TURN);
    let first = {
        let shared = shared.clone();
        std::thread::spawn(move || shared.work())
    };
    burst.wait_until_all_are_in();
    there_are_enough_and_one(&shared, size);
    burst.goes_on_and_is_answered();
    stop(&shared);
    first.join().unwrap();
}

/// With as many connections as may be, nobody looks for another one again and again who was not told of one, and
/// those who are not needed end as ever.
#[test]
fn a_full_pool_keeps_no_thread_that_is_not_needed() {
    let size = 4;
    let (burst, site) = Burst::at_the_door(size);
    let cx = Arc::new(Context::new(Settings::default().connections_max(size).accepted_max(size)).unwrap());
    let room = start(1, cx.clone(), site.handler, vec![site.listener]).unwrap();
    burst.wait_until_all_are_in();
    let clients = burst.goes_on_and_is_answered();
    eventually("idle clients leave one thread at the door", || room.threads() == 1);
    drop(clients);
    cx.enter(Stage::Closing);
    room.wake();
    assert_eq!(room.join(PATIENCE), 0);
}

/// A parked connection that asks again needs no place in the queue while there are threads at the door.
#[test]
fn who_finds_a_thread_at_the_door_is_answered_without_a_queue() {
    let (_, site) = Burst::at_the_door(0);
    let settings = Settings::default().connections_max(9).accepted_max(9).queue_max(0);
    let cx = Arc::new(Context::new(settings).unwrap());
    let Address::Tcp(address) = site.listener.address().clone() else { panic!("not a TCP address") };
    let (shared, porter) = Shared::new(2, cx, site.handler, vec![site.listener]).unwrap();
    shared.open(porter).unwrap();
    let mut client = connect(address);
    for _ in 0..2 {
        ask_on(&mut client, "/");
        is_next_answer(&mut client, "together");
        eventually("both threads are at the door", || shared.roster.count().at_door == 2);
        eventually("it is with the porter", || shared.bell.members.members() == 0);
    }
    stop(&shared);
}

/// The roster knows for a while that there are no more threads to be had.
#[test]
fn a_refused_thread_is_not_free() {
    let roster = Roster::new(Limits { standby: 2, at_door_max: 16, threads_max: 9 });
    roster.open();
    roster.leave_door();
    assert_eq!((roster.free(), roster.was_refused()), (8, false));
    assert_eq!((roster.note_refusal(), roster.note_refusal()), (Some(2), None), "it is news once");
    assert_eq!((roster.free(), roster.was_refused()), (1, true));
    roster.leave_door();
    assert!(!roster.call(), "none may come");
    roster.note_start();
    assert_eq!((roster.free(), roster.was_refused()), (7, false));
    assert!(roster.call());
}

#[test]
fn threads_that_may_be_made_are_free() {
    let roster = Roster::new(Limits { standby: 1, at_door_max: 16, threads_max: 3 });
    assert_eq!(roster.free(), 3);
    roster.open();
    assert_eq!(roster.free(), 3);
    roster.leave_door();
    assert_eq!(roster.free(), 2);
    assert!(roster.wait_until_asked() && roster.one_more(9));
    roster.leave_door();
    roster.leave_door();
    assert_eq!(roster.free(), 0);
    roster.lose(false);
    assert_eq!(roster.free(), 1);
}

#[test]
fn the_maker_stops_at_the_most_threads() {
    let roster = Roster::new(Limits { standby: 1, at_door_max: 16, threads_max: 4 });
    roster.open();
    roster.leave_door();
    assert!(roster.wait_until_asked());
    assert!(roster.one_more(9) && roster.one_more(9));
    assert!(!roster.one_more(9));
    assert_eq!((roster.count().threads, roster.count().at_door), (4, 3));
}

#[test]
fn the_maker_makes_none_for_whom_there_is_one_at_the_door() {
    let roster = Roster::new(Limits { standby: 4, at_door_max: 16, threads_max: 9 });
    roster.open();
    assert!(!roster.one_more(0) && !roster.one_more(3));
    assert!(roster.one_more(4) && !roster.one_more(4));
    roster.close();
    assert!(!roster.one_more(9), "a server that stops makes no more");
}

/// With one at the door that is enough, and another one.
fn crowded_roster() -> Roster {
    let roster = Roster::new(Limits { standby: 1, at_door_max: 1, threads_max: 2 });
    roster.open();
    roster.leave_door();
    assert!(roster.wait_until_asked());
    assert!(roster.come_to_door(), "there are two");
    roster
}

#[test]
fn who_is_not_needed_sits_down_and_ends() {
    let roster = crowded_roster();
    assert!(!roster.sit_down(Duration::ZERO), "nobody has called it");
    assert_eq!((roster.count().threads, roster.count().at_door, roster.count().on_bench), (1, 1, 0));
    assert!(roster.sit_down(PATIENCE), "it is needed at the door");
    assert_eq!((roster.count().at_door, roster.count().on_bench), (1, 0));
}

#[test]
fn who_leaves_an_empty_door_calls_one_from_the_bench() {
    let roster = crowded_roster();
    std::thread::scope(|scope| {
        let seated = scope.spawn(|| roster.sit_down(PATIENCE));
        eventually("it sits", || roster.count().on_bench == 1);
        assert_eq!(roster.free(), 2, "it is as free as those at the door");
        roster.leave_door();
        assert!(seated.join().unwrap());
    });
    let count = roster.count();
    assert_eq!((count.threads, count.at_door, count.on_bench, count.line), (2, 1, 0, false));
}

/// While the cores are full nobody is called to an empty door.
#[test]
fn nobody_is_called_while_the_cores_are_full() {
    let roster = crowded_roster();
    roster.set_cores_full(true);
    std::thread::scope(|scope| {
        let seated = scope.spawn(|| roster.sit_down(PATIENCE));
        eventually("it sits", || roster.count().on_bench == 1);
        roster.leave_door();
        assert_eq!((roster.count().at_door, roster.count().on_bench), (0, 1));
        assert!(!roster.is_pressed());
        roster.set_cores_full(false);
        assert!(seated.join().unwrap());
    });
    roster.leave_door();
    assert!(!roster.call(), "there may be no more");
    assert!(roster.is_pressed());
}

#[test]
fn the_stop_calls_everybody_from_the_bench() {
    let roster = crowded_roster();
    std::thread::scope(|scope| {
        let seated = scope.spawn(|| roster.sit_down(PATIENCE));
        eventually("it sits", || roster.count().on_bench == 1);
        roster.close();
        assert!(seated.join().unwrap());
    });
    assert_eq!((roster.count().at_door, roster.count().on_bench), (2, 0));
}

/// Somebody always waits at the first of them: who waits at the second is next all the same.
#[test]
fn listeners_have_their_turns() {
    let [(_first, site), (_second, other)] = [3, 1].map(Burst::at_the_door);
    let listeners = vec![site.listener, other.listener];
    let (shared, _porter) = Shared::new(1, site.cx, site.handler, listeners).unwrap();
    let is_at = |door: usize| crate::engine::acceptor::have_pending(&shared.doors.get()[door..=door]);
    eventually("somebody is at each", || is_at(0) && is_at(1));
    for _ in 0..2 {
        assert!(matches!(shared.look_at_doors(shared.cx.clock.now()), Look::Conn(_)));
    }
    assert!(is_at(0) && !is_at(1));
}
