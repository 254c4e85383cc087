//! Draws a plan as a Mermaid flowchart.

use std::fmt::Write;

use super::picture::{Picture, TaskBox, WorkKind};
use super::text::one_line;
use crate::plan::Plan;

/// Draws a plan as the text of a Mermaid flowchart, from left to right.
///
/// Shapes: jobs are boxes, sub-workflows have double sides, switches are rhombi, approvals are hexagons, delays have
/// round ends, and tasks that wait for a signal are parallelograms. Compensations are attached by dotted lines.
pub fn mermaid(plan: &Plan) -> String {
    let picture = Picture::of(plan);
    let mut text = String::from("flowchart LR\n");
    // Writing to a `String` cannot fail.
    let _ = write(&picture, &mut text);
    text
}

fn write(picture: &Picture<'_>, out: &mut String) -> std::fmt::Result {
    if picture.epochs.is_empty() {
        for number in 0..picture.boxes.len() {
            write_task(picture, number, "    ", out)?;
        }
    }
    for (epoch, name) in picture.epochs.iter().enumerate() {
        let tasks: Vec<_> = (0..picture.boxes.len()).filter(|task| picture.boxes[*task].epoch == epoch).collect();
        if tasks.is_empty() {
            continue;
        }
        writeln!(out, "    subgraph epoch{epoch}[\"{}\"]", escaped(name))?;
        writeln!(out, "        direction LR")?;
        for number in tasks {
            write_task(picture, number, "        ", out)?;
        }
        writeln!(out, "    end")?;
    }
    for arrow in &picture.arrows {
        match &arrow.case {
            Some(case) => writeln!(out, "    t{} -->|\"{}\"| t{}", arrow.from, escaped(case), arrow.to)?,
            None => writeln!(out, "    t{} --> t{}", arrow.from, arrow.to)?,
        }
    }
    if let Some(note) = picture.omitted_note() {
        writeln!(out, "    note[\"{}\"]", escaped(&note))?;
    }
    write_styles(picture, out)
}

fn write_task(picture: &Picture<'_>, number: usize, indent: &str, out: &mut String) -> std::fmt::Result {
    let task = &picture.boxes[number];
    let (open, close) = shape(task.kind);
    writeln!(out, "{indent}t{number}{open}\"{}\"{close}", label(task))?;
    if task.has_compensation {
        writeln!(out, "{indent}compensation{number}([\"compensate {}\"])", escaped(task.name))?;
        writeln!(out, "{indent}t{number} -.-> compensation{number}")?;
    }
    Ok(())
}

/// Dashed borders for compensations and notes, which are not tasks.
fn write_styles(picture: &Picture<'_>, out: &mut String) -> std::fmt::Result {
    let mut aside: Vec<_> = (0..picture.boxes.len())
        .filter(|task| picture.boxes[*task].has_compensation)
        .map(|task| format!("compensation{task}"))
        .collect();
    if picture.omitted_note().is_some() {
        aside.push("note".to_owned());
    }
    if aside.is_empty() {
        return Ok(());
    }
    writeln!(out, "    classDef aside stroke-dasharray: 4 3")?;
    writeln!(out, "    class {} aside", aside.join(","))
}

fn shape(kind: WorkKind<'_>) -> (&'static str, &'static str) {
    match kind {
        WorkKind::Job => ("[", "]"),
        WorkKind::Workflow { .. } => ("[[", "]]"),
        WorkKind::Delay => ("([", "])"),
        WorkKind::Approval => ("{{", "}}"),
        WorkKind::WaitFor { .. } => ("[/", "/]"),
        WorkKind::Switch => ("{", "}"),
    }
}

/// The name, and details that the shape does not show.
fn label(task: &TaskBox<'_>) -> String {
    let is_shown_by_shape = match task.kind {
        WorkKind::Job | WorkKind::Delay | WorkKind::Approval | WorkKind::Switch => true,
        WorkKind::Workflow { .. } | WorkKind::WaitFor { .. } => false,
    };
    let name = escaped(task.name);
    if is_shown_by_shape && !task.is_repeated && !task.is_conditional {
        return name;
    }
    format!("{name}<br>{}", escaped(&task.detail()))
}

/// Escapes text for a quoted label: characters that are markup in Mermaid or HTML become entities in Mermaid's syntax.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in one_line(text).chars() {
        match character {
            '"' | '#' | '&' | '<' | '>' | '`' | '\\' | ';' | '%' | '$' => {
                let _ = write!(escaped, "#{};", u32::from(character));
            }
            other => escaped.push(other),
        }
    }
    escaped
}
