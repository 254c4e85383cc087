//! Evaluation of rules by regorus. Engines are prepared once and cloned for concurrent callers. Time is bounded, and a
//! panic of the interpreter does not end the calling thread.

use std::num::NonZeroU32;
use std::panic::{self, AssertUnwindSafe};

use model::time::Millis;
use parking_lot::Mutex;
use regorus::utils::limits::ExecutionTimerConfig;
use regorus::{Engine, LimitError, Value};

use crate::analysis::{Module, Package, parse};
use crate::error::LoadError;
use crate::files::Sources;
use crate::{functions, limits, nesting};

/// Why an evaluation has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EvaluationError {
    #[error("the evaluation took longer than {} ms", limits::EVALUATION_TIME_MAX.as_millis())]
    TooSlow,
    #[error("{0}")]
    Failed(String),
    #[error("the Rego interpreter panicked")]
    Panicked,
}

/// Output of `print` during an evaluation.
pub(crate) type Printed = Vec<String>;

pub(crate) struct Evaluator {
    prepared: Engine,
    /// Unused clones. Cloning takes about as long as an evaluation.
    idle: Mutex<Vec<Engine>>,
}

impl Evaluator {
    /// Parses all files of a set.
    pub fn parse(sources: &Sources) -> Result<(Engine, Vec<Module>), LoadError> {
        let mut engine = Engine::new();
        // Otherwise an error in a built-in function means "undefined", and the rule would silently not apply.
        engine.set_strict_builtin_errors(true);
        engine.set_gather_prints(true);
        functions::install(&mut engine).map_err(|error| LoadError::from_parser("the rules", &error))?;
        for file in &sources.rules {
            nesting::check(&file.name, &file.text)?;
            engine
                .add_policy(file.name.clone(), file.text.clone())
                .map_err(|error| LoadError::from_parser(&file.name, &error))?;
        }
        for file in &sources.data {
            let error = |message: String| LoadError::In { file: file.name.clone(), message };
            let data = Value::from_json_str(&file.text).map_err(|cause| error(format!("invalid JSON: {cause}")))?;
            let Ok(object) = data.as_object() else {
                return Err(error("data must be a JSON object: its fields appear below `data`".to_owned()));
            };
            if object.contains_key(&Value::from("outlast")) {
                return Err(error("the name `outlast` is reserved for rules: choose another one".to_owned()));
            }
            engine.add_data(data).map_err(|cause| error(format!("conflict with another data file: {cause}")))?;
        }
        let tree = engine.get_ast_as_json().map_err(|error| LoadError::from_parser("the rules", &error))?;
        let modules = parse(&tree)?;
        Ok((engine, modules))
    }

    /// Prepares a set of rules that define these verdicts.
    pub fn new(mut engine: Engine, verdicts: &[(Package, Vec<&str>)]) -> Result<Self, LoadError> {
        let load_error = |error: anyhow::Error| LoadError::from_parser("the rules", &error);
        let mut entry = "package outlast_entry\n".to_owned();
        for (package, names) in verdicts {
            let [outer, inner] = package.path();
            let fields: Vec<String> =
                names.iter().map(|name| format!("\"{name}\": data.{outer}.{inner}.{name}")).collect();
            entry.push_str(&format!("{inner} := {{{}}}\n", fields.join(", ")));
        }
        engine.add_policy("outlast_entry.rego".to_owned(), entry).map_err(load_error)?;
        let check_interval = NonZeroU32::new(limits::STEPS_BETWEEN_CLOCK_READS).expect("the interval is not zero");
        let limit = limits::EVALUATION_TIME_MAX;
        engine.set_execution_timer_config(ExecutionTimerConfig { limit, check_interval });
        engine.compile_with_entrypoint(&Self::entry(Package::Job).into()).map_err(load_error)?;
        Ok(Self { prepared: engine, idle: Mutex::default() })
    }

    fn entry(package: Package) -> &'static str {
        match package {
            Package::Job => "data.outlast_entry.job",
            Package::Output => "data.outlast_entry.output",
        }
    }

    /// Evaluates all verdicts of a package.
    pub fn verdicts(&self, package: Package, input: Value, now: Millis) -> Result<(Value, Printed), EvaluationError> {
        self.run(Self::entry(package), input, now)
    }

    /// Evaluates one rule. Retries once after a timeout, because the machine may have stalled.
    pub fn run(&self, rule: &str, input: Value, now: Millis) -> Result<(Value, Printed), EvaluationError> {
        match self.run_once(rule, input.clone(), now) {
            Err(EvaluationError::TooSlow) => self.run_once(rule, input, now),
            answer => answer,
        }
    }

    fn run_once(&self, rule: &str, input: Value, now: Millis) -> Result<(Value, Printed), EvaluationError> {
        let mut engine = self.idle.lock().pop().unwrap_or_else(|| self.prepared.clone());
        functions::set_now(now);
        // An engine that panicked is dropped: its state is unknown.
        let result = panic::catch_unwind(AssertUnwindSafe(|| {
            engine.set_input(input);
            let value = engine.eval_rule(rule.to_owned());
            // The next evaluation must not see data of this job.
            engine.set_input(Value::Undefined);
            let printed = engine.take_prints().unwrap_or_default();
            (value, printed, engine)
        }));
        let (value, mut printed, engine) = result.map_err(|_| EvaluationError::Panicked)?;
        let mut idle = self.idle.lock();
        if idle.len() < limits::IDLE_EVALUATORS_MAX {
            idle.push(engine);
        }
        drop(idle);
        printed.truncate(limits::PRINTED_LINES_MAX);
        match value {
            Ok(value) => Ok((value, printed)),
            Err(error) if error.downcast_ref::<LimitError>().is_some() => Err(EvaluationError::TooSlow),
            Err(error) => Err(EvaluationError::Failed(LoadError::from_parser("the rules", &error).to_string())),
        }
    }
}
