//! Errors in a cron expression or its time zone.

use super::EXPRESSION_BYTES_MAX;

/// An invalid cron expression or time zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    #[error("the cron expression has {bytes} bytes; at most {EXPRESSION_BYTES_MAX} are allowed")]
    TooLong { bytes: usize },
    #[error(
        "a cron expression has five fields (minute hour day-of-month month day-of-week), but `{expression}` has {found}{}",
        if *found == 6 { "; seconds are not supported, so remove the first field" } else { "" }
    )]
    FieldCount { expression: String, found: usize },
    #[error("{field}: `{part}` {problem}; allowed: {allowed}")]
    Field { field: &'static str, part: String, problem: String, allowed: &'static str },
    #[error(
        "unknown name `{name}`; write @hourly, @daily, @weekly, @monthly, @yearly or five fields{}",
        did_you_mean(suggestion.as_deref())
    )]
    UnknownName { name: String, suggestion: Option<String> },
    #[error(
        "`{expression}` is never due: none of its months has any of its days; change the day of month or the month"
    )]
    Never { expression: String },
    #[error(
        "`{zone}` is not a time zone; write UTC or an IANA name such as Europe/Berlin{}",
        did_you_mean(suggestion.as_deref())
    )]
    UnknownZone { zone: String, suggestion: Option<String> },
}

impl CronError {
    /// Stable error code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TooLong { .. } => "too_large",
            Self::FieldCount { .. } | Self::Field { .. } | Self::UnknownName { .. } => "invalid_cron",
            Self::Never { .. } => "cron_never_due",
            Self::UnknownZone { .. } => "unknown_time_zone",
        }
    }

    /// A similar valid name.
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
