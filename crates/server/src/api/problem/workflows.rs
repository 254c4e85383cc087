//! Problems of definitions and schedules.

use ::api::DiagnosticView;
use workflow::Diagnostics;
use workflow::cron::CronError;

use super::{ProblemKind, Refused};

impl Refused {
    /// All problems of a definition or its inputs. The detail is that of the first.
    pub fn diagnosed(kind: ProblemKind, diagnostics: &Diagnostics) -> Self {
        let views: Vec<DiagnosticView> = diagnostics
            .0
            .iter()
            .map(|diagnostic| DiagnosticView {
                code: diagnostic.code.to_owned(),
                field: diagnostic.field.clone(),
                message: diagnostic.message.clone(),
                line: diagnostic.line,
                column: diagnostic.column,
                suggestion: diagnostic.suggestion.clone(),
            })
            .collect();
        let first = views.first();
        let place = first.and_then(|first| first.line).map(|line| format!("line {line}: ")).unwrap_or_default();
        let message = first.map(|first| first.message.as_str()).unwrap_or_default();
        let more = match views.len() + diagnostics.more() {
            0 | 1 => String::new(),
            all => format!(" (and {} more)", all - 1),
        };
        let field = first.map(|first| first.field.clone()).filter(|field| !field.is_empty());
        let detail = format!("{place}{message}{more}");
        Self { diagnostics: views, field, ..Self::detailed(kind, detail) }
    }

    /// An invalid cron expression or time zone.
    pub fn invalid_cron(error: &CronError) -> Self {
        let field = match error {
            CronError::UnknownZone { .. } => "timezone",
            CronError::TooLong { .. }
            | CronError::FieldCount { .. }
            | CronError::Field { .. }
            | CronError::UnknownName { .. }
            | CronError::Never { .. } => "cron",
        };
        Self::detailed(ProblemKind::InvalidSchedule, error.to_string()).at(field)
    }
}
