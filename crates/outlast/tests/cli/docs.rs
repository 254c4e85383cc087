//! Runs the examples of the documentation unmodified.
//!
//! In a `console` block, lines that begin with `$ ` are commands and the others their output; `…` matches anything.

use std::path::{Path, PathBuf};

use crate::support::{Server, finish, run_alone};

const SEPARATOR: &str = "--- end of output ---";

/// A command and its expected output.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Example {
    pub command: String,
    pub output: Vec<String>,
}

/// The examples of each `console` block.
pub fn blocks(text: &str) -> Vec<Vec<Example>> {
    let mut blocks = Vec::new();
    let mut open: Option<Vec<Example>> = None;
    for line in text.lines() {
        match (&mut open, line) {
            (None, "```console") => open = Some(Vec::new()),
            (Some(_), "```") => blocks.extend(open.take()),
            (Some(examples), line) => match (line.strip_prefix("$ "), examples.last_mut()) {
                (Some(command), _) => examples.push(Example { command: command.to_owned(), output: Vec::new() }),
                (None, Some(example)) => example.output.push(line.to_owned()),
                (None, None) => panic!("output before the first command: {line}"),
            },
            (None, _) => {}
        }
    }
    assert!(open.is_none(), "a block is not closed");
    blocks
}

/// Whether `text` matches `pattern`, where `…` matches anything.
pub fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Runs the commands of a block in one shell and compares their output.
pub fn run(url: &str, directory: &Path, examples: &[Example]) {
    let script: String = examples.iter().map(|example| format!("{}\necho '{SEPARATOR}'\n", example.command)).collect();
    let binary = Path::new(env!("CARGO_BIN_EXE_outlast"));
    let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut shell = std::process::Command::new("sh");
    shell.args(["-eu", "-c", &script]).env("PATH", path).env("OUTLAST_SERVER", url);
    shell.current_dir(directory).stdout(std::process::Stdio::piped());
    let ran = finish(shell.stderr(std::process::Stdio::piped()).spawn().unwrap()).expect(0);
    let outputs: Vec<&str> = ran.stdout.split(&format!("{SEPARATOR}\n")).collect();
    for (example, output) in examples.iter().zip(outputs) {
        let lines: Vec<&str> = output.lines().collect();
        let same = lines.len() == example.output.len()
            && example.output.iter().zip(&lines).all(|(pattern, line)| matches(pattern, line));
        assert!(same, "{}\nprinted {lines:?}\nnot {:?}", example.command, example.output);
    }
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub fn page(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap()
}

fn examples_work(page_name: &str, at_least: usize) {
    let blocks = blocks(&page(page_name));
    assert!(blocks.len() >= at_least, "{page_name} has too few examples");
    let server = Server::start();
    // Some examples refer to files of the repository.
    std::os::unix::fs::symlink(root().join("examples"), server.directory.path().join("examples")).unwrap();
    for block in &blocks {
        run(&server.url, server.directory.path(), block);
    }
}

#[test]
fn the_examples_of_the_readme_work_as_written() {
    examples_work("README.md", 8);
}

#[test]
fn the_workflows_of_the_readme_are_valid() {
    let page = page("README.md");
    let blocks: Vec<&str> = page.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(!blocks.is_empty());
    let directory = tempfile::tempdir().unwrap();
    for block in blocks {
        let file = directory.path().join("flow.yaml");
        std::fs::write(&file, block).unwrap();
        run_alone(["workflows", "validate", file.to_str().unwrap()]).expect(0);
    }
}

#[test]
fn the_examples_of_the_docs_work_as_written() {
    examples_work("docs/concepts.md", 1);
    examples_work("docs/operations.md", 2);
}

#[test]
fn the_settings_in_the_docs_are_the_defaults() {
    let page = page("docs/operations.md");
    let mut examples = page.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let read = |yaml: &str| {
        let file = directory.path().join("outlast.yaml");
        std::fs::write(&file, yaml).unwrap();
        server::Options::from_file(&file).unwrap()
    };
    let yaml = examples.next().unwrap();
    let documented = read(yaml);
    // The others are valid settings.
    assert_eq!(examples.map(read).count(), 3);
    assert_eq!(format!("{documented:?}"), format!("{:?}", server::Options::default()));
    // All settings are documented in field order, except those that cannot be set in a file.
    let names = |text: &str| -> Vec<String> {
        let fields = text.lines().filter_map(|line| Some(line.split_once(": ")?.0.trim().to_owned()));
        fields.filter(|name| !["spawner_program", "store_wrapper"].contains(&name.as_str())).collect()
    };
    assert_eq!(names(yaml), names(&format!("{:#?}", server::Options::default())));
}

/// `OUTLAST_BUILD_EXAMPLES=1` rebuilds the component after a change of its source.
#[test]
fn the_example_component_matches_its_source() {
    let examples = root().join("examples");
    let built = wat::parse_file(examples.join("hello.wat")).unwrap_or_else(|error| panic!("{error}"));
    let binary = examples.join("hello.wasm");
    if std::env::var_os("OUTLAST_BUILD_EXAMPLES").is_some() {
        std::fs::write(&binary, &built).unwrap();
    }
    assert!(
        std::fs::read(&binary).unwrap() == built,
        "hello.wasm is out of date; rebuild it with OUTLAST_BUILD_EXAMPLES=1"
    );
}

#[test]
fn an_ellipsis_matches_anything() {
    assert!(matches("a…c", "abbbc") && matches("…", "") && matches("a…b…c", "a1b2c") && matches("x", "x"));
    assert!(!matches("a…c", "ab") && !matches("x", "xy") && !matches("a…b…c", "ac"));
}
