//! Tests that connections are spread over the loops.

use super::CASE;
use crate::support::{Client, Guarantee};

const CONNECTIONS: usize = 64;
const MOST: usize = 40;

/// A loop that changes threads blurs the count, because a busy machine makes quick handlers look stuck. One
/// clear count of five is enough: uneven loops would never give one.
#[test]
fn connections_are_spread_over_both_loops() {
    if !CASE.guarantees(Guarantee::EvenLoops) {
        return;
    }
    let looks = std::iter::repeat_with(|| {
        let site = CASE.start();
        let mut clients: Vec<Client> = (0..CONNECTIONS).map(|_| site.client()).collect();
        clients.iter_mut().for_each(|client| client.get("/thread").is(200, "noted"));
        site.calls_by_thread()
    });
    let looks: Vec<Vec<usize>> = looks.take(5).collect();
    for look in &looks {
        assert_eq!(look.iter().sum::<usize>(), CONNECTIONS);
    }
    assert!(looks.iter().any(|look| look.iter().all(|calls| *calls <= MOST)), "{looks:?}");
}
