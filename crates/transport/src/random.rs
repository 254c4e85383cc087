//! Random bytes of the system.

use ring::rand::{SecureRandom, SystemRandom};

use crate::Error;

pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Error::NoRandomness)?;
    Ok(bytes)
}

/// A fraction of 0 to 1, for jitter. Without random numbers: a half.
pub(crate) fn fraction() -> f64 {
    bytes::<4>().map_or(0.5, |bytes| f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX))
}
