//! Schedule files.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use api::ScheduleStart;
use serde::Deserialize;
use serde_json::{Map, Value};
use workflow::Plan;
use workflow::cron::{Cron, CronError};

use crate::definition::{self, Data, InvalidDefinition, Located, display_name};
use crate::exit::Usage;
use crate::{duration, ids, run};

/// Fields of a schedule file except `workflow`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScheduleFields {
    name: String,
    cron: String,
    timezone: Option<String>,
    #[serde(default)]
    inputs: Map<String, Value>,
    queue: Option<String>,
    tenant: Option<String>,
    #[serde(default)]
    catch_up: model::workflow::CatchUp,
    #[serde(default)]
    overlap: model::workflow::Overlap,
    jitter: Option<String>,
    #[serde(default)]
    paused: bool,
}

/// Reads and validates a schedule file.
pub fn read(path: &Path) -> Result<ScheduleStart> {
    let file = display_name(path);
    let mut document = Located::parse(&definition::read(path)?, &file)?;
    let original = document.clone();
    let invalid = |code: &str, field: &str, message: String| {
        anyhow::Error::from(InvalidDefinition::one(&file, code, field, message, original.position_of(field)))
    };
    let Data::Map(fields) = &mut document.data else {
        return Err(invalid("wrong_type", "", "a schedule is an object with `name`, `cron` and `workflow`".to_owned()));
    };
    let Some(at) = fields.iter().position(|(name, _)| name == "workflow") else {
        return Err(invalid("missing_field", "workflow", "missing: a file or an inline definition".to_owned()));
    };
    let (_, definition) = fields.remove(at);
    let plan = plan(definition, path)?;
    let settings: ScheduleFields = serde_path_to_error::deserialize(document.value()?).map_err(|error| {
        let field = error.path().to_string();
        let field = if field == "." { String::new() } else { field };
        invalid("invalid_value", &field, error.into_inner().to_string())
    })?;
    let zone = settings.timezone.as_deref().unwrap_or("UTC");
    Cron::parse(&settings.cron, zone).map_err(|error| {
        let field = if matches!(error, CronError::UnknownZone { .. }) { "timezone" } else { "cron" };
        invalid("invalid_value", field, error.to_string())
    })?;
    let jitter = settings.jitter.as_deref().map(duration::parse).transpose();
    let jitter = jitter.map_err(|error| invalid("invalid_value", "jitter", error))?.unwrap_or_default();
    if let Err(found) = plan.bind(&settings.inputs) {
        return Err(Usage(format!("the inputs in {file} do not match the inputs of {}\n{found}", plan.name)).into());
    }
    Ok(ScheduleStart {
        name: settings.name,
        cron: settings.cron,
        timezone: settings.timezone,
        definition: Some(run::source(&plan)?),
        yaml: None,
        inputs: Some(settings.inputs),
        queue: settings.queue.as_deref().map(ids::queue).transpose()?,
        tenant: settings.tenant,
        catch_up: settings.catch_up,
        overlap: settings.overlap,
        jitter_ms: u64::try_from(jitter.as_millis()).unwrap_or(u64::MAX),
        paused: settings.paused,
    })
}

/// A string is the path of a file relative to this one.
fn plan(definition: Located, path: &Path) -> Result<Arc<Plan>> {
    match definition.text() {
        Some(name) => definition::open(&definition::resolve_relative(path, name)),
        None => definition::within(definition, path, "workflow"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::exit::NotFound;

    fn read_text(text: &str) -> Result<ScheduleStart> {
        let directory = tempfile::tempdir().unwrap();
        fs::write(
            directory.path().join("report.yaml"),
            "name: report\ninputs: {days: integer}\ntasks: {a: {run: 'true'}}\n",
        )
        .unwrap();
        let file = directory.path().join("nightly.yaml");
        fs::write(&file, text).unwrap();
        read(&file)
    }

    #[test]
    fn a_schedule_has_a_file_or_an_inline_definition() {
        let schedule = read_text(
            "name: nightly\ncron: 30 2 * * *\ntimezone: Europe/Berlin\nworkflow: ./report.yaml\njitter: 30s\n\
                inputs: {days: 1}\noverlap: replace\n",
        )
        .unwrap();
        assert_eq!((schedule.name.as_str(), schedule.jitter_ms), ("nightly", 30_000));
        assert!(schedule.definition.unwrap().as_str().contains("\"report\""));
        assert_eq!(schedule.overlap, model::workflow::Overlap::Replace);
        let schedule =
            read_text("name: n\ncron: '@daily'\nworkflow:\n  name: own\n  tasks:\n    a: {run: 'true'}\n").unwrap();
        assert!(schedule.definition.unwrap().as_str().contains("\"own\""));
    }

    #[test]
    fn errors_are_reported_with_their_position() {
        let own = "workflow:\n  name: own\n  tasks:\n    a: {run: 'true'}\n";
        for (text, place) in [
            (format!("name: n\ncron: 61 * * * *\n{own}"), "nightly.yaml:2:7: cron: "),
            (format!("name: n\ncron: '@daily'\ntimezone: Europe/Berln\n{own}"), "nightly.yaml:3:11: timezone: "),
            (format!("name: n\ncron: '@daily'\njitter: 30\n{own}"), "nightly.yaml:3:9: jitter: "),
            (format!("name: n\ncron: '@daily'\n{own}croon: x\n"), "nightly.yaml:7:8: croon: "),
            ("name: n\ncron: '@daily'\n".to_owned(), "nightly.yaml:1:1: workflow: "),
            (
                "name: n\ncron: '@daily'\nworkflow:\n  name: own\n  tasks:\n    a: {needs: [b], run: 'true'}\n"
                    .to_owned(),
                "nightly.yaml:6:17: workflow.tasks.a.needs[0]: ",
            ),
            ("[1]".to_owned(), "nightly.yaml:1:1: "),
        ] {
            let error = read_text(&text).unwrap_err();
            assert!(error.is::<InvalidDefinition>(), "{text}: {error}");
            assert!(error.to_string().contains(place), "{text}: {error}");
        }
        let missing = read_text("name: n\ncron: '@daily'\nworkflow: ./other.yaml\n").unwrap_err();
        assert!(missing.is::<NotFound>(), "{missing}");
        let inputs = read_text("name: n\ncron: '@daily'\nworkflow: ./report.yaml\n").unwrap_err();
        assert!(inputs.is::<Usage>() && inputs.to_string().contains("days"), "{inputs}");
    }
}
