//! Embeds referenced files: `workflow: ./other.yaml` becomes a definition under `workflows`, as the server requires.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde_json::value::RawValue;
use workflow::limits::DEFINITION_BYTES_MAX;
use workflow::{Plan, Source};

use super::{Data, InvalidDefinition, Located, display_name, read, source};
use crate::exit::NotFound;

const EXTENSIONS: [&str; 3] = [".yaml", ".yml", ".json"];

/// Compiles a file and the files it refers to, each once.
#[derive(Default)]
pub struct Loader {
    /// Files being loaded, each referred to by the previous one.
    open: Vec<PathBuf>,
    done: BTreeMap<PathBuf, Arc<Plan>>,
}

impl Loader {
    pub fn load(&mut self, path: &Path) -> Result<Arc<Plan>> {
        let text = read(path)?;
        let file = display_name(path);
        // Most definitions refer to no file and are compiled unmodified.
        if !EXTENSIONS.iter().any(|ending| text.contains(ending)) {
            return workflow::compile(source(path, &text))
                .map_err(|found| InvalidDefinition::new(&file, &found).into());
        }
        let document = Located::parse(&text, &file)?;
        if !refers_to_files(&document) {
            return workflow::compile(source(path, &text))
                .map_err(|found| InvalidDefinition::new(&file, &found).into());
        }
        let canonical = canonical_path(path)?;
        self.open.push(canonical);
        let plan = self.complete(document, path, "");
        self.open.pop();
        plan
    }

    /// Compiles a definition at the field `at` of the file `path`.
    pub fn complete(&mut self, document: Located, path: &Path, at: &str) -> Result<Arc<Plan>> {
        let file = display_name(path);
        let mut definition = document.clone();
        self.embed(&mut definition, path, at)?;
        let json = serde_json::to_vec(&definition).context("cannot encode the definition as JSON")?;
        workflow::compile(Source::Json(&json))
            .map_err(|found| InvalidDefinition::within(&file, &found, &document, at).into())
    }

    /// Adds the files that the tasks of `definition` refer to under its `workflows`.
    fn embed(&mut self, definition: &mut Located, path: &Path, at: &str) -> Result<()> {
        let mut names: Vec<String> = definition
            .get("workflows")
            .map(|own| own.fields().iter().map(|(name, _)| name.clone()).collect())
            .unwrap_or_default();
        for (name, nested) in definition.get_mut("workflows").map(Located::fields_mut).unwrap_or_default() {
            self.embed(nested, path, &join_field(at, &format!("workflows.{name}")))?;
        }
        let own = names.clone();
        let mut found: BTreeMap<PathBuf, String> = BTreeMap::new();
        let mut embedded = Vec::new();
        let mut bytes = 0;
        for (task, body) in definition.get_mut("tasks").map(Located::fields_mut).unwrap_or_default() {
            let Some(reference) = body.get_mut("workflow").filter(|reference| is_file(reference, &own)) else {
                continue;
            };
            let site = FileReference {
                file: display_name(path),
                field: join_field(at, &format!("tasks.{task}.workflow")),
                position: (reference.line, reference.column),
            };
            let target = resolve_relative(path, reference.text().unwrap_or_default());
            let known = site.map_not_found(canonical_path(&target))?;
            if let Some(name) = found.get(&known) {
                reference.data = Data::Text(name.clone());
                continue;
            }
            let plan = self.load_referenced(&target, &known, &site)?;
            bytes += plan.source.len();
            if bytes > DEFINITION_BYTES_MAX {
                let max = DEFINITION_BYTES_MAX >> 20;
                return Err(site
                    .refuse("too_large", format!("with this file the definition exceeds {max} MiB"))
                    .into());
            }
            let name = unique_name(&target, &names);
            names.push(name.clone());
            found.insert(known, name.clone());
            reference.data = Data::Text(name.clone());
            embedded.push((name, raw(&plan)?));
        }
        if !embedded.is_empty() {
            add_workflows(definition, embedded);
        }
        Ok(())
    }

    /// Compiled plan of a referenced file.
    fn load_referenced(&mut self, target: &Path, known: &Path, site: &FileReference) -> Result<Arc<Plan>> {
        if let Some(at) = self.open.iter().position(|open| open == known) {
            let cycle = self.open[at..].iter().map(PathBuf::as_path).chain([known]);
            let cycle: Vec<String> = cycle.map(file_name).collect();
            let message = format!("workflow files form a cycle: {}", cycle.join(" → "));
            return Err(site.refuse("recursion", message).into());
        }
        if let Some(plan) = self.done.get(known) {
            return Ok(plan.clone());
        }
        let plan = self.load(target)?;
        self.done.insert(known.to_owned(), plan.clone());
        Ok(plan)
    }
}

/// Position of a reference to another file.
struct FileReference {
    file: String,
    field: String,
    position: (u32, u32),
}

impl FileReference {
    fn refuse(&self, code: &str, message: String) -> InvalidDefinition {
        InvalidDefinition::one(&self.file, code, &self.field, message, Some(self.position))
    }

    /// Reports a missing file as an error of the referring file.
    fn map_not_found<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| match error.downcast::<NotFound>() {
            Ok(NotFound(message)) => self.refuse("unknown_workflow", message).into(),
            Err(error) => error,
        })
    }
}

/// Path of a file referenced by `path`.
pub fn resolve_relative(path: &Path, name: &str) -> PathBuf {
    // Normalises `a/./b` to `a/b`.
    path.parent().unwrap_or(Path::new("")).join(name).components().collect()
}

fn refers_to_files(definition: &Located) -> bool {
    let names: Vec<String> = definition
        .get("workflows")
        .map(Located::fields)
        .unwrap_or_default()
        .iter()
        .map(|(name, _)| name.clone())
        .collect();
    let tasks = definition.get("tasks").map(Located::fields).unwrap_or_default();
    let nested = definition.get("workflows").map(Located::fields).unwrap_or_default();
    tasks.iter().any(|(_, task)| task.get("workflow").is_some_and(|reference| is_file(reference, &names)))
        || nested.iter().any(|(_, nested)| refers_to_files(nested))
}

/// Whether a task's `workflow` is a file. `names` are the definitions under `workflows`.
fn is_file(reference: &Located, names: &[String]) -> bool {
    let is_known = |text: &str| names.iter().any(|name| name == text);
    reference.text().is_some_and(|text| EXTENSIONS.iter().any(|ending| text.ends_with(ending)) && !is_known(text))
}

/// Canonical path of a file.
fn canonical_path(path: &Path) -> Result<PathBuf> {
    if path == Path::new("-") {
        return Ok(path.to_owned());
    }
    path.canonicalize().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => NotFound(format!("no such file: {}", path.display())).into(),
        _ => anyhow::Error::from(error).context(format!("cannot read {}", path.display())),
    })
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| display_name(path), |name| name.to_string_lossy().into_owned())
}

/// Valid workflow name derived from the file name, different from all `taken` ones.
fn unique_name(path: &Path, taken: &[String]) -> String {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let plain =
        |character: char| if character.is_ascii_alphanumeric() || "-_.".contains(character) { character } else { '-' };
    // Leaves room for a numeric suffix.
    let stem: String = stem.chars().map(plain).take(workflow::limits::NAME_BYTES_MAX - 8).collect();
    let names = std::iter::once(stem.clone()).chain((2..).map(|number: u32| format!("{stem}-{number}")));
    names.into_iter().find(|name| !taken.contains(name)).unwrap_or(stem)
}

fn raw(plan: &Plan) -> Result<Located> {
    let json = std::str::from_utf8(&plan.source).context("a compiled definition is not UTF-8")?;
    let json = RawValue::from_string(json.to_owned()).context("a compiled definition is not JSON")?;
    Ok(Located::new(Data::Raw(json)))
}

fn add_workflows(definition: &mut Located, more: Vec<(String, Located)>) {
    let Data::Map(fields) = &mut definition.data else { return };
    let own = fields.iter_mut().find(|(name, _)| name == "workflows").map(|(_, value)| &mut value.data);
    match own {
        Some(Data::Map(own)) => own.extend(more),
        // Not an object; the compiler reports that.
        Some(_) => {}
        None => fields.push(("workflows".to_owned(), Located::new(Data::Map(more)))),
    }
}

fn join_field(at: &str, field: &str) -> String {
    if at.is_empty() { field.to_owned() } else { format!("{at}.{field}") }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::Value;
    use tempfile::TempDir;

    use super::*;

    const LEAF: &str = "name: leaf\ninputs: {n: integer}\ntasks:\n  one: {run: 'echo ${inputs.n}'}\n";

    fn files(files: &[(&str, &str)]) -> TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        directory
    }

    fn load(directory: &TempDir, name: &str) -> Result<Arc<Plan>> {
        Loader::default().load(&directory.path().join(name))
    }

    fn sent(plan: &Plan) -> Value {
        serde_json::from_slice(&plan.source).unwrap()
    }

    fn error_text(directory: &TempDir, name: &str) -> String {
        let error = load(directory, name).unwrap_err();
        assert!(error.is::<InvalidDefinition>(), "{error}");
        error.to_string().replace(&format!("{}/", directory.path().display()), "")
    }

    #[test]
    fn referenced_files_are_embedded() {
        let middle = "name: middle\ntasks:\n  inner: {workflow: ../leaf.yaml, with: {n: 1}}\n";
        let top = "\
name: top
tasks:
  a: {workflow: ./sub/middle.yml}
  b: {workflow: leaf.yaml, with: {n: 2}}
  c: {workflow: ./leaf.yaml, with: {n: 3}}
";
        let directory = files(&[("top.yaml", top), ("sub/middle.yml", middle), ("leaf.yaml", LEAF)]);
        let sent = sent(&load(&directory, "top.yaml").unwrap());
        assert_eq!(sent["tasks"]["a"]["workflow"], "middle");
        assert_eq!(
            (&sent["tasks"]["b"]["workflow"], &sent["tasks"]["c"]["workflow"]),
            (&"leaf".into(), &"leaf".into())
        );
        assert_eq!(sent["workflows"]["middle"]["workflows"]["leaf"]["name"], "leaf");
        assert_eq!(sent["workflows"].as_object().unwrap().len(), 2, "a file referenced twice is embedded once");
    }

    #[test]
    fn inline_names_take_precedence_over_files_and_stay_unique() {
        let own = "{inputs: {n: integer}, name: own, tasks: {x: {run: 'true'}}}";
        let top = format!(
            "\
name: top
workflows: {{leaf: {own}, own.yaml: {own}}}
tasks:
  a: {{workflow: ./leaf.yaml, with: {{n: 1}}}}
  b: {{workflow: leaf, with: {{n: 1}}}}
  c: {{workflow: own.yaml, with: {{n: 1}}}}
"
        );
        let directory = files(&[("top.yaml", &top), ("leaf.yaml", LEAF)]);
        let sent = sent(&load(&directory, "top.yaml").unwrap());
        assert_eq!(sent["tasks"]["a"]["workflow"], "leaf-2");
        assert_eq!(
            (&sent["workflows"]["leaf"]["name"], &sent["workflows"]["leaf-2"]["name"]),
            (&"own".into(), &"leaf".into())
        );
        assert_eq!(sent["tasks"]["c"]["workflow"], "own.yaml");
    }

    #[test]
    fn inline_definitions_can_refer_to_files() {
        let top = "\
name: top
workflows:
  inner:
    name: inner
    tasks:
      a: {workflow: ./leaf.yaml, with: {n: 1}}
tasks:
  t: {workflow: inner}
";
        let directory = files(&[("top.yaml", top), ("leaf.yaml", LEAF)]);
        let sent = sent(&load(&directory, "top.yaml").unwrap());
        assert_eq!(sent["workflows"]["inner"]["workflows"]["leaf"]["name"], "leaf");
    }

    #[test]
    fn cycles_of_files_are_rejected() {
        let to = |name: &str| format!("name: x\ntasks:\n  t: {{workflow: ./{name}}}\n");
        let directory = files(&[
            ("a.yaml", &to("b.yaml")),
            ("b.yaml", &to("c.yaml")),
            ("c.yaml", &to("b.yaml")),
            ("self.yaml", &to("self.yaml")),
        ]);
        insta::assert_snapshot!(error_text(&directory, "a.yaml"), @"
        c.yaml has a problem
        c.yaml:3:17: tasks.t.workflow: workflow files form a cycle: b.yaml → c.yaml → b.yaml
        ");
        insta::assert_snapshot!(error_text(&directory, "self.yaml"), @"
        self.yaml has a problem
        self.yaml:3:17: tasks.t.workflow: workflow files form a cycle: self.yaml → self.yaml
        ");
    }

    #[test]
    fn problems_are_reported_in_the_file_that_has_them() {
        let leaf = "name: leaf\ntasks:\n  one: {run: 'true'}\n  two:\n    needs: [on]\n    run: 'true'\n";
        let top = "name: top\ntasks:\n  a:\n    workflow: ./leaf.yaml\n  b:\n    needs: [c]\n    run: 'true'\n";
        let directory = files(&[
            ("bad-leaf.yaml", &top.replace("./leaf", "./broken")),
            ("broken.yaml", leaf),
            ("bad-top.yaml", top),
            ("leaf.yaml", &leaf.replace("[on]", "[one]")),
            ("lost.yaml", "name: x\ntasks:\n  t: {workflow: ./nowhere.yaml}\n"),
        ]);
        insta::assert_snapshot!(error_text(&directory, "bad-leaf.yaml"), @"
        broken.yaml has a problem
        broken.yaml:5:13: tasks.two.needs[0]: there is no task `on`
          help: did you mean `one`?
        ");
        insta::assert_snapshot!(error_text(&directory, "bad-top.yaml"), @"
        bad-top.yaml has a problem
        bad-top.yaml:6:13: tasks.b.needs[0]: there is no task `c`
        ");
        insta::assert_snapshot!(error_text(&directory, "lost.yaml"), @"
        lost.yaml has a problem
        lost.yaml:3:17: tasks.t.workflow: no such file: nowhere.yaml
        ");
    }

    #[test]
    fn a_file_without_references_is_compiled_unmodified() {
        let plain = "name: x\ntasks:\n  t: {needs: [u], run: 'cat a.yaml'}\n";
        let directory = files(&[("plain.yaml", plain)]);
        insta::assert_snapshot!(error_text(&directory, "plain.yaml"), @"
        plain.yaml has a problem
        plain.yaml:3:15: tasks.t.needs[0]: there is no task `u`
        ");
    }

    #[test]
    fn derived_names_are_valid_names() {
        let taken = ["a-b".to_owned(), "a-b-2".to_owned()];
        assert_eq!(unique_name(Path::new("x/a b.yaml"), &taken), "a-b-3");
        let long = unique_name(Path::new(&format!("{}.yaml", "é".repeat(200))), &[]);
        assert!(long.len() <= workflow::limits::NAME_BYTES_MAX, "{long}");
    }
}
