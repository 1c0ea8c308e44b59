//! Is what the system has refused neither promised nor asked for again, for a while?

use super::*;

#[test]
fn a_refusal_is_news_once_and_bounds_what_is_promised() {
    let standby = Standby::new(Limits { kept: 1, threads_max: 9, queue_max: 1 });
    for job in 1..=4 {
        assert!(matches!(standby.give(job), Given::Spawn(_)));
    }
    assert_eq!(standby.note_refusal(), Some(3));
    assert_eq!(standby.note_refusal(), None);
    assert_eq!(standby.count(), (2, 0));
    assert!(!standby.has_thread() && standby.has_room() && !standby.small_risk());
    assert!(matches!(standby.give(5), Given::Refused(5)));
    assert!(matches!(standby.give_or_queue(5), Given::Taken));
    assert!(standby.call_for_queue().is_none() && !standby.has_room());
    // One that ends makes room for another.
    standby.leave();
    assert!(matches!(standby.call_for_queue(), Some(Given::Spawn(5))));
    let begun = Instant::now();
    while !standby.has_thread() {
        assert!(begun.elapsed() < 10 * REFUSED_FOR, "the system is never asked again");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(matches!(standby.give(6), Given::Spawn(6)));
    assert_eq!(standby.note_refusal(), Some(2), "it is news again");
}
