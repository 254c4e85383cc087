//! Numbers of bytes as people read them.

const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];

/// In the unit that suits it.
pub fn show(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_a_fitting_unit() {
        let texts = [0, 1023, 1024, 5 << 40].map(show);
        assert_eq!(texts, ["0 B", "1023 B", "1.0 KiB", "5.0 TiB"]);
    }
}
