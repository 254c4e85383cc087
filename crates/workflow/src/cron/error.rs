//! What can be wrong with a cron expression or its time zone.

use super::EXPRESSION_BYTES_MAX;

/// Why an expression was not taken, and what would be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    #[error("the cron expression has {bytes} bytes; at most {EXPRESSION_BYTES_MAX} are read")]
    TooLong { bytes: usize },
    #[error(
        "a cron expression has five fields (minute hour day-of-month month day-of-week), but `{expression}` has {found}{}",
        if *found == 6 { "; seconds are no part of it, so leave the first field out" } else { "" }
    )]
    FieldCount { expression: String, found: usize },
    #[error("{field}: `{part}` {problem}; allowed are {allowed}")]
    Field { field: &'static str, part: String, problem: String, allowed: &'static str },
    #[error(
        "`{name}` is not known; write @hourly, @daily, @weekly, @monthly, @yearly or five fields{}",
        did_you_mean(suggestion.as_deref())
    )]
    UnknownName { name: String, suggestion: Option<String> },
    #[error(
        "`{expression}` never comes due: none of its months has any of its days; change the day of month or the month"
    )]
    Never { expression: String },
    #[error(
        "`{zone}` is not a time zone; write UTC or an IANA name such as Europe/Berlin{}",
        did_you_mean(suggestion.as_deref())
    )]
    UnknownZone { zone: String, suggestion: Option<String> },
}

impl CronError {
    /// A stable word for the kind of error.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TooLong { .. } => "too_large",
            Self::FieldCount { .. } | Self::Field { .. } | Self::UnknownName { .. } => "invalid_cron",
            Self::Never { .. } => "cron_never_due",
            Self::UnknownZone { .. } => "unknown_time_zone",
        }
    }

    /// What was probably meant.
    pub fn suggestion(&self) -> Option<&str> {
        match self {
            Self::UnknownName { suggestion, .. } | Self::UnknownZone { suggestion, .. } => suggestion.as_deref(),
            Self::TooLong { .. } | Self::FieldCount { .. } | Self::Field { .. } | Self::Never { .. } => None,
        }
    }
}

fn did_you_mean(suggestion: Option<&str>) -> String {
    suggestion.map(|name| format!(". Did you mean `{name}`?")).unwrap_or_default()
}
