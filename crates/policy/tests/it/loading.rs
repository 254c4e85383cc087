//! Which files make a set, and what is wrong with those that do not.

use std::fs;

use policy::limits::{
    DIRECTORY_DEPTH_MAX, DIRECTORY_ENTRIES_MAX, FILE_BYTES_MAX, FILES_MAX, RULE_DEPTH_MAX, SET_BYTES_MAX,
};
use policy::{LoadError, Rules};

use crate::common::{decide, directory, echo, job_rules, load, problem, write};

const DENY: &str = "package outlast.job\ndeny contains {\"rule\": \"d\", \"reason\": \"r\"}\n";

#[test]
fn mistakes_are_named_with_file_line_and_column() {
    for (text, said) in [
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
        ("default_verdict contains \"deny\"", "`default_verdict` must be one text"),
        ("x := 1", "no rule gives a verdict"),
        ("deny contains 1 if foo(1)", "a.rego:2:20: there is no function `foo`"),
        ("deny contains 1 if data.outlast.lib.foo(1)", "there is no function `data.outlast.lib.foo`"),
        ("deny contains 1 if rand.intn(\"a\", 5) == 1", "a.rego:2:20: `rand.intn` has no place in rules"),
        ("deny contains 1 if http.send({}).x", "has no place in rules"),
        ("deny contains 1 if f(1) with f as rand.intn\nf(x) := x", "has no place in rules"),
        ("deny contains sprintf(\"%10000d\", [1])", "more than 3 digits"),
        ("deny contains sprintf(input.topic, [1])", "must be a text that is written out"),
        ("deny contains 1 if f(1) with f as sprintf\nf(x) := x", "can only be called"),
        ("deny contains a\na := b\nb := a", "needs itself never ends: outlast.job.a → outlast.job.b → outlast.job.a"),
        ("deny contains f(1)\nf(x) := f(x - 1)", "never ends"),
        ("deny contains data.outlast.job", "never ends"),
    ] {
        let problem = problem(text);
        assert!(problem.contains(said), "{text}: {problem}");
    }
}

#[test]
fn a_package_that_nobody_asks_is_refused() {
    for package in ["outlast.jobs", "job", "outlast", "outlast.job.more"] {
        let error =
            load(&[("a.rego", DENY), ("b.rego", &format!("package {package}\nx := 1"))]).unwrap_err().to_string();
        assert!(error.starts_with("b.rego:1:9: nobody asks"), "{error}");
    }
    let error = load(&[("a.rego", "x := 1")]).unwrap_err().to_string();
    assert!(error.starts_with("a.rego:1:1: "), "{error}");
}

#[test]
fn a_directory_without_rules_is_refused() {
    assert!(matches!(load(&[]).unwrap_err(), LoadError::Empty { .. }));
    assert!(matches!(load(&[("readme.md", "x"), ("a_test.rego", DENY)]).unwrap_err(), LoadError::Empty { .. }));
    let gone = directory(&[]).path().join("gone");
    assert!(matches!(Rules::load(&gone).unwrap_err(), LoadError::Io { .. }));
}

#[test]
fn files_of_other_kinds_and_hidden_ones_are_left_alone() {
    let rules = load(&[
        ("b/c.rego", DENY),
        ("b/c_test.rego", "nonsense"),
        ("b/c_test.json", "nonsense"),
        (".git/x.rego", "nonsense"),
        ("x.txt", "nonsense"),
    ])
    .unwrap();
    assert_eq!(rules.files(), ["b/c.rego"]);
}

#[test]
fn the_version_is_that_of_all_names_and_contents() {
    let version = |files: &[(&str, &str)]| load(files).unwrap().version();
    let first = version(&[("a.rego", DENY), ("d.json", "{}")]);
    assert_eq!(first, version(&[("d.json", "{}"), ("a.rego", DENY), ("a_test.yaml", "[]")]));
    assert_ne!(first, version(&[("b.rego", DENY), ("d.json", "{}")]));
    assert_ne!(first, version(&[("a.rego", &format!("{DENY}#")), ("d.json", "{}")]));
    assert_ne!(first, version(&[("a.rego", DENY), ("d.json", "{ }")]));
}

#[test]
fn what_is_no_text_is_refused() {
    let directory = directory(&[("a.rego", DENY)]);
    write(directory.path(), "b.rego", b"package outlast.job\n# \xff\n");
    let error = Rules::load(directory.path()).unwrap_err().to_string();
    assert_eq!(error, "`b.rego` is not UTF-8 at byte 22: save it as UTF-8");
}

#[test]
fn data_must_be_an_object_that_contradicts_nothing() {
    for (data, said) in [
        ("[1]", "d.json: data must be a JSON object"),
        ("{", "d.json: it is not JSON"),
        (r#"{"outlast": {}}"#, "belongs to the rules"),
        (r#"{"x": 2}"#, "contradicts"),
    ] {
        let error = load(&[("a.rego", DENY), ("c.json", r#"{"x": 1}"#), ("d.json", data)]).unwrap_err().to_string();
        assert!(error.contains(said), "{data}: {error}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_refused() {
    let directory = directory(&[("a.rego", DENY)]);
    std::os::unix::fs::symlink("nowhere", directory.path().join("b.rego")).unwrap();
    let error = Rules::load(directory.path()).unwrap_err();
    assert!(error.to_string().contains("b.rego"), "{error}");
    // Root may read anything, so this half holds for others only.
    if !rustix::process::geteuid().is_root() {
        fs::remove_file(directory.path().join("b.rego")).unwrap();
        let closed = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o000);
        fs::set_permissions(directory.path().join("a.rego"), closed).unwrap();
        assert!(matches!(Rules::load(directory.path()).unwrap_err(), LoadError::Io { action: "open", .. }));
    }
}

#[test]
fn links_are_followed_but_not_in_circles() {
    let directory = directory(&[("..data/a.rego", DENY)]);
    let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, directory.path().join(name)).unwrap();
    link("..data/a.rego", "a.rego");
    assert_eq!(Rules::load(directory.path()).unwrap().files(), ["a.rego"]);
    link(".", "circle");
    assert!(matches!(Rules::load(directory.path()).unwrap_err(), LoadError::TooDeep { .. }));
    link(".", "circle2");
    assert!(Rules::load(directory.path()).is_err());
    fs::remove_file(directory.path().join("circle")).unwrap();
    fs::remove_file(directory.path().join("circle2")).unwrap();
    link("b.rego", "b.rego");
    assert!(matches!(Rules::load(directory.path()).unwrap_err(), LoadError::Io { action: "look at", .. }));
}

#[test]
fn depth_files_and_entries_are_counted_at_the_limit() {
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
fn a_file_is_measured_at_the_limit() {
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
fn a_set_is_measured_at_the_limit() {
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
fn rules_in_a_row_are_counted_at_the_limit() {
    let row = |length: usize| {
        let links: String = (1..length).map(|n| format!("r{n} := r{}\n", n + 1)).collect();
        format!("deny contains {{\"rule\": \"d\", \"reason\": r1}}\n{links}r{length} := \"end\"\n")
    };
    assert_eq!(decide(&job_rules(&row(RULE_DEPTH_MAX - 1)), &echo()).message.as_deref(), Some("end"));
    assert!(problem(&row(RULE_DEPTH_MAX)).contains("more than 16 rules need each other in a row"));
}

#[test]
fn thousands_of_rules_are_loaded_and_asked() {
    let rules: String = (0..5_000)
        .map(|n| format!("deny contains {{\"rule\": \"r{n}\", \"reason\": \"x\"}} if input.topic == \"t{n}\"\n"))
        .collect();
    let mut spec = echo();
    spec.topic = "t4999".to_owned();
    assert_eq!(decide(&job_rules(&rules), &spec).rule, "r4999");
}
