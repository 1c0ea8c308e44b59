//! The scores of a run-off: medians over some parts of it, each long enough that ticks of 10 ms count little.

use crate::measure::Metric;
use crate::results::{Figure, Runoff, Score};
use crate::turns::{Turn, owed};

const PARTS_MAX: usize = 8;
/// Of CPU, some 25 ticks: at a low rate that takes a few seconds.
const PART_CPU_US_MIN: f64 = 250e3;
/// Fewer rounds in which the cores stayed say nothing.
const STAYED_MIN: usize = 3;

/// Of the rounds in which the host left the cores where they were, for all. `lists`: the turns of each, ours first.
pub(super) fn scores(metric: Metric, lists: &[(&str, &[Turn])]) -> Option<Runoff> {
    let all = lists.iter().map(|(_, turns)| turns.len()).min()?;
    let stayed = |round: &usize| {
        let apart = lists[0].1[*round].apart;
        apart.is_some() && lists.iter().all(|(_, turns)| turns[*round].apart == apart)
    };
    let rounds: Vec<usize> = (0..all).filter(stayed).collect();
    if rounds.len() < STAYED_MIN {
        return None;
    }
    let cpu_us = |turns: &[Turn]| rounds.iter().map(|round| turns[*round].cpu_us).sum::<f64>();
    let least = lists.iter().map(|(_, turns)| cpu_us(turns)).fold(f64::INFINITY, f64::min);
    let parts = match metric {
        Metric::CPU_US => ((least / PART_CPU_US_MIN) as usize).clamp(1, PARTS_MAX),
        _ => PARTS_MAX,
    };
    let parts: Vec<&[usize]> = rounds.chunks(rounds.len().div_ceil(parts).max(1)).collect();
    let values_of =
        |turns: &[Turn]| -> Vec<f64> { parts.iter().map(|part| value(metric, turns, part)).collect() };
    let ours = values_of(lists[0].1);
    let scores = lists.iter().map(|(subject, turns)| {
        let values = values_of(turns);
        let over_ours = figure(values.iter().zip(&ours).map(|(theirs, ours)| theirs / ours).collect())?;
        let errors = turns.iter().map(|turn| turn.errors).sum::<u64>() + owed(turns);
        let (subject, errors) = ((*subject).to_owned(), errors as f64);
        Some(Score { subject, figure: figure(values)?, over_ours, errors })
    });
    Some(Runoff { turns: rounds.len(), scores: scores.collect::<Option<_>>()?, failed: None })
}

/// Over these rounds together.
fn value(metric: Metric, turns: &[Turn], rounds: &[usize]) -> f64 {
    let sum = |of: fn(&Turn) -> f64| rounds.iter().map(|round| of(&turns[*round])).sum::<f64>();
    let answers = sum(|turn| turn.answers as f64);
    match metric {
        Metric::RATE => answers / sum(|turn| turn.elapsed.as_secs_f64()),
        _ => sum(|turn| turn.cpu_us) / answers,
    }
}

/// None: a value is no number, as a server did not answer, or used no tick.
fn figure(values: Vec<f64>) -> Option<Figure> {
    if !values.iter().all(|value| value.is_normal()) {
        return None;
    }
    Figure::of(values)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::procs::distance::Apart;

    const NEAR: Option<Apart> = Some(Apart::Near);

    fn turn(apart: Option<Apart>, answers: u64, cpu_ms: u64) -> Turn {
        let cpu_us = cpu_ms as f64 * 1e3;
        Turn { apart, answers, errors: 0, unanswered: 0, elapsed: Duration::from_millis(30), cpu_us }
    }

    #[test]
    fn what_a_tick_says_counts_together_with_others() {
        // 300 ms each, as a coarse clock tells it.
        let ours: Vec<Turn> = [200, 400].repeat(20).iter().map(|ms| turn(NEAR, 100_000, *ms)).collect();
        let mut theirs = vec![turn(NEAR, 50_000, 300); 40];
        theirs[7].errors = 2;
        let lists = [("weft", ours.as_slice()), ("nginx", theirs.as_slice())];
        let runoff = scores(Metric::CPU_US, &lists).unwrap();
        assert_eq!(runoff.turns, 40);
        let [weft, nginx] = &runoff.scores[..] else { panic!("{runoff:?}") };
        assert_eq!((weft.subject.as_str(), weft.over_ours.median, weft.errors), ("weft", 1.0, 0.0));
        // Parts of five turns: 2 or 3 of them long.
        assert_eq!(weft.figure, Figure { median: 3.0, low: 2.8, high: 3.2 });
        assert_eq!((nginx.figure.median, nginx.errors), (6.0, 2.0));
        let Figure { median, low, high } = nginx.over_ours;
        assert!(low < 1.9 && (1.99..2.02).contains(&median) && high > 2.1, "{:?}", nginx.over_ours);
        let runoff = scores(Metric::RATE, &lists).unwrap();
        assert_eq!(runoff.scores[1].over_ours, Figure { median: 0.5, low: 0.5, high: 0.5 });
    }

    #[test]
    fn only_rounds_count_in_which_all_stayed_where_they_were() {
        let far = Some(Apart::Far);
        let ours =
            [turn(NEAR, 100, 10), turn(NEAR, 1, 10), turn(far, 50, 10), turn(None, 1, 10), turn(far, 50, 10)];
        let theirs =
            [turn(NEAR, 100, 20), turn(far, 1, 10), turn(far, 50, 20), turn(None, 1, 10), turn(far, 50, 20)];
        let runoff = scores(Metric::CPU_US, &[("weft", &ours), ("nginx", &theirs)]).unwrap();
        assert_eq!((runoff.turns, runoff.scores[1].over_ours.median), (3, 2.0));
        let two = [("weft", &ours[..4]), ("nginx", &theirs[..4])];
        assert_eq!(scores(Metric::CPU_US, &two), None);
    }

    #[test]
    fn a_part_has_ticks_enough() {
        // 65 ms a turn, as the kernel tells it, for one, and a tenth less for the other.
        let ours: Vec<Turn> = [60, 70].repeat(4).iter().map(|ms| turn(NEAR, 5_000, *ms)).collect();
        let theirs: Vec<Turn> = [60, 60, 60, 54].repeat(2).iter().map(|ms| turn(NEAR, 5_000, *ms)).collect();
        let runoff = scores(Metric::CPU_US, &[("weft", &ours), ("nginx", &theirs)]).unwrap();
        let Figure { median, low, high } = runoff.scores[1].over_ours;
        assert_eq!([low, median, high].map(|over| (over * 1e6).round()), [0.9e6; 3]);
    }

    #[test]
    fn a_server_that_does_not_keep_up_with_a_rate_has_errors() {
        let ours = vec![turn(NEAR, 300, 30); 8];
        let mut theirs = ours.clone();
        let errors = |theirs: &[Turn]| {
            scores(Metric::CPU_US, &[("weft", &ours), ("nginx", theirs)]).unwrap().scores[1].errors
        };
        // 100 fall due in 10 ms.
        theirs.iter_mut().take(4).for_each(|turn| turn.unanswered = 101);
        assert_eq!(errors(&theirs), 0.0);
        theirs[4].unanswered = 100;
        assert_eq!(errors(&theirs), 0.0);
        theirs[5].unanswered = 200;
        assert_eq!(errors(&theirs), 604.0);
    }

    #[test]
    fn a_server_that_does_not_answer_is_not_compared() {
        let (ours, theirs) = ([turn(NEAR, 100, 10); 3], [turn(NEAR, 0, 10); 3]);
        assert_eq!(scores(Metric::CPU_US, &[("weft", &ours), ("nginx", &theirs)]), None);
        assert_eq!(scores(Metric::CPU_US, &[("weft", &[][..]), ("nginx", &theirs)]), None);
        assert_eq!(scores(Metric::CPU_US, &[]), None);
    }
}
