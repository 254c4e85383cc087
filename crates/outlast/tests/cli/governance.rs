//! Policies, approvals, dead letters and the audit log.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::{Output, Server, finish, run_alone};

const RULES: &str = r#"
package outlast.job

require_approval contains {"rule": "protected", "reason": "an operator must look at it"} if input.topic == "deploy"

deny contains {"rule": "no-mining", "reason": "mining is not what these machines are for"} if input.topic == "mining"
"#;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/policy")
}

/// A server with policy rules and output scans.
struct Governed {
    server: Server,
    _rules: tempfile::TempDir,
}

impl Governed {
    fn start() -> Self {
        let rules = tempfile::tempdir().unwrap();
        std::fs::write(rules.path().join("rules.rego"), RULES).unwrap();
        let settings = format!(
            "policy: {{rules: {}}}\ntopics: {{'*': {{}}, held: {{output: {{hold_until_scanned: true}}}}}}\n\
             tenants: {{guests: {{max_running: 1}}}}\n",
            rules.path().display()
        );
        Self { server: Server::start_with_settings(&settings), _rules: rules }
    }

    fn run(&self, line: &[&str]) -> Output {
        self.server.run(line)
    }

    fn run_as(&self, actor: &str, line: &[&str]) -> Output {
        finish(self.server.command(line).env("OUTLAST_ACTOR", actor).spawn().unwrap())
    }

    /// Submits a job of this topic.
    fn submit(&self, topic: &str) -> String {
        self.run_as("ada", &["submit", "--topic", topic, "--echo", "1"]).expect(0).line().to_owned()
    }

    fn file(&self, name: &str) -> String {
        self.server.directory.path().join(name).display().to_string()
    }
}

// FEATURES: D2
#[test]
fn a_job_is_approved_with_a_reason() {
    let governed = Governed::start();
    let id = governed.submit("deploy");
    governed.server.wait_for_state(&id, &["approval_required"]);
    let list = governed.run(&["approvals"]).expect(0).stdout;
    for word in [id.as_str(), "protected", "ada", "6d23h"] {
        assert!(list.contains(word), "{word}: {list}");
    }
    let page = governed.run(&["approvals", "show", &id]).expect(0).stdout;
    assert!(page.contains("an operator must look at it") && page.contains("require_approval"), "{page}");
    let shown = governed.run(&["approvals", "show", &id, "--output", "json"]).expect(0).json();
    let hash = shown["hash"].as_str().unwrap();
    governed.run(&["approvals", "approve", &id]).expect(2);
    let refused = governed.run(&["approvals", "approve", &id, "--reason", "r", "--hash", &"0".repeat(32)]).expect(1);
    assert!(refused.stderr.contains("other_content"), "{}", refused.stderr);
    let approved = governed.run_as("bob", &["approvals", "approve", &id, "--reason", "fine", "--hash", hash]).expect(0);
    assert!(approved.stdout.starts_with(&format!("{id} approved: ")), "{}", approved.stdout);
    let job = governed.server.wait_for_state(&id, &["succeeded"]);
    assert_eq!((&job["approval"]["by"], &job["approval"]["comment"]), (&"bob".into(), &"fine".into()));
    let page = governed.run(&["jobs", "show", &id]).expect(0).stdout;
    assert!(page.contains("approved by bob") && page.contains("submitter"), "{page}");
    governed.run(&["approvals", "reject", &id, "--reason", "late"]).expect(1);
    governed.run(&["approvals", "show", "job_0000000000001"]).expect(3);
    governed.run(&["approvals", "approve", "nonsense", "--reason", "r"]).expect(3);
}

#[test]
fn submit_with_wait_of_a_denied_job_is_125_with_rule_and_reason() {
    let governed = Governed::start();
    let denied = governed.run(&["submit", "--wait", "--topic", "mining", "--", "true"]).expect(125);
    assert!(denied.stderr.contains("rule no-mining: mining is not what"), "{}", denied.stderr);
    let id = governed.submit("deploy");
    governed.server.wait_for_state(&id, &["approval_required"]);
    governed.run_as("bob", &["approvals", "reject", &id, "--reason", "not today"]).expect(0);
    let why = governed.run(&["jobs", "show", &id, "--why"]).expect(0).stdout;
    assert!(why.contains("bob rejected the job: not today."), "{why}");
}

// FEATURES: D8
#[test]
fn dead_letters_are_listed_retried_and_purged() {
    let governed = Governed::start();
    let mined = governed.submit("mining");
    governed.server.wait_for_state(&mined, &["denied"]);
    let failed = governed.run(&["submit", "--topic", "x", "--retries", "2", "--", "/nowhere/program"]).expect(0);
    let failed = failed.line();
    governed.server.wait_for_state(failed, &["failed"]);
    let list = governed.run(&["dlq"]).expect(0).stdout;
    assert!(list.contains(&mined) && list.contains(failed) && list.contains("safety_denied"), "{list}");
    let of_topic = governed.run(&["dlq", "list", "--topic", "x"]).expect(0).stdout;
    assert!(!of_topic.contains(&mined) && of_topic.contains(failed), "{of_topic}");
    let page = governed.run(&["dlq", "show", failed]).expect(0).stdout;
    assert!(page.starts_with("failed at") && page.contains("/nowhere/program"), "{page}");
    governed.run(&["dlq", "retry", failed]).expect(0);
    governed.run(&["dlq", "retry", &mined]).expect(1);
    governed.run(&["dlq", "purge"]).expect(2);
    governed.run(&["dlq", "purge", &mined, "--all"]).expect(2);
    governed.run(&["dlq", "purge", "--older-than", "7"]).expect(2);
    assert_eq!(governed.run(&["dlq", "purge", "--older-than", "7d"]).expect(0).stdout, "0 deleted\n");
    governed.run(&["dlq", "purge", &mined]).expect(0);
    governed.run(&["dlq", "show", &mined]).expect(3);
    governed.server.wait_for_state(failed, &["failed"]);
    let purged = governed.run(&["dlq", "purge", "--all", "--output", "json"]).expect(0).json();
    assert_eq!(purged["purged"], 1);
}

#[test]
fn the_audit_log_is_listed_exported_and_verified_without_the_server() {
    let governed = Governed::start();
    let id = governed.submit("mining");
    governed.server.wait_for_state(&id, &["denied"]);
    governed.run_as("eve", &["jobs", "rm", &id]).expect(0);
    let list = governed.run(&["audit", "list", "--job", &id]).expect(0).stdout;
    assert!(list.contains("denied") && list.contains("no-mining") && list.contains("eve"), "{list}");
    let verified = governed.run(&["audit", "verify"]).expect(0).stdout;
    let head = verified.split_whitespace().find(|word| word.starts_with("0:")).unwrap().to_owned();
    governed.run(&["audit", "verify", "--head", &head]).expect(0);
    let forged = format!("{}{}", &head[..head.len() - 1], if head.ends_with('0') { '1' } else { '0' });
    governed.run(&["audit", "verify", "--head", &forged]).expect(1);
    governed.run(&["audit", "verify", "--head", "nonsense"]).expect(2);

    let file = governed.file("audit.ndjson");
    governed.run(&["audit", "export", &file]).expect(0);
    governed.run(&["audit", "export", &file]).expect(2);
    assert_eq!(governed.run(&["audit", "export", "-"]).expect(0).stdout, std::fs::read_to_string(&file).unwrap());
    run_alone(["audit", "verify", &file, "--head", &head]).expect(0);
    run_alone(["audit", "verify", &file, "--head", &forged]).expect(1);
    run_alone(["audit", "verify", &governed.file("missing")]).expect(3);
    let text = std::fs::read_to_string(&file).unwrap();
    let without_first: String = text.split_inclusive('\n').skip(1).collect();
    let cut_off: String = text.split_inclusive('\n').take(1).collect();
    for (what, tampered) in [
        ("another name", text.replace("\"eve\"", "\"bob\"")),
        ("an entry less", without_first),
        ("no end", cut_off),
        ("nothing", String::new()),
        ("no log at all", "hello\n".to_owned()),
    ] {
        assert_ne!(tampered, text, "{what}");
        std::fs::write(&file, &tampered).unwrap();
        let ran = run_alone(["audit", "verify", &file]);
        assert_eq!(ran.code, Some(1), "{what}: {ran:?}");
    }
}

#[test]
fn a_shortened_audit_log_is_verified_with_its_checkpoint_and_key() {
    let mut server = Server::start_with_settings("audit_retention_ms: 1\n");
    let id = server.run(["submit", "--wait", "--output", "json", "--echo", "7"]).expect(0).json();
    server.run(["jobs", "rm", id["id"].as_str().unwrap()]).expect(0);
    let verified = server.run(["audit", "verify"]).expect(0).stdout;
    let head = verified.split_whitespace().find(|word| word.starts_with("0:1:")).unwrap().to_owned();
    let signing = "The server signs checkpoints with the key ";
    let key = verified.lines().find_map(|line| line.strip_prefix(signing)).unwrap().to_owned();
    server.restart();
    let deadline = Instant::now() + Duration::from_secs(30);
    let verified = loop {
        let verified = server.run(["audit", "verify"]).expect(0).stdout;
        if verified.contains("Shard 0: entries up to 1 were removed after their retention\n") {
            break verified;
        }
        assert!(Instant::now() < deadline, "{verified}");
    };
    assert!(verified.contains(&format!("checkpoint  {head}\n")), "{verified}");
    assert!(verified.contains(&format!("signed with {key}\nsignature   valid\n")), "{verified}");
    let other = format!("{}{}", &key[..key.len() - 1], if key.ends_with('0') { '1' } else { '0' });
    server.run(["audit", "verify", "--head", &head, "--key", &key]).expect(0);
    let refused = server.run(["audit", "verify", "--key", &other]).expect(1).stdout;
    assert!(refused.contains("the checkpoint is signed with another key"), "{refused}");
    server.run(["audit", "verify", "--key", "nonsense"]).expect(2);

    let file = server.directory.path().join("audit.ndjson").display().to_string();
    server.run(["audit", "export", &file]).expect(0);
    run_alone(["audit", "verify", &file, "--head", &head, "--key", &key]).expect(0);
    run_alone(["audit", "verify", &file, "--key", &other]).expect(1);
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.split_inclusive('\n').skip(1).collect::<String>()).unwrap();
    run_alone(["audit", "verify", &file]).expect(1);
}

#[test]
fn the_policy_is_checked_and_its_rules_are_tested() {
    let governed = Governed::start();
    let job = governed.file("job.yaml");
    std::fs::write(&job, "topic: mining\nrun: {echo: {value: 1}}\n").unwrap();
    let check = governed.run(&["policy", "check", "--job", &job]).expect(5).stdout;
    assert!(check.contains("verdict  deny\n") && check.contains("no-mining"), "{check}");
    let rules = examples().display().to_string();
    let local = run_alone(["policy", "check", "--job", &job, "--rules", &rules, "--output", "json"]).expect(0).json();
    assert_eq!((&local["verdict"], &local["rule"]), (&"allow_with_constraints".into(), &"tenant-limits".into()));
    let page = governed.run(&["policy"]).expect(0).stdout;
    assert!(page.contains("rules in Rego") && page.contains("rules.rego"), "{page}");

    let tested = run_alone(["policy", "test", &rules]).expect(0).stdout;
    assert!(tested.ends_with(" passed, 0 failed\n"), "{tested}");
    let own = tempfile::tempdir().unwrap();
    std::fs::write(own.path().join("rules.rego"), RULES).unwrap();
    run_alone(["policy", "test", &own.path().display().to_string()]).expect(1);
    let case = "- name: mining is fine\n  job: {topic: mining}\n  expect: {verdict: allow}\n";
    std::fs::write(own.path().join("rules_test.yaml"), case).unwrap();
    let failed = run_alone(["policy", "test", &own.path().display().to_string()]).expect(1).stdout;
    assert!(failed.contains("expected  verdict allow\n") && failed.contains("rule no-mining"), "{failed}");
    assert!(failed.ends_with("0 passed, 1 failed\n"), "{failed}");
}

// FEATURES: D3
#[test]
fn a_quarantined_result_is_refused_until_it_is_released() {
    let governed = Governed::start();
    // Built at run time, so that no source code scanner reports it.
    let secret = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8");
    // Only the output contains the secret, not the job.
    let script = format!("echo {}", secret.replacen("ghp", "gh''p", 1));
    let waited = governed.run(&["submit", "--wait", "--topic", "held", "--", "sh", "-c", &script]).expect(125);
    assert_eq!(waited.stdout, "", "nothing is printed");
    assert!(waited.stderr.contains("withholds its result"), "{}", waited.stderr);
    let list = governed.run(&["jobs", "--state", "quarantined", "--output", "json"]).expect(0).json();
    let id = list["items"][0]["id"].as_str().unwrap();
    governed.run(&["logs", id]).expect(5);
    let page = governed.run(&["jobs", "show", id]).expect(0).stdout;
    assert!(page.contains("quarantine") && !page.contains(&secret), "{page}");
    governed.run_as("bob", &["jobs", "release", id]).expect(0);
    assert_eq!(governed.run(&["logs", id]).expect(0).line(), secret);
    let clean = governed.run(&["submit", "--wait", "--topic", "held", "--", "echo", "all is well"]).expect(0);
    assert_eq!(clean.stdout, "all is well\n", "shown once it was scanned");
}

#[test]
fn tenants_are_shown_with_their_limits() {
    let governed = Governed::start();
    let table = governed.run(&["tenants"]).expect(0).stdout;
    assert!(table.lines().nth(1).is_some_and(|line| line.starts_with("guests")), "{table}");
    let shown = governed.run(&["tenants", "--output", "json"]).expect(0).json();
    assert_eq!(shown["items"][0]["limits"]["max_running"], 1);
}
