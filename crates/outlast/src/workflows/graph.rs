//! Graph of a definition, or of a workflow with its states.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use client::workflows::GraphFormat;
use model::id::WorkflowId;

use crate::context::Context;
use crate::exit::{NotFound, Usage};
use crate::{definition, exit, output};

#[derive(Args)]
pub struct Options {
    /// Definition file, `-` for standard input, or a workflow id.
    #[arg(value_name = "FILE|ID")]
    what: String,
    /// Format [default: by the extension of the -o file, else mermaid]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    /// Output file [default: standard output]
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
    let graph = match subject(&options.what)? {
        Subject::File(path) => {
            let plan = definition::open(&path)?;
            match format {
                Format::Svg => workflow::graph::svg(&plan, None),
                Format::Mermaid => workflow::graph::mermaid(&plan),
            }
        }
        Subject::Workflow(id) => {
            let graph = match format {
                Format::Svg => GraphFormat::Svg,
                Format::Mermaid => GraphFormat::Mermaid,
            };
            context.client.workflow_graph(id, graph).await?
        }
    };
    let graph = if graph.ends_with('\n') { graph } else { graph + "\n" };
    match &options.to {
        Some(file) => std::fs::write(file, graph).with_context(|| format!("cannot write {}", file.display()))?,
        None => output::write(graph.as_bytes())?,
    }
    Ok(exit::DONE)
}

#[derive(Debug, PartialEq, Eq)]
enum Subject {
    File(PathBuf),
    Workflow(WorkflowId),
}

/// An existing file, else a workflow.
fn subject(what: &str) -> Result<Subject> {
    let path = Path::new(what);
    if what == "-" || path.exists() {
        return Ok(Subject::File(path.to_owned()));
    }
    let id = what.parse().map(Subject::Workflow);
    id.map_err(|_| NotFound(format!("{what} is neither a file nor a workflow id")).into())
}

fn format(options: &Options) -> Result<Format> {
    let extension = options.to.as_deref().and_then(Path::extension).and_then(|extension| extension.to_str());
    match (options.format, extension) {
        (Some(format), _) => Ok(format),
        (None, Some("svg")) => Ok(Format::Svg),
        (None, Some("mmd" | "mermaid" | "md")) => Ok(Format::Mermaid),
        (None, None) if options.to.is_none() => Ok(Format::Mermaid),
        (None, _) => Err(Usage("unknown file extension; use .svg or .mmd, or set --format".to_owned()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(format_option: Option<Format>, to: Option<&str>) -> Result<Format> {
        format(&Options { what: "x".to_owned(), format: format_option, to: to.map(PathBuf::from) })
    }

    #[test]
    fn the_format_follows_from_the_file_extension() {
        assert_eq!(chosen(None, None).unwrap(), Format::Mermaid);
        assert_eq!(chosen(None, Some("a.svg")).unwrap(), Format::Svg);
        assert_eq!(chosen(None, Some("a.mmd")).unwrap(), Format::Mermaid);
        assert_eq!(chosen(Some(Format::Svg), Some("a.txt")).unwrap(), Format::Svg);
        assert!(chosen(None, Some("a.png")).unwrap_err().is::<Usage>());
    }

    #[test]
    fn neither_a_file_nor_an_id_is_not_found() {
        assert_eq!(subject("wf_0000000000001").unwrap(), Subject::Workflow(WorkflowId(1)));
        assert!(subject("missing.yaml").unwrap_err().is::<NotFound>());
    }
}
