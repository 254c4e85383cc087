//! Loading of rule files, and load errors.

use std::fs;

use policy::limits::{
    DIRECTORY_DEPTH_MAX, DIRECTORY_ENTRIES_MAX, FILE_BYTES_MAX, FILES_MAX, RULE_DEPTH_MAX, SET_BYTES_MAX,
};
use policy::{LoadError, Rules};

use crate::support::{decide, directory, echo, job_rules, load, load_error, write};

const DENY: &str = "package outlast.job\ndeny contains {\"rule\": \"d\", \"reason\": \"r\"}\n";

#[test]
fn load_errors_have_file_line_and_column() {
    for (text, expected) in [
        ("deny contains {", "a.rego:2:"),
        ("deny = if", "a.rego:2:8: unexpected keyword `if`"),
        (
            "deny contains {\"rule\": x, \"reason\": \"r\"} if y == 1",
            "a.rego:2:45: use of undefined variable `y` is unsafe",
        ),
        ("deny := true", "a.rego:2:1: `deny` must be a set"),
        ("deny[x] := 1 if { x := 1 }", "`deny` must be a set"),
        ("default deny := false", "`deny` must be a set"),
        ("throttle(x) := x", "`throttle` must be a set"),
        ("denny contains {\"rule\": \"d\", \"reason\": \"r\"}", "a.rego:2:1: `denny` looks like a verdict"),
        ("default_verdict contains \"deny\"", "`default_verdict` must be a string"),
        ("x := 1", "no rule gives a verdict"),
        ("deny contains 1 if foo(1)", "a.rego:2:20: unknown function `foo`"),
        ("deny contains 1 if data.outlast.lib.foo(1)", "unknown function `data.outlast.lib.foo`"),
        ("deny contains 1 if rand.intn(\"a\", 5) == 1", "a.rego:2:20: `rand.intn` is forbidden in rules"),
        ("deny contains 1 if http.send({}).x", "is forbidden in rules"),
        ("deny contains 1 if f(1) with f as rand.intn\nf(x) := x", "is forbidden in rules"),
        ("deny contains sprintf(\"%10000d\", [1])", "more than 3 digits"),
        ("deny contains sprintf(input.topic, [1])", "must be a string literal"),
        ("deny contains 1 if f(1) with f as sprintf\nf(x) := x", "can only be called directly"),
        ("deny contains a\na := b\nb := a", "in a cycle: outlast.job.a → outlast.job.b → outlast.job.a"),
        ("deny contains f(1)\nf(x) := f(x - 1)", "in a cycle"),
        ("deny contains data.outlast.job", "in a cycle"),
    ] {
        let error = load_error(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn a_package_that_is_not_evaluated_is_rejected() {
    for package in ["outlast.jobs", "job", "outlast", "outlast.job.more"] {
        let error =
            load(&[("a.rego", DENY), ("b.rego", &format!("package {package}\nx := 1"))]).unwrap_err().to_string();
        assert!(error.starts_with("b.rego:1:9: `package"), "{error}");
    }
    let error = load(&[("a.rego", "x := 1")]).unwrap_err().to_string();
    assert!(error.starts_with("a.rego:1:1: "), "{error}");
}

#[test]
fn a_directory_without_rules_is_rejected() {
    assert!(matches!(load(&[]).unwrap_err(), LoadError::Empty { .. }));
    assert!(matches!(load(&[("readme.md", "x"), ("a_test.rego", DENY)]).unwrap_err(), LoadError::Empty { .. }));
    let gone = directory(&[]).path().join("gone");
    assert!(matches!(Rules::load(&gone).unwrap_err(), LoadError::Io { .. }));
}

#[test]
fn other_files_and_hidden_ones_are_ignored() {
    let rules = load(&[
        ("b/c.rego", DENY),
        ("b/c_test.rego", "not valid"),
        ("b/c_test.json", "not valid"),
        (".git/x.rego", "not valid"),
        ("x.txt", "not valid"),
    ])
    .unwrap();
    assert_eq!(rules.files(), ["b/c.rego"]);
}

#[test]
fn the_version_depends_on_all_names_and_contents() {
    let version = |files: &[(&str, &str)]| load(files).unwrap().version();
    let first = version(&[("a.rego", DENY), ("d.json", "{}")]);
    assert_eq!(first, version(&[("d.json", "{}"), ("a.rego", DENY), ("a_test.yaml", "[]")]));
    assert_ne!(first, version(&[("b.rego", DENY), ("d.json", "{}")]));
    assert_ne!(first, version(&[("a.rego", &format!("{DENY}#")), ("d.json", "{}")]));
    assert_ne!(first, version(&[("a.rego", DENY), ("d.json", "{ }")]));
}

#[test]
fn a_file_that_is_not_utf8_is_rejected() {
    let directory = directory(&[("a.rego", DENY)]);
    write(directory.path(), "b.rego", b"package outlast.job\n# \xff\n");
    let error = Rules::load(directory.path()).unwrap_err().to_string();
    assert_eq!(error, "`b.rego` is not UTF-8 at byte 22: save it as UTF-8");
}

#[test]
fn data_must_be_an_object_without_conflicts() {
    for (data, expected) in [
        ("[1]", "d.json: data must be a JSON object"),
        ("{", "d.json: invalid JSON"),
        (r#"{"outlast": {}}"#, "is reserved for rules"),
        (r#"{"x": 2}"#, "conflict with"),
    ] {
        let error = load(&[("a.rego", DENY), ("c.json", r#"{"x": 1}"#), ("d.json", data)]).unwrap_err().to_string();
        assert!(error.contains(expected), "{data}: {error}");
    }
}

#[test]
fn an_unreadable_file_is_rejected() {
    let directory = directory(&[("a.rego", DENY)]);
    std::os::unix::fs::symlink("nowhere", directory.path().join("b.rego")).unwrap();
    let error = Rules::load(directory.path()).unwrap_err();
    assert!(error.to_string().contains("b.rego"), "{error}");
    // Root may read any file.
    if !rustix::process::geteuid().is_root() {
        fs::remove_file(directory.path().join("b.rego")).unwrap();
        let closed = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o000);
        fs::set_permissions(directory.path().join("a.rego"), closed).unwrap();
        assert!(matches!(Rules::load(directory.path()).unwrap_err(), LoadError::Io { action: "open", .. }));
    }
}

#[test]
fn links_are_followed_but_cycles_are_rejected() {
    let directory = directory(&[("..data/a.rego", DENY)]);
    let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, directory.path().join(name)).unwrap();
    link("..data/a.rego", "a.rego");
    assert_eq!(Rules::load(directory.path()).unwrap().files(), ["a.rego"]);
    link(".", "cycle");
    assert!(matches!(Rules::load(directory.path()).unwrap_err(), LoadError::TooDeep { .. }));
    link(".", "cycle2");
    assert!(Rules::load(directory.path()).is_err());
    fs::remove_file(directory.path().join("cycle")).unwrap();
    fs::remove_file(directory.path().join("cycle2")).unwrap();
    link("b.rego", "b.rego");
    assert!(matches!(Rules::load(directory.path()).unwrap_err(), LoadError::Io { action: "read the metadata of", .. }));
}

#[test]
fn depth_files_and_entries_are_limited() {
    let deep = |depth: usize| directory(&[(&format!("{}a.rego", "d/".repeat(depth)), DENY)]);
    assert!(Rules::load(deep(DIRECTORY_DEPTH_MAX).path()).is_ok());
    assert!(matches!(Rules::load(deep(DIRECTORY_DEPTH_MAX + 1).path()).unwrap_err(), LoadError::TooDeep { .. }));

    let many = directory(&[("a.rego", DENY)]);
    (1..FILES_MAX).for_each(|number| write(many.path(), &format!("{number}.json"), b"{}"));
    assert_eq!(Rules::load(many.path()).unwrap().files().len(), FILES_MAX);
    write(many.path(), "more.json", b"{}");
    assert!(matches!(Rules::load(many.path()).unwrap_err(), LoadError::TooManyFiles { .. }));

    let crowded = directory(&[("a.rego", DENY)]);
    (1..DIRECTORY_ENTRIES_MAX).for_each(|number| write(crowded.path(), &format!("{number}.txt"), b""));
    assert!(Rules::load(crowded.path()).is_ok());
    write(crowded.path(), "more.txt", b"");
    assert!(matches!(Rules::load(crowded.path()).unwrap_err(), LoadError::TooManyEntries { .. }));
}

#[test]
fn files_are_limited_in_size() {
    let padded = |bytes: usize| {
        let mut text = DENY.to_owned();
        while text.len() < bytes {
            let line = (bytes - text.len()).min(100);
            text.push_str(&"#".repeat(line - 1));
            text.push('\n');
        }
        text
    };
    let rules = load(&[("a.rego", &padded(FILE_BYTES_MAX))]).unwrap();
    assert_eq!(decide(&rules, &echo()).rule, "d");
    assert!(matches!(load(&[("a.rego", &padded(FILE_BYTES_MAX + 1))]).unwrap_err(), LoadError::FileTooLarge { .. }));
}

#[test]
fn a_set_is_limited_in_size() {
    let directory = directory(&[("a.rego", DENY)]);
    let spaces = |bytes: usize| format!("{{{}}}", " ".repeat(bytes - 2));
    let full = SET_BYTES_MAX / FILE_BYTES_MAX - 1;
    (0..full).for_each(|file| write(directory.path(), &format!("{file}.json"), spaces(FILE_BYTES_MAX).as_bytes()));
    write(directory.path(), "last.json", spaces(FILE_BYTES_MAX - DENY.len()).as_bytes());
    assert!(Rules::load(directory.path()).is_ok());
    write(directory.path(), "last.json", spaces(FILE_BYTES_MAX - DENY.len() + 1).as_bytes());
    assert!(matches!(Rules::load(directory.path()).unwrap_err(), LoadError::SetTooLarge));
}

#[test]
fn chains_of_rules_are_limited() {
    let chain = |length: usize| {
        let links: String = (1..length).map(|n| format!("r{n} := r{}\n", n + 1)).collect();
        format!("deny contains {{\"rule\": \"d\", \"reason\": r1}}\n{links}r{length} := \"end\"\n")
    };
    assert_eq!(decide(&job_rules(&chain(RULE_DEPTH_MAX - 1)), &echo()).message.as_deref(), Some("end"));
    assert!(load_error(&chain(RULE_DEPTH_MAX)).contains("a chain of more than 16 rules"));
}

#[test]
fn thousands_of_rules_are_loaded_and_evaluated() {
    let rules: String = (0..5_000)
        .map(|n| format!("deny contains {{\"rule\": \"r{n}\", \"reason\": \"x\"}} if input.topic == \"t{n}\"\n"))
        .collect();
    let mut spec = echo();
    spec.topic = "t4999".to_owned();
    assert_eq!(decide(&job_rules(&rules), &spec).rule, "r4999");
}
