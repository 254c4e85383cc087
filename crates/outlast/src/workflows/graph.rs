//! A definition, or a workflow with its states, as a drawing.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use client::workflows::Drawing;
use model::id::WorkflowId;

use crate::context::Context;
use crate::exit::{NotFound, Usage};
use crate::{definition, exit, output};

#[derive(Args)]
pub struct Options {
    /// A file with a definition, `-` for standard input, or the id of a workflow.
    #[arg(value_name = "FILE|ID")]
    what: String,
    /// How it is drawn [default: by the ending of the -o file, else mermaid]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    /// Write it to this file.
    #[arg(short = 'o', value_name = "FILE")]
    to: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Svg,
    Mermaid,
}

pub async fn run(options: &Options, context: &Context) -> Result<u8> {
    let format = format(options)?;
    let drawing = match subject(&options.what)? {
        Subject::File(path) => {
            let plan = definition::open(&path)?;
            match format {
                Format::Svg => workflow::graph::svg(&plan, None),
                Format::Mermaid => workflow::graph::mermaid(&plan),
            }
        }
        Subject::Workflow(id) => {
            let drawing = match format {
                Format::Svg => Drawing::Svg,
                Format::Mermaid => Drawing::Mermaid,
            };
            context.client.workflow_graph(id, drawing).await?
        }
    };
    let drawing = if drawing.ends_with('\n') { drawing } else { drawing + "\n" };
    match &options.to {
        Some(file) => std::fs::write(file, drawing).with_context(|| format!("cannot write {}", file.display()))?,
        None => output::write(drawing.as_bytes())?,
    }
    Ok(exit::DONE)
}

#[derive(Debug, PartialEq, Eq)]
enum Subject {
    File(PathBuf),
    Workflow(WorkflowId),
}

/// A file if there is one of that name, else a workflow.
fn subject(what: &str) -> Result<Subject> {
    let path = Path::new(what);
    if what == "-" || path.exists() {
        return Ok(Subject::File(path.to_owned()));
    }
    let id = what.parse().map(Subject::Workflow);
    id.map_err(|_| NotFound(format!("there is no file {what}, and it is not the id of a workflow")).into())
}

fn format(options: &Options) -> Result<Format> {
    let ending = options.to.as_deref().and_then(Path::extension).and_then(|ending| ending.to_str());
    match (options.format, ending) {
        (Some(format), _) => Ok(format),
        (None, Some("svg")) => Ok(Format::Svg),
        (None, Some("mmd" | "mermaid" | "md")) => Ok(Format::Mermaid),
        (None, None) if options.to.is_none() => Ok(Format::Mermaid),
        (None, _) => {
            Err(Usage("the ending of the file is neither .svg nor .mmd; --format says what it is".to_owned()).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(format_option: Option<Format>, to: Option<&str>) -> Result<Format> {
        format(&Options { what: "x".to_owned(), format: format_option, to: to.map(PathBuf::from) })
    }

    #[test]
    fn the_ending_of_the_file_says_how_it_is_drawn() {
        assert_eq!(chosen(None, None).unwrap(), Format::Mermaid);
        assert_eq!(chosen(None, Some("a.svg")).unwrap(), Format::Svg);
        assert_eq!(chosen(None, Some("a.mmd")).unwrap(), Format::Mermaid);
        assert_eq!(chosen(Some(Format::Svg), Some("a.txt")).unwrap(), Format::Svg);
        assert!(chosen(None, Some("a.png")).unwrap_err().is::<Usage>());
    }

    #[test]
    fn what_is_neither_a_file_nor_an_id_is_not_found() {
        assert_eq!(subject("wf_0000000000001").unwrap(), Subject::Workflow(WorkflowId(1)));
        assert!(subject("missing.yaml").unwrap_err().is::<NotFound>());
    }
}
