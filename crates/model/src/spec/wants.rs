//! What a job asks of the runner that is to run it.

use std::collections::BTreeMap;

use minicbor::Decode;

use super::JobSpec;
use crate::codec::{self, DecodeError};

/// Labels with these beginnings say which runners may have the job: the rest of the name is the runner's own label.
const SELECTORS: [&str; 3] = ["placement.", "constraint.", "node."];
/// Narrows the topic's pools to this one.
const PREFERRED_POOL: &str = "preferred_pool";
/// The runner that gets the job if it has room when the job becomes ready.
const PREFERRED_WORKER: &str = "preferred_worker_id";

/// What placing a job needs to know of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wants {
    pub topic: String,
    /// Sorted, each once.
    pub requires: Vec<String>,
    /// Labels that the runner must have, as they are named there. Sorted.
    pub labels: Vec<(String, String)>,
    pub pool: Option<String>,
    pub worker: Option<String>,
}

impl Wants {
    /// Takes them out of a spec that is no longer needed for itself.
    pub(super) fn take(spec: &mut JobSpec) -> Self {
        Self::new(std::mem::take(&mut spec.topic), std::mem::take(&mut spec.labels), std::mem::take(&mut spec.requires))
    }

    fn new(topic: String, mut labels: BTreeMap<String, String>, mut requires: Vec<String>) -> Self {
        requires.sort_unstable();
        requires.dedup();
        let pool = labels.remove(PREFERRED_POOL);
        let worker = labels.remove(PREFERRED_WORKER);
        let selects = |(label, value): (String, String)| {
            let name = SELECTORS.iter().find_map(|beginning| label.strip_prefix(beginning))?;
            Some((name.to_owned(), value))
        };
        let mut labels: Vec<_> = labels.into_iter().filter_map(selects).collect();
        labels.sort_unstable();
        labels.dedup();
        Self { topic, requires, labels, pool, worker }
    }
}

/// [`Wants`] of an encoded spec.
pub fn decode_wants(spec: &[u8]) -> Result<Wants, DecodeError> {
    #[derive(Decode)]
    struct Fields {
        #[n(0)]
        topic: String,
        #[cbor(n(9), default)]
        labels: BTreeMap<String, String>,
        #[cbor(n(15), default)]
        requires: Vec<String>,
    }
    let fields: Fields = codec::decode(spec)?;
    Ok(Wants::new(fields.topic, fields.labels, fields.requires))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_labels_that_select_are_wanted_of_a_runner() {
        let spec: JobSpec = serde_json::from_str(
            r#"{"topic":"t","run":{"echo":{}},"requires":["gpu","avx","gpu"],
                "labels":{"placement.zone":"a","node.name":"n1","constraint.arch":"arm","team":"x",
                          "preferred_pool":"fast","preferred_worker_id":"7"}}"#,
        )
        .unwrap();
        let packed = spec.pack();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let wanted = Wants {
            topic: "t".to_owned(),
            requires: vec!["avx".to_owned(), "gpu".to_owned()],
            labels: vec![pair("arch", "arm"), pair("name", "n1"), pair("zone", "a")],
            pool: Some("fast".to_owned()),
            worker: Some("7".to_owned()),
        };
        assert_eq!(packed.wants, wanted);
        assert_eq!(decode_wants(&packed.bytes).unwrap(), wanted);
    }

    #[test]
    fn two_values_for_one_label_are_both_wanted() {
        let spec: JobSpec =
            serde_json::from_str(r#"{"run":{"echo":{}},"labels":{"placement.zone":"a","node.zone":"b"}}"#).unwrap();
        assert_eq!(spec.pack().wants.labels.len(), 2, "and no runner has both: it waits, and says why");
    }
}
