//! A cached decision always equals the evaluated one.

use model::json::Json;
use model::spec::{EchoRun, JobSpec, Priority, ProcessRun, Run, Sandbox};
use model::time::Millis;
use model::verdict::Verdict;
use policy::limits::CACHE_KEY_BYTES_MAX;
use policy::{Cache, JobFacts, Policy};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::support::{NOW, directory, echo, job_rules};

fn policy(rules: &str) -> (TempDir, Policy) {
    let directory = directory(&[("a.rego", &format!("package outlast.job\n{rules}"))]);
    let policy = Policy::open(directory.path(), Cache::new(1_000), NOW).unwrap();
    (directory, policy)
}

#[test]
fn input_paths_are_found_in_every_form_of_reference() {
    let deny = |body: &str| format!("deny contains {{\"rule\": \"d\", \"reason\": \"r\"}} if {{ {body} }}");
    for (body, reads) in [
        ("input.topic == \"x\"", vec!["input.topic"]),
        ("input[\"job\"].labels[`env`] == 1", vec!["input.job.labels.env"]),
        ("input.labels[input.topic] == 1", vec!["input.labels", "input.topic"]),
        ("some k; input.labels[k] == 1", vec!["input.labels"]),
        ("some k, v in input.labels; k == v", vec!["input.labels"]),
        ("every needed in input.requires { needed == input.topic }", vec!["input.requires", "input.topic"]),
        ("input.requires[0] == 1", vec!["input.requires"]),
        ("x := input; x.topic == 1", vec!["input"]),
        ("object.get(input.job, [\"labels\", \"x\"], 1) == 1", vec!["input.job"]),
        ("[x | x := input.labels.a] == input.tenant", vec!["input.labels.a", "input.tenant"]),
        ("helper(input.labels.z)", vec!["input.labels.z", "input.queue", "input.submitter"]),
        ("l.team == 1", vec!["input.labels.team"]),
        ("t == 1", vec!["input.tenant"]),
        ("data.outlast.job.helper(1)", vec!["input.queue", "input.submitter"]),
        ("not input.labels.x", vec!["input.labels.x"]),
        (
            "helper(1) with input.topic as input.labels.w",
            vec!["input.labels.w", "input.queue", "input.submitter", "input.topic"],
        ),
        ("true", vec![]),
    ] {
        let text = format!(
            "import input.labels as l\nimport input.tenant as t\n{}\nhelper(x) if input.submitter == x\nhelper(x) if {{ y := input.queue; y == x }}\nunused := input.job.run",
            deny(body)
        );
        let rules = job_rules(&text);
        assert_eq!(rules.reads(), reads, "{body}");
    }
}

#[test]
fn time_dependent_rules_are_not_cached() {
    for body in ["input.time.hour == 3", "time.now_ns() > 5", "input == 1", "x := input[input.topic]; x == 1", "late"] {
        let rules = job_rules(&format!(
            "deny contains {{\"rule\": \"d\", \"reason\": \"r\"}} if {{ {body} }}\nlate if input.time.hour > 20"
        ));
        assert!(!rules.is_cacheable(), "{body}");
    }
    let (_directory, policy) =
        policy("deny contains {\"rule\": \"d\", \"reason\": \"r\"} if input.time.unix_ms > 1767787200000");
    let spec = echo();
    let facts = JobFacts::of(&spec);
    assert_eq!(policy.decide(&facts, NOW).verdict, Verdict::Allow);
    assert_eq!(policy.cached(&facts, NOW), None);
    assert_eq!(policy.decide(&facts, NOW + Millis(1)).verdict, Verdict::Deny);
}

#[test]
fn jobs_that_differ_only_in_unread_fields_share_an_answer() {
    let (_directory, policy) = policy("deny contains {\"rule\": \"d\", \"reason\": \"r\"} if input.topic == \"x\"");
    let mut spec = echo();
    assert_eq!(policy.cached(&JobFacts::of(&spec), NOW), None);
    let decision = policy.decide(&JobFacts::of(&spec), NOW);
    spec.labels.insert("a".to_owned(), "b".to_owned());
    assert_eq!(policy.cached(&JobFacts::of(&spec), NOW), Some(decision));
    spec.topic = "x".to_owned();
    assert_eq!(policy.cached(&JobFacts::of(&spec), NOW), None);
}

#[test]
fn a_cached_throttle_starts_at_the_time_of_the_lookup() {
    let (_directory, policy) = policy("throttle contains {\"rule\": \"t\", \"reason\": \"r\", \"for_ms\": 10}");
    let spec = echo();
    policy.decide(&JobFacts::of(&spec), NOW);
    let later = policy.cached(&JobFacts::of(&spec), NOW + Millis(5)).unwrap();
    assert_eq!((later.at, later.verdict), (NOW + Millis(5), Verdict::Throttle(NOW + Millis(15))));
}

#[test]
fn an_error_is_not_cached() {
    let (_directory, policy) = policy("deny contains 1");
    let spec = echo();
    assert_eq!(policy.decide(&JobFacts::of(&spec), NOW).rule, "policy_error");
    assert_eq!(policy.cached(&JobFacts::of(&spec), NOW), None);
}

#[test]
fn a_job_beyond_the_key_size_limit_is_not_cached() {
    let (_directory, policy) = policy("deny contains {\"rule\": \"d\", \"reason\": \"r\"} if input.labels.x == \"y\"");
    let mut spec = echo();
    // Overhead of the key: the version, two objects, two keys and three lengths.
    let overhead = 16 + 4 + 3 * 9 + "labels".len() + "x".len();
    for (bytes, is_cached) in [(CACHE_KEY_BYTES_MAX - overhead, true), (CACHE_KEY_BYTES_MAX - overhead + 1, false)] {
        spec.labels.insert("x".to_owned(), "z".repeat(bytes));
        policy.decide(&JobFacts::of(&spec), NOW);
        assert_eq!(policy.cached(&JobFacts::of(&spec), NOW).is_some(), is_cached);
    }
}

/// Rule bodies with all forms of reads.
const BODIES: [&str; 16] = [
    "input.topic == \"b\"",
    "input.labels.env == \"b\"",
    "input.job.labels[input.topic] == \"a\"",
    "some k, v in input.labels; k == v",
    "\"gpu\" in input.requires",
    "input.requires[0] == \"a\"",
    "input.job.run.echo.value.a == 1",
    "input.job.run.echo.delay_ms > 5",
    "input.job.run.process.command[0] == \"a\"",
    "not input.job.run.process",
    "input.submitter == \"a\"",
    "input.queue == \"b\"",
    "input.job.priority == \"batch\"",
    "input.time.hour == 12",
    "helper(input.job.sandbox)",
    "count(input.job) > 6",
];

const VERDICTS: [&str; 5] = [
    "deny contains {\"rule\": \"N\", \"reason\": input.topic}",
    "require_approval contains {\"rule\": \"N\", \"reason\": \"r\"}",
    "throttle contains {\"rule\": \"N\", \"reason\": \"r\", \"for_ms\": 7}",
    "constrain contains {\"rule\": \"N\", \"reason\": \"r\", \"max_retries\": count(input.labels)}",
    "allow contains {\"rule\": \"N\", \"reason\": \"r\"}",
];

fn rules() -> impl Strategy<Value = String> {
    prop::collection::vec((0..VERDICTS.len(), 0..BODIES.len()), 1..4).prop_map(|chosen| {
        let mut text =
            "helper(x) if x == \"strict\"\nhelper(x) if { x == \"none\"; input.tenant == \"a\" }\n".to_owned();
        for (number, (verdict, body)) in chosen.into_iter().enumerate() {
            let head = VERDICTS[verdict].replace("\"N\"", &format!("\"r{number}\""));
            text.push_str(&format!("{head} if {{ {} }}\n", BODIES[body]));
        }
        text
    })
}

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "env", "gpu"]).prop_map(str::to_owned)
}

fn run() -> impl Strategy<Value = Run> {
    let values = prop::sample::select(vec!["null", "{\"a\":1}", "{\"a\": 1.0}", "{\"a\":2}", "[1]"]);
    let echo = (values, 0..10_u64).prop_map(|(value, delay_ms)| {
        let value = Json::parse(value.as_bytes()).unwrap();
        Run::Echo(EchoRun { value, delay_ms, fail: None })
    });
    let process = prop::collection::vec(name(), 1..3)
        .prop_map(|command| Run::Process(ProcessRun { command, ..ProcessRun::default() }));
    prop_oneof![echo, process]
}

fn job() -> impl Strategy<Value = (JobSpec, Option<String>, Option<String>)> {
    let labels = prop::collection::btree_map(name(), name(), 0..3);
    let sandbox = prop::sample::select(vec![None, Some(Sandbox::Strict), Some(Sandbox::None)]);
    let priority = prop::sample::select(Priority::ALL.to_vec());
    let rest = (prop::option::of(name()), prop::option::of(name()));
    (run(), name(), name(), labels, prop::collection::vec(name(), 0..2), sandbox, priority, rest).prop_map(
        |(run, topic, tenant, labels, requires, sandbox, priority, (submitter, queue))| {
            (JobSpec { topic, tenant, labels, requires, sandbox, priority, ..JobSpec::new(run) }, submitter, queue)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_cached_decision_equals_an_evaluated_one(
        rules in rules(),
        jobs in prop::collection::vec((job(), 0..86_400_000_u64), 1..40),
    ) {
        let (_directory, policy) = policy(&rules);
        // The same rules plus one that reads all of `input`: never cached, evaluated with the whole job.
        let all = format!("{rules}\ndeny contains {{\"rule\": \"never\", \"reason\": \"r\"}} if input.nothing == input");
        let uncached = job_rules(&all);
        prop_assert!(!uncached.is_cacheable());
        for ((spec, submitter, queue), later) in &jobs {
            let facts = JobFacts { spec, submitter: submitter.as_deref(), queue: queue.clone() };
            let now = NOW + Millis(*later);
            let mut fresh = uncached.decide(&facts, now);
            fresh.policy = Some(policy.rules().version());
            prop_assert_eq!(&policy.rules().decide(&facts, now), &fresh, "{}", &rules);
            if let Some(cached) = policy.cached(&facts, now) {
                prop_assert_eq!(&cached, &fresh, "{}", &rules);
            }
            prop_assert_eq!(&policy.decide(&facts, now), &fresh, "{}", &rules);
        }
    }
}
