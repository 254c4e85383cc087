//! What a policy says of a job, and what a person says when the policy asks for one.

use minicbor::{Decode, Encode};

use crate::spec::Digest;
use crate::time::Millis;

/// Limits that a policy puts on a job it allows. Absent means: no more than the job itself asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct Constraints {
    #[n(0)]
    pub max_runtime: Option<Millis>,
    #[n(1)]
    pub max_retries: Option<u32>,
}

/// A policy's answer.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Verdict {
    #[n(0)]
    Allow,
    #[n(1)]
    AllowWith(#[n(0)] Constraints),
    #[n(2)]
    RequireApproval,
    #[n(3)]
    Deny,
    /// Not now: ask again after this time. Uses no budget.
    #[n(4)]
    Throttle(#[n(0)] Millis),
}

impl Verdict {
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::AllowWith(_) => "allow_with_constraints",
            Self::RequireApproval => "require_approval",
            Self::Deny => "deny",
            Self::Throttle(_) => "throttle",
        }
    }
}

/// A verdict with where it came from, as the job's history keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Decision {
    #[n(0)]
    pub at: Millis,
    #[n(1)]
    pub verdict: Verdict,
    /// The rule that spoke.
    #[n(2)]
    pub rule: String,
    #[n(3)]
    pub message: Option<String>,
}

/// A person's word on a job, good for this very content and the rule that asked.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Approval {
    #[n(0)]
    pub at: Millis,
    #[n(1)]
    pub by: String,
    #[n(2)]
    pub approved: bool,
    #[n(3)]
    pub comment: Option<String>,
    #[n(4)]
    pub digest: Digest,
    #[n(5)]
    pub rule: String,
}
