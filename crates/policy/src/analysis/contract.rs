//! Contract of rules: packages and forms of verdicts. Without these checks a misplaced verdict would silently never
//! apply.

use super::tree::{Head, Module, Position, Rule};
use crate::error::LoadError;

/// A package that is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Package {
    Job,
    Output,
}

/// Verdict if no rule applies.
pub(crate) const DEFAULT_VERDICT: &str = "default_verdict";

impl Package {
    pub const ALL: [Self; 2] = [Self::Job, Self::Output];

    pub fn path(self) -> [&'static str; 2] {
        match self {
            Self::Job => ["outlast", "job"],
            Self::Output => ["outlast", "output"],
        }
    }

    /// Its verdicts, strongest first.
    pub fn verdicts(self) -> &'static [&'static str] {
        match self {
            Self::Job => &["deny", "require_approval", "throttle", "constrain", "allow"],
            Self::Output => &["deny", "quarantine", "redact"],
        }
    }

    fn has_default(self) -> bool {
        match self {
            Self::Job => true,
            Self::Output => false,
        }
    }

    fn of(module: &Module) -> Option<Self> {
        Self::ALL.into_iter().find(|package| module.package == package.path())
    }
}

/// Checks that every verdict takes effect.
pub(crate) fn check(modules: &[Module]) -> Result<(), LoadError> {
    for module in modules {
        match Package::of(module) {
            Some(package) => module.rules.iter().try_for_each(|rule| check_rule(module, package, rule))?,
            None if module.package.starts_with(&["outlast".to_owned(), "lib".to_owned()]) => {}
            None => return Err(error_at(module, module.package_position, wrong_package(module))),
        }
    }
    if Package::ALL.into_iter().all(|package| defined(modules, package).is_empty()) {
        let message = "no rule gives a verdict: write at least one `deny contains {\"rule\": …, \"reason\": …} if { … }` \
                       in `package outlast.job`";
        return Err(LoadError::In { file: "the rules".to_owned(), message: message.to_owned() });
    }
    Ok(())
}

pub(super) fn error_at(module: &Module, position: Position, message: String) -> LoadError {
    LoadError::At { file: module.file.clone(), line: position.line, column: position.column, message }
}

fn wrong_package(module: &Module) -> String {
    format!(
        "`package {}` is not evaluated: rules for jobs belong in `package outlast.job`, rules for results in `package \
         outlast.output`, shared rules in packages below `outlast.lib`",
        module.package.join(".")
    )
}

fn check_rule(module: &Module, package: Package, rule: &Rule) -> Result<(), LoadError> {
    let name = rule.name.as_str();
    let is_verdict = package.verdicts().contains(&name);
    let is_default = name == DEFAULT_VERDICT;
    let reject = |message: String| Err(error_at(module, rule.position, message));
    if is_verdict && (rule.head != Head::Set || rule.has_compound_head) {
        return reject(format!(
            "`{name}` must be a set: write `{name} contains {{\"rule\": \"…\", \"reason\": \"…\"}} if {{ … }}`"
        ));
    }
    if is_default && !package.has_default() {
        return reject("results have no default verdict: they are allowed if no rule applies".to_owned());
    }
    if is_default && (!matches!(rule.head, Head::Value | Head::Default) || rule.has_compound_head) {
        return reject(format!("`{name}` must be a string: write `{name} := \"deny\"`"));
    }
    let looks_like_a_verdict = rule.head == Head::Set && ["rule", "reason"].iter().all(|key| rule.has_key(key));
    if looks_like_a_verdict && !is_verdict {
        let known = package.verdicts().join("`, `");
        return reject(format!("`{name}` looks like a verdict, but is not one of `{known}`"));
    }
    Ok(())
}

impl Rule {
    fn has_key(&self, key: &str) -> bool {
        self.object_keys.iter().any(|known| known == key)
    }
}

/// Verdict names that the rules of a package define, strongest first.
pub(crate) fn defined(modules: &[Module], package: Package) -> Vec<&'static str> {
    let rules =
        || modules.iter().filter(|module| Package::of(module) == Some(package)).flat_map(|module| &module.rules);
    let names = package.verdicts().iter().copied().chain(package.has_default().then_some(DEFAULT_VERDICT));
    names.filter(|name| rules().any(|rule| rule.name == *name)).collect()
}
