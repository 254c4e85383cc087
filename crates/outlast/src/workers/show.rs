//! Tables and pages of workers.

use api::{FunctionView, WorkerDetailView, WorkerView};

use crate::paint::{Paint, Tone};
use crate::size;
use crate::table::{Align, Cell, Pairs, Table, shorten};

const FUNCTIONS_WIDTH: usize = 40;

pub fn table(workers: &[WorkerView], paint: Paint) -> String {
    let mut table = Table::new(&[
        ("ID", Align::Left),
        ("NAME", Align::Left),
        ("VERSION", Align::Left),
        ("FILES", Align::Right),
        ("SIZE", Align::Right),
        ("REGISTERED", Align::Left),
        ("FUNCTIONS", Align::Left),
    ]);
    for worker in workers {
        let names: Vec<&str> = worker.functions.iter().map(|function| function.name.as_str()).collect();
        table.row([
            Cell::new(worker.id),
            Cell::new(&worker.name),
            Cell::new(&worker.version),
            Cell::new(worker.files),
            Cell::new(size::show(worker.bytes)),
            Cell::new(worker.registered_at),
            Cell::option((!names.is_empty()).then(|| shorten(&names.join(" "), FUNCTIONS_WIDTH))),
        ]);
    }
    table.render(paint)
}

pub fn page(worker: &WorkerDetailView, paint: Paint) -> String {
    let mut pairs = Pairs::default();
    pairs.add_cell("id", Cell::new(worker.id).tone(Tone::Strong));
    pairs.add("name", &worker.name);
    pairs.add("version", &worker.version);
    pairs.add("registered", worker.registered_at);
    pairs.add("size", size::show(worker.bytes));
    let variables: Vec<String> = worker.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.add_option("environment", (!variables.is_empty()).then(|| variables.join(" ")));
    let mut text = pairs.render(paint);
    if !worker.functions.is_empty() {
        text.push_str(&format!("\n{}", functions(&worker.functions).render(paint)));
    }
    if !worker.files.is_empty() {
        text.push_str(&format!("\n{}", files(worker).render(paint)));
    }
    text
}

fn functions(functions: &[FunctionView]) -> Table {
    let mut table = Table::new(&[("FUNCTION", Align::Left), ("VERSION", Align::Left), ("COMMAND", Align::Left)]);
    for function in functions {
        table.row([Cell::new(&function.name), Cell::new(&function.version), Cell::new(function.command.join(" "))]);
    }
    table
}

fn files(worker: &WorkerDetailView) -> Table {
    let mut table =
        Table::new(&[("FILE", Align::Left), ("KIND", Align::Left), ("SIZE", Align::Right), ("CONTENT", Align::Left)]);
    for (path, file) in &worker.files {
        let kind = match (&file.link, file.executable) {
            (Some(_), _) => "link",
            (None, true) => "program",
            (None, false) => "file",
        };
        let content = file.link.clone().or_else(|| file.blob.map(|blob| blob.to_string()));
        table.row([Cell::new(path), Cell::new(kind), Cell::option(file.bytes.map(size::show)), Cell::option(content)]);
    }
    table
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use api::WorkerFileView;
    use model::blob::{BlobId, WorkerId};
    use model::time::{Millis, Timestamp};

    use super::*;

    fn functions() -> Vec<FunctionView> {
        let command = vec!["bin/resize".to_owned(), "--fast".to_owned()];
        vec![FunctionView { name: "resize".to_owned(), version: "1".to_owned(), command }]
    }

    #[test]
    fn a_list_is_one_line_per_worker() {
        let worker = WorkerView {
            id: WorkerId([0xab; 16]),
            name: "images".to_owned(),
            version: "1".to_owned(),
            functions: functions(),
            files: 2,
            bytes: 2048,
            registered_at: Timestamp(Millis(0)),
        };
        let expected = "\
ID                                  NAME    VERSION  FILES     SIZE  REGISTERED                FUNCTIONS
w_abababababababababababababababab  images  1            2  2.0 KiB  1970-01-01T00:00:00.000Z  resize
";
        assert_eq!(table(&[worker], Paint::NONE), expected);
    }

    #[test]
    fn a_page_has_functions_and_files() {
        let blob = BlobId([0xcd; 32]);
        let file = WorkerFileView { blob: Some(blob), bytes: Some(2048), executable: true, link: None };
        let link = WorkerFileView { link: Some("bin/resize".to_owned()), ..WorkerFileView::default() };
        let worker = WorkerDetailView {
            id: WorkerId([0xab; 16]),
            name: "images".to_owned(),
            version: "1".to_owned(),
            functions: functions(),
            env: BTreeMap::from([("LEVEL".to_owned(), "9".to_owned())]),
            files: BTreeMap::from([("bin/resize".to_owned(), file), ("resize".to_owned(), link)]),
            bytes: 2048,
            registered_at: Timestamp(Millis(0)),
        };
        let text = page(&worker, Paint::NONE);
        for line in [
            "environment  LEVEL=9",
            "resize    1        bin/resize --fast",
            &format!("bin/resize  program  2.0 KiB  {blob}"),
            "resize      link           -  bin/resize",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
    }
}
