//! The random number generator: xoshiro256**, seeded with splitmix64. Own code, so that seeds replay on every platform.

/// A probability in units of 1/10,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Rate(pub u32);

impl Rate {
    pub const NEVER: Self = Self(0);
    const OUT_OF: u64 = 10_000;
}

#[derive(Debug, Clone)]
pub struct Rng {
    state: [u64; 4],
}

/// One step of splitmix64. Also used as a hash of a number.
pub fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Rng {
    pub fn new(seed: u64) -> Self {
        let mut number = seed;
        let state = [(); 4].map(|()| {
            number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
            mix(number)
        });
        Self { state }
    }

    pub fn next(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// A number below `limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { self.next() % limit }
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    pub fn chance(&mut self, rate: Rate) -> bool {
        self.below(Rate::OUT_OF) < u64::from(rate.0)
    }

    /// True with probability 1/`count`.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.index(items.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_numbers_and_different_seeds_different_ones() {
        let draw = |seed| {
            let mut rng = Rng::new(seed);
            [(); 8].map(|()| rng.next())
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn rates_match_the_observed_frequency() {
        let mut rng = Rng::new(7);
        let hits = (0..100_000).filter(|_| rng.chance(Rate(2_500))).count();
        assert!((24_000..26_000).contains(&hits), "{hits}");
        assert!((0..1_000).all(|_| !rng.chance(Rate::NEVER)));
    }
}
