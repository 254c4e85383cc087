//! Check digits and ranges of card, account, social security, phone and passport numbers.

use std::ops::Range;

use super::Candidate;

/// Whether a value is a card number of a known brand with a valid check digit (Luhn). Decimals and parts of longer
/// numbers with dashes are excluded.
pub(super) fn is_card((before, after): (Option<u8>, Option<u8>), value: &[u8]) -> bool {
    let grouped = value.contains(&b'-');
    let is_part = before == Some(b'.') || (grouped && (before == Some(b'-') || after == Some(b'-')));
    let digits: Vec<u8> = digits(value).collect();
    !is_part && has_brand(&digits) && luhn(&digits)
}

fn digits(value: &[u8]) -> impl Iterator<Item = u8> {
    value.iter().filter(|byte| byte.is_ascii_digit()).map(|byte| byte - b'0')
}

fn has_brand(digits: &[u8]) -> bool {
    let prefix = |count: usize| digits.iter().take(count).fold(0_u32, |number, &digit| number * 10 + u32::from(digit));
    let length = digits.len();
    let (two, three, four) = (prefix(2), prefix(3), prefix(4));
    let visa = prefix(1) == 4 && matches!(length, 13 | 16 | 19);
    let mastercard = (matches!(two, 51..=55) || matches!(four, 2221..=2720)) && length == 16;
    let american_express = matches!(two, 34 | 37) && length == 15;
    let discover = (four == 6011 || two == 65 || matches!(three, 644..=649)) && matches!(length, 16..=19);
    let diners = (matches!(two, 36 | 38 | 39) || matches!(three, 300..=305)) && length == 14;
    let jcb = matches!(four, 3528..=3589) && matches!(length, 16..=19);
    let union_pay = two == 62 && matches!(length, 16..=19);
    visa || mastercard || american_express || discover || diners || jcb || union_pay
}

fn luhn(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(index, &digit)| match (index % 2, u32::from(digit)) {
            (0, digit) => digit,
            (_, digit) if digit > 4 => digit * 2 - 9,
            (_, digit) => digit * 2,
        })
        .sum();
    let all_equal = digits.windows(2).all(|pair| pair[0] == pair[1]);
    sum.is_multiple_of(10) && !all_equal
}

/// Whether a value of the form `123-45-6789` is in the issued ranges.
pub(super) fn is_social_security(value: &[u8]) -> bool {
    let number =
        |range: Range<usize>| digits(&value[range]).fold(0_u32, |number, digit| number * 10 + u32::from(digit));
    let (area, group, serial) = (number(0..3), number(4..6), number(7..11));
    !matches!(area, 0 | 666 | 900..) && group != 0 && serial != 0
}

/// Length of an IBAN by country.
const IBAN_LENGTHS: &[(&str, usize)] = &[
    ("AD", 24),
    ("AE", 23),
    ("AL", 28),
    ("AT", 20),
    ("AZ", 28),
    ("BA", 20),
    ("BE", 16),
    ("BG", 22),
    ("BH", 22),
    ("BI", 27),
    ("BR", 29),
    ("BY", 28),
    ("CH", 21),
    ("CR", 22),
    ("CY", 28),
    ("CZ", 24),
    ("DE", 22),
    ("DJ", 27),
    ("DK", 18),
    ("DO", 28),
    ("EE", 20),
    ("EG", 29),
    ("ES", 24),
    ("FI", 18),
    ("FK", 18),
    ("FO", 18),
    ("FR", 27),
    ("GB", 22),
    ("GE", 22),
    ("GI", 23),
    ("GL", 18),
    ("GR", 27),
    ("GT", 28),
    ("HR", 21),
    ("HU", 28),
    ("IE", 22),
    ("IL", 23),
    ("IQ", 23),
    ("IS", 26),
    ("IT", 27),
    ("JO", 30),
    ("KW", 30),
    ("KZ", 20),
    ("LB", 28),
    ("LC", 32),
    ("LI", 21),
    ("LT", 20),
    ("LU", 20),
    ("LV", 21),
    ("LY", 25),
    ("MC", 27),
    ("MD", 24),
    ("ME", 22),
    ("MK", 19),
    ("MN", 20),
    ("MR", 27),
    ("MT", 31),
    ("MU", 30),
    ("NI", 28),
    ("NL", 18),
    ("NO", 15),
    ("OM", 23),
    ("PK", 24),
    ("PL", 28),
    ("PS", 29),
    ("PT", 25),
    ("QA", 29),
    ("RO", 24),
    ("RS", 22),
    ("RU", 33),
    ("SA", 24),
    ("SC", 31),
    ("SD", 18),
    ("SE", 24),
    ("SI", 19),
    ("SK", 24),
    ("SM", 27),
    ("SO", 23),
    ("ST", 25),
    ("SV", 28),
    ("TL", 23),
    ("TN", 24),
    ("TR", 26),
    ("UA", 29),
    ("VA", 22),
    ("VG", 24),
    ("XK", 20),
    ("YE", 30),
];

/// Finds an IBAN with the length of its country and valid check digits (modulo 97). Following groups are left out.
pub(super) fn iban(candidate: &Candidate<'_>) -> Option<Range<usize>> {
    let (before, _) = candidate.neighbours();
    if before.is_some_and(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let value = candidate.value();
    let &(_, length) = IBAN_LENGTHS.iter().find(|(country, _)| value.starts_with(country.as_bytes()))?;
    let (last, _) = value.iter().enumerate().filter(|(_, byte)| **byte != b' ').nth(length - 1)?;
    let end = candidate.value.start + last + 1;
    if candidate.bytes.get(end).is_some_and(u8::is_ascii_alphanumeric) {
        return None;
    }
    let characters: Vec<u8> = value[..=last].iter().copied().filter(|&byte| byte != b' ').collect();
    let rearranged = characters[4..].iter().chain(&characters[..4]);
    let rest = rearranged.fold(0_u32, |rest, &byte| match byte {
        b'0'..=b'9' => (rest * 10 + u32::from(byte - b'0')) % 97,
        // A letter counts as two digits, from 10 for A to 35 for Z.
        _ => (rest * 100 + u32::from(byte - b'A') + 10) % 97,
    });
    (rest == 1).then_some(candidate.value.start..end)
}

const PHONE_DIGITS_MIN: usize = 9;
const PHONE_DIGITS_MAX: usize = 15;

/// Finds a phone number with the number of digits of its country, where that is fixed. Following numbers are left out.
pub(super) fn phone(candidate: &Candidate<'_>) -> Option<Range<usize>> {
    let (before, _) = candidate.neighbours();
    if before.is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'.' | b'/' | b'=' | b'_')) {
        return None;
    }
    let value = candidate.value();
    let digits: Vec<u8> = digits(value).collect();
    let (wanted_min, wanted_max) = match digits.as_slice() {
        [1, area, ..] if *area >= 2 => (11, 11),
        [1, ..] => return None,
        [7, ..] => (11, 11),
        _ => (PHONE_DIGITS_MIN, PHONE_DIGITS_MAX),
    };
    // The longest prefix that ends with a group of digits and has a valid number of digits.
    let ends = (1..=value.len()).rev().filter(|&end| value.get(end).is_none_or(|byte| !byte.is_ascii_digit()));
    let mut counted = ends.map(|end| (end, value[..end].iter().filter(|byte| byte.is_ascii_digit()).count()));
    let (end, _) = counted.find(|(end, count)| value[end - 1] != b' ' && (wanted_min..=wanted_max).contains(count))?;
    Some(candidate.value.start..candidate.value.start + end)
}

/// Whether the second of two lines of 44 characters has valid check digits for number, birth date and expiry date.
pub(super) fn is_passport(value: &[u8]) -> bool {
    let Some(second) = value.len().checked_sub(44).map(|start| &value[start..]) else { return false };
    [(0..9, 9), (13..19, 19), (21..27, 27)].into_iter().all(|(field, check)| {
        let sum: u32 =
            second[field].iter().zip([7, 3, 1].into_iter().cycle()).map(|(&byte, weight)| mrz(byte) * weight).sum();
        second[check].is_ascii_digit() && sum % 10 == mrz(second[check])
    })
}

fn mrz(byte: u8) -> u32 {
    match byte {
        b'0'..=b'9' => u32::from(byte - b'0'),
        b'A'..=b'Z' => u32::from(byte - b'A') + 10,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(value: &str) -> bool {
        is_card((None, None), value.as_bytes())
    }

    fn in_text(text: &str, check: fn(&Candidate<'_>) -> Option<Range<usize>>) -> Option<String> {
        let whole = 0..text.len();
        let candidate = Candidate { bytes: text.as_bytes(), whole: whole.clone(), value: whole, truncated: false };
        check(&candidate).map(|range| text[range].to_string())
    }

    #[test]
    fn cards_of_each_brand_are_recognised() {
        for value in ["4111111111111111", "5555555555554444", "378282246310005", "6011111111111117", "30569309025904"] {
            assert!(card(value), "{value}");
        }
        for value in ["4111111111111112", "1767225600000000000", "0000000000000000", "9111111111111119"] {
            assert!(!card(value), "{value}");
        }
    }

    #[test]
    fn decimals_and_parts_of_numbers_are_not_cards() {
        assert!(!is_card((Some(b'.'), None), b"4111111111111111"));
        assert!(!is_card((Some(b'-'), None), b"4111-1111-1111-1111"));
        assert!(is_card((Some(b'-'), None), b"4111111111111111"));
    }

    #[test]
    fn an_iban_has_the_length_of_its_country() {
        let iban_in = |text| in_text(text, iban);
        assert_eq!(iban_in("DE89370400440532013000").as_deref(), Some("DE89370400440532013000"));
        assert_eq!(iban_in("GB82 WEST 1234 5698 7654 32").as_deref(), Some("GB82 WEST 1234 5698 7654 32"));
        assert_eq!(iban_in("BE68 5390 0754 7034 NEXT").as_deref(), Some("BE68 5390 0754 7034"));
        for text in
            ["DE8937040044053201300", "DE893704004405320130001", "ZZ89370400440532013000", "DE88370400440532013000"]
        {
            assert_eq!(iban_in(text), None, "{text}");
        }
    }

    #[test]
    fn social_security_numbers_are_in_the_issued_ranges() {
        assert!(is_social_security(b"536-22-8726") && is_social_security(b"899-99-9999"));
        for value in ["000-22-8726", "666-22-8726", "900-22-8726", "536-00-8726", "536-22-0000"] {
            assert!(!is_social_security(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn phone_numbers_have_the_number_of_digits_of_their_country() {
        let phone_in = |text| in_text(text, phone);
        assert_eq!(phone_in("+14155552671").as_deref(), Some("+14155552671"));
        assert_eq!(phone_in("+1 (415) 555-2671 2024").as_deref(), Some("+1 (415) 555-2671"));
        assert_eq!(phone_in("+49 30 901820").as_deref(), Some("+49 30 901820"));
        for text in ["+1415555267", "+11155552671", "+49 301", "+4930123456789012"] {
            assert_eq!(phone_in(text), None, "{text}");
        }
    }

    #[test]
    fn phone_numbers_are_found_within_the_digit_limits() {
        let phone_of = |digits: usize| in_text(&format!("+{}", "4".repeat(digits)), phone);
        assert!(phone_of(PHONE_DIGITS_MIN).is_some() && phone_of(PHONE_DIGITS_MAX).is_some());
        assert!(phone_of(PHONE_DIGITS_MIN - 1).is_none() && phone_of(PHONE_DIGITS_MAX + 1).is_none());
    }
}
