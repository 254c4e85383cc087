//! Landlock rules: access to files, and to processes and abstract sockets outside the sandbox.

use std::os::fd::OwnedFd;

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, Scope,
};

/// Newest landlock ABI used; an older kernel applies the rules it knows.
const NEWEST: ABI = ABI::V6;

/// Ruleset of a sandboxed program, ready to apply. `None` if the kernel has no landlock.
pub fn rules() -> Result<Option<OwnedFd>, RulesetError> {
    let all = AccessFs::from_all(NEWEST);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    let paths = [
        ("/", AccessFs::from_read(NEWEST)),
        ("/tmp", all),
        ("/job/outputs", all),
        ("/dev", AccessFs::WriteFile | AccessFs::IoctlDev),
    ];
    for (path, access) in paths {
        // A missing path needs no rule.
        if let Ok(descriptor) = PathFd::new(path) {
            rules = rules.add_rule(PathBeneath::new(descriptor, access))?;
        }
    }
    Ok(rules.into())
}

/// Landlock ABI version of the kernel; 0 for none.
pub fn version() -> i32 {
    crate::sys::landlock_version()
}
