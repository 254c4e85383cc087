//! Time zone lookup, with suggestions for unknown names.

use jiff::tz::{TimeZone, TimeZoneDatabase};

use super::ZONE_BYTES_MAX;
use super::error::CronError;
use crate::diagnostic::closest;

/// Names of the host's own setting. Refused, because they differ between machines.
const HOST_DEPENDENT: [&str; 2] = ["localtime", "posixrules"];

pub(super) fn find(name: &str, zones: &TimeZoneDatabase) -> Result<TimeZone, CronError> {
    let is_name = name.len() <= ZONE_BYTES_MAX && !HOST_DEPENDENT.iter().any(|host| host.eq_ignore_ascii_case(name));
    if is_name
        && let Ok(found) = zones.get(name)
        && !found.is_unknown()
    {
        return Ok(found);
    }
    let suggestion = if name.len() <= ZONE_BYTES_MAX { suggest(name, zones) } else { None };
    Err(CronError::UnknownZone { zone: name.chars().take(ZONE_BYTES_MAX).collect(), suggestion })
}

/// The closest name, or the zone of the closest city if only a city was given.
fn suggest(name: &str, zones: &TimeZoneDatabase) -> Option<String> {
    let name = name.replace(' ', "_");
    let known: Vec<String> = zones.available().map(|zone| zone.to_string()).collect();
    let cities = known.iter().filter_map(|zone| zone.rsplit_once('/').map(|(_, city)| city));
    let known = || known.iter().map(String::as_str);
    if let Some(whole) = closest(&name, known()) {
        return Some(whole.to_owned());
    }
    let city = closest(&name, cities)?;
    known().find(|zone| zone.rsplit_once('/').is_some_and(|(_, last)| last == city)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundled(name: &str) -> Result<TimeZone, CronError> {
        find(name, &TimeZoneDatabase::bundled())
    }

    fn suggestion(name: &str) -> Option<String> {
        bundled(name).unwrap_err().suggestion().map(str::to_owned)
    }

    #[test]
    fn zones_are_found_in_the_bundled_database_and_on_the_host() {
        for name in ["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+5"] {
            assert_eq!(bundled(name).unwrap().iana_name(), Some(name));
            assert_eq!(find(name, jiff::tz::db()).unwrap().iana_name(), Some(name));
        }
        assert_eq!(bundled("europe/berlin").unwrap().iana_name(), Some("Europe/Berlin"));
    }

    #[test]
    fn an_unknown_zone_gets_a_suggestion() {
        assert_eq!(suggestion("Europe/Berln").as_deref(), Some("Europe/Berlin"));
        assert_eq!(suggestion("America/New York").as_deref(), Some("America/New_York"));
        assert_eq!(suggestion("Berlin").as_deref(), Some("Europe/Berlin"));
        assert_eq!(suggestion("kathmandu").as_deref(), Some("Asia/Kathmandu"));
        assert_eq!(suggestion("nowhere at all"), None);
        let message = bundled("Europe/Berln").unwrap_err().to_string();
        assert_eq!(
            message,
            "`Europe/Berln` is not a time zone; write UTC or an IANA name such as Europe/Berlin. Did you mean \
             `Europe/Berlin`?"
        );
    }

    #[test]
    fn invalid_zone_names_are_refused() {
        for name in ["", " ", "localtime", "PosixRules", "Etc/Unknown", "../Europe/Berlin", "/etc/passwd", "+02:00"] {
            assert!(find(name, jiff::tz::db()).is_err(), "{name:?}");
        }
        assert!(bundled(&"x".repeat(ZONE_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn the_longest_existing_name_fits() {
        let longest = TimeZoneDatabase::bundled().available().map(|zone| zone.as_str().len()).max();
        assert_eq!(longest, Some(32));
    }
}
