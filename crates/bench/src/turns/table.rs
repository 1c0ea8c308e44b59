//! The tables of `turns`: one for each distance of the cores, with ratios within each round.

use std::fmt::Write;
use std::time::Duration;

use super::{Turn, TurnServer, owed};
use crate::procs::distance::Apart;
use crate::report::table::table as aligned;
use crate::results::{median, quartiles};
use crate::workloads::{Kind, Workload};

/// Fewer turns say nothing.
pub(crate) const TURNS_MIN: usize = 5;

pub(super) fn table(workload: &Workload, turn: Duration, servers: &[TurnServer]) -> String {
    let lists: Vec<(&str, &[Turn])> =
        servers.iter().map(|one| (one.name.as_str(), one.turns.as_slice())).collect();
    let mut text = format!("{}: {}, turns of {turn:?}\n", workload.name, workload.title);
    let compared = compared(workload);
    for (apart, what) in [(Apart::Near, "cores near"), (Apart::Far, "cores far apart")] {
        part(&mut text, what, apart, compared, &lists);
    }
    if text.lines().count() == 1 {
        text.push_str("  no comparison: the cores were moved in most rounds\n");
    }
    text
}

/// The name of a figure, and how it is read from a turn.
type Compared = (&'static str, fn(&Turn) -> f64);

/// At a fixed rate the time is the same for all.
fn compared(workload: &Workload) -> Compared {
    match workload.kind {
        Kind::Paced { .. } => ("CPU us each", Turn::cpu_us_each),
        _ => ("us/request", Turn::us),
    }
}

/// The rounds in which the cores were there all the time, for all.
fn part(text: &mut String, what: &str, apart: Apart, compared: Compared, lists: &[(&str, &[Turn])]) {
    let (figure, of) = compared;
    let rounds = lists.iter().map(|(_, turns)| turns.len()).min().unwrap_or(0);
    let stayed = |round: &usize| lists.iter().all(|(_, turns)| turns[*round].apart == Some(apart));
    let rounds: Vec<usize> = (0..rounds).filter(stayed).collect();
    let Some((_, first)) = lists.first().filter(|_| rounds.len() >= TURNS_MIN) else { return };
    let head = ["subject", figure, "middle half", "x first", "middle half", "CPU us", "errors"];
    let rows = lists.iter().map(|(name, turns)| {
        let figures: Vec<f64> = rounds.iter().map(|round| of(&turns[*round])).collect();
        let ratios: Vec<f64> = rounds.iter().map(|round| of(&turns[*round]) / of(&first[*round])).collect();
        let cpu: f64 = rounds.iter().map(|round| turns[*round].cpu_us).sum();
        let answers: u64 = rounds.iter().map(|round| turns[*round].answers).sum();
        // Errors of the rounds that do not count are errors too.
        let errors = turns.iter().map(|turn| turn.errors).sum::<u64>() + owed(turns);
        let middle = |values: &Vec<f64>| format!("{:.3}", median(values.clone()).unwrap_or(f64::NAN));
        [
            (*name).to_owned(),
            middle(&figures),
            middle_half(figures),
            middle(&ratios),
            middle_half(ratios),
            format!("{:.2}", cpu / answers.max(1) as f64),
            errors.to_string(),
        ]
    });
    let table = aligned(head.map(str::to_owned).to_vec(), rows);
    let _ = writeln!(text, "  {what}, {} rounds\n{table}", rounds.len());
}

fn middle_half(values: Vec<f64>) -> String {
    quartiles(values).map(|(low, high)| format!("{low:.3} to {high:.3}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::{GRID, named};

    const TIME: Compared = ("us/request", Turn::us);

    fn turn(apart: Option<Apart>, answers: u64) -> Turn {
        let elapsed = Duration::from_millis(30);
        Turn { apart, answers, errors: 0, unanswered: 0, elapsed, cpu_us: 30_000.0 }
    }

    #[test]
    fn ratios_count_only_rounds_without_a_moved_server() {
        let near = Some(Apart::Near);
        let (mut first, mut second) = (vec![turn(near, 6000); 5], vec![turn(near, 5000); 5]);
        // Twice as slow for both, and no other ratio.
        first.push(turn(near, 3000));
        second.push(turn(near, 2500));
        // One of them was measured elsewhere, or was moved in its turn.
        first.extend([turn(Some(Apart::Far), 1), turn(near, 1)]);
        second.extend([turn(near, 1), turn(None, 1)]);
        second[7].errors = 3;
        let mut text = String::new();
        part(&mut text, "cores near", Apart::Near, TIME, &[("floor", &first), ("weft", &second)]);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["cores", "near,", "6", "rounds"]);
        assert_eq!(
            lines[2],
            ["floor", "5.000", "5.000", "to", "5.000", "1.000", "1.000", "to", "1.000", "5.45", "0"]
        );
        assert_eq!(
            lines[3],
            ["weft", "6.000", "6.000", "to", "6.000", "1.200", "1.200", "to", "1.200", "6.55", "3"]
        );
    }

    #[test]
    fn at_a_fixed_rate_cpu_is_compared() {
        let (first, mut second) =
            (vec![turn(Some(Apart::Near), 6000); 5], vec![turn(Some(Apart::Near), 6000); 5]);
        second.iter_mut().for_each(|turn| turn.cpu_us *= 2.0);
        let mut text = String::new();
        let compared_in = |name| compared(named(&GRID, name)[0]);
        assert_eq!(compared_in("echo-1m").0, TIME.0);
        let compared = compared_in("rate-5000");
        part(&mut text, "cores near", Apart::Near, compared, &[("floor", &first), ("weft", &second)]);
        assert!(
            text.lines().nth(1).is_some_and(|line| line.split("  ").any(|part| part.trim() == "CPU us each")),
            "{text}"
        );
        let weft: Vec<&str> = text.lines().nth(3).unwrap().split_whitespace().collect();
        assert_eq!(weft[..6], ["weft", "10.000", "10.000", "to", "10.000", "2.000"]);
    }

    #[test]
    fn too_few_rounds_are_not_shown() {
        let turns = vec![turn(Some(Apart::Far), 6000); TURNS_MIN - 1];
        let mut text = String::new();
        part(&mut text, "cores far apart", Apart::Far, TIME, &[("floor", &turns)]);
        part(&mut text, "cores near", Apart::Near, TIME, &[]);
        assert_eq!(text, "");
    }
}
