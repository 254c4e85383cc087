//! Requirements: what a job demands of a runner.

use std::collections::BTreeMap;

use minicbor::Decode;

use super::JobSpec;
use crate::codec::{self, DecodeError};

/// Prefixes of job labels that select runners. The rest of the name is the runner's label.
const SELECTORS: [&str; 3] = ["placement.", "constraint.", "node."];
/// Job label: restricts the topic's pools to this one.
const PREFERRED_POOL: &str = "preferred_pool";
/// Job label: the runner to prefer if it has a free slot when the job becomes ready.
const PREFERRED_WORKER: &str = "preferred_worker_id";

/// Required of the runners of exclusive jobs: they keep leases. Implied by [`JobSpec::exclusive`]; runners have it by what
/// they are and not by configuration.
pub const EXCLUSIVE_CAPABILITY: &str = "exclusive";

/// A job's requirement, for placement.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Requirements {
    pub topic: String,
    /// Required capabilities, sorted, without duplicates.
    pub requires: Vec<String>,
    /// Required labels of the runner, without the selector prefix. Sorted.
    pub labels: Vec<(String, String)>,
    pub pool: Option<String>,
    pub preferred_runner: Option<String>,
}

impl Requirements {
    /// Moves the values out of a spec that is not used any more.
    pub(super) fn take(spec: &mut JobSpec) -> Self {
        let (topic, labels) = (std::mem::take(&mut spec.topic), std::mem::take(&mut spec.labels));
        Self::new(topic, labels, std::mem::take(&mut spec.requires), spec.exclusive)
    }

    fn new(topic: String, mut labels: BTreeMap<String, String>, mut requires: Vec<String>, exclusive: bool) -> Self {
        requires.extend(exclusive.then(|| EXCLUSIVE_CAPABILITY.to_owned()));
        requires.sort_unstable();
        requires.dedup();
        let pool = labels.remove(PREFERRED_POOL);
        let preferred_runner = labels.remove(PREFERRED_WORKER);
        let selects = |(label, value): (String, String)| {
            let name = SELECTORS.iter().find_map(|prefix| label.strip_prefix(prefix))?;
            Some((name.to_owned(), value))
        };
        let mut labels: Vec<_> = labels.into_iter().filter_map(selects).collect();
        labels.sort_unstable();
        labels.dedup();
        Self { topic, requires, labels, pool, preferred_runner }
    }
}

/// [`Requirements`] of an encoded spec.
pub fn decode_requirements(spec: &[u8]) -> Result<Requirements, DecodeError> {
    #[derive(Decode)]
    struct Fields {
        #[n(0)]
        topic: String,
        #[cbor(n(9), default)]
        labels: BTreeMap<String, String>,
        #[cbor(n(15), default)]
        requires: Vec<String>,
        #[cbor(n(16), default)]
        exclusive: bool,
    }
    let fields: Fields = codec::decode(spec)?;
    Ok(Requirements::new(fields.topic, fields.labels, fields.requires, fields.exclusive))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_selector_labels_are_required_of_a_runner() {
        let spec: JobSpec = serde_json::from_str(
            r#"{"topic":"t","run":{"echo":{}},"requires":["gpu","avx","gpu"],
                "labels":{"placement.zone":"a","node.name":"n1","constraint.arch":"arm","team":"x",
                          "preferred_pool":"fast","preferred_worker_id":"7"}}"#,
        )
        .unwrap();
        let packed = spec.pack();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let wanted = Requirements {
            topic: "t".to_owned(),
            requires: vec!["avx".to_owned(), "gpu".to_owned()],
            labels: vec![pair("arch", "arm"), pair("name", "n1"), pair("zone", "a")],
            pool: Some("fast".to_owned()),
            preferred_runner: Some("7".to_owned()),
        };
        assert_eq!(packed.requirements, wanted);
        assert_eq!(decode_requirements(&packed.bytes).unwrap(), wanted);
    }

    #[test]
    fn an_exclusive_job_requires_a_runner_that_keeps_leases() {
        let spec: JobSpec = serde_json::from_str(r#"{"run":{"echo":{}},"requires":["gpu"],"exclusive":true}"#).unwrap();
        let packed = spec.pack();
        assert!(packed.exclusive);
        assert_eq!(packed.requirements.requires, [EXCLUSIVE_CAPABILITY, "gpu"]);
        assert_eq!(decode_requirements(&packed.bytes).unwrap(), packed.requirements);
    }

    #[test]
    fn two_values_of_one_label_are_both_required() {
        let spec: JobSpec =
            serde_json::from_str(r#"{"run":{"echo":{}},"labels":{"placement.zone":"a","node.zone":"b"}}"#).unwrap();
        assert_eq!(spec.pack().requirements.labels.len(), 2, "no runner has both: the job waits with a reason");
    }
}
