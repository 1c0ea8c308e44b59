//! Pseudo-random numbers, the same for the same seed.

/// SplitMix64: any seed is a good one.
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 up to `bound`, which is left out.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// One time in `times`.
    pub(super) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(super) fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// Mostly small, now and then as large as `most`.
    pub(super) fn size(&mut self, most: usize) -> usize {
        match self.below(8) {
            0 => 0,
            1..=4 => self.below(most.min(40) + 1),
            5 | 6 => self.below(most.min(2_000) + 1),
            _ => self.below(most + 1),
        }
    }

    pub(super) fn bytes(&mut self, count: usize) -> Vec<u8> {
        const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789-";
        let start = self.below(LETTERS.len());
        let mut bytes = LETTERS[start..].to_vec();
        bytes.extend_from_slice(&LETTERS.repeat(count / LETTERS.len() + 1));
        bytes.truncate(count);
        bytes
    }
}
