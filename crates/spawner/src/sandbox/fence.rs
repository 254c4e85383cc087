//! Landlock: what a program may touch of the files it sees, and whom it may reach outside of its own kind.

use std::os::fd::OwnedFd;

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, Scope,
};

/// The newest set of rules that is known here; a kernel that knows fewer applies those.
const NEWEST: ABI = ABI::V6;

/// The rules for a program in a sandbox, ready to be put in force. `None` when the kernel has no landlock.
pub fn rules() -> Result<Option<OwnedFd>, RulesetError> {
    let all = AccessFs::from_all(NEWEST);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    let places = [
        ("/", AccessFs::from_read(NEWEST)),
        ("/tmp", all),
        ("/job/outputs", all),
        ("/dev", AccessFs::WriteFile | AccessFs::IoctlDev),
    ];
    for (path, access) in places {
        // A place that is not there needs no rule.
        if let Ok(place) = PathFd::new(path) {
            rules = rules.add_rule(PathBeneath::new(place, access))?;
        }
    }
    Ok(rules.into())
}

/// Which version the kernel has; 0 for none.
pub fn version() -> i32 {
    crate::sys::landlock_version()
}
