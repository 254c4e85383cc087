//! Parsing and formatting of byte sizes.

const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];

/// Formats with the largest fitting unit.
pub fn show(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// Parses `4096`, `64K`, `512M`, `2GiB`: always powers of 1024. A clap value parser.
pub fn parse(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|character: char| character.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit = unit.to_ascii_lowercase();
    let power = match unit.as_str() {
        "" | "b" => Some(0),
        unit => ["k", "m", "g", "t"]
            .iter()
            .position(|known| *known == unit.strip_suffix("ib").unwrap_or(unit))
            .map(|at| at + 1),
    };
    let (Ok(number), Some(power)) = (number.parse::<u64>(), power) else {
        return Err(format!("invalid size `{text}`; expected a form such as 4096, 64K, 512M or 2G"));
    };
    number.checked_mul(1 << (10 * power)).ok_or_else(|| format!("`{text}` is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_formatted_with_a_fitting_unit() {
        let texts = [0, 1023, 1024, 5 << 40].map(show);
        assert_eq!(texts, ["0 B", "1023 B", "1.0 KiB", "5.0 TiB"]);
    }

    #[test]
    fn sizes_are_parsed() {
        for (text, bytes) in [("0", 0), ("17", 17), ("17B", 17), ("64K", 64 << 10), ("512m", 512 << 20)] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        assert_eq!((parse("2GiB"), parse("1T")), (Ok(2 << 30), Ok(1 << 40)));
        for text in ["", "M", "1.5G", "-1", "1 K", "1X", "1MB", "1iB", "99999999999999999999", "99999999T"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
