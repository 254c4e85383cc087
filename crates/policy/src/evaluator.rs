//! Runs rules: prepared once, then copied for everyone who asks at the same time, bounded in time, and never the end of
//! the thread that asks.

use std::num::NonZeroU32;
use std::panic::{self, AssertUnwindSafe};

use model::time::Millis;
use parking_lot::Mutex;
use regorus::utils::limits::ExecutionTimerConfig;
use regorus::{Engine, LimitError, Value};

use crate::analysis::{Module, Package, parse};
use crate::error::LoadError;
use crate::files::Sources;
use crate::{functions, limits, shape};

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EvaluationError {
    #[error("the rules took longer than {} ms", limits::EVALUATION_TIME_MAX.as_millis())]
    TooSlow,
    #[error("{0}")]
    Failed(String),
    #[error("the rules ran into a fault of their interpreter")]
    Panicked,
}

/// What was printed on the way to an answer.
pub(crate) type Printed = Vec<String>;

pub(crate) struct Evaluator {
    prepared: Engine,
    /// Copies that are not in use. Making one takes about as long as an answer.
    idle: Mutex<Vec<Engine>>,
}

impl Evaluator {
    /// Parses all files of a set.
    pub fn parse(sources: &Sources) -> Result<(Engine, Vec<Module>), LoadError> {
        let mut engine = Engine::new();
        // An error in a function would otherwise count as "does not apply", and the rule would not be heard.
        engine.set_strict_builtin_errors(true);
        engine.set_gather_prints(true);
        functions::install(&mut engine).map_err(|error| LoadError::from_parser("the rules", &error))?;
        for file in &sources.rules {
            shape::check(&file.name, &file.text)?;
            engine
                .add_policy(file.name.clone(), file.text.clone())
                .map_err(|error| LoadError::from_parser(&file.name, &error))?;
        }
        for file in &sources.data {
            let wrong = |message: String| LoadError::In { file: file.name.clone(), message };
            let data = Value::from_json_str(&file.text).map_err(|error| wrong(format!("it is not JSON: {error}")))?;
            let Ok(object) = data.as_object() else {
                return Err(wrong("data must be a JSON object: its names are found below `data`".to_owned()));
            };
            if object.contains_key(&Value::from("outlast")) {
                return Err(wrong("the name `outlast` belongs to the rules: choose another one".to_owned()));
            }
            engine.add_data(data).map_err(|error| wrong(format!("it contradicts another file: {error}")))?;
        }
        let tree = engine.get_ast_as_json().map_err(|error| LoadError::from_parser("the rules", &error))?;
        let modules = parse(&tree)?;
        Ok((engine, modules))
    }

    /// Prepares a set whose verdicts have these names.
    pub fn new(mut engine: Engine, verdicts: &[(Package, Vec<&str>)]) -> Result<Self, LoadError> {
        let wrong = |error: anyhow::Error| LoadError::from_parser("the rules", &error);
        let mut entry = "package outlast_entry\n".to_owned();
        for (package, names) in verdicts {
            let [outer, inner] = package.path();
            let fields: Vec<String> =
                names.iter().map(|name| format!("\"{name}\": data.{outer}.{inner}.{name}")).collect();
            entry.push_str(&format!("{inner} := {{{}}}\n", fields.join(", ")));
        }
        engine.add_policy("outlast_entry.rego".to_owned(), entry).map_err(wrong)?;
        let check_interval = NonZeroU32::new(limits::STEPS_BETWEEN_CLOCK_READS).expect("the limit is not zero");
        let limit = limits::EVALUATION_TIME_MAX;
        engine.set_execution_timer_config(ExecutionTimerConfig { limit, check_interval });
        engine.compile_with_entrypoint(&Self::entry(Package::Job).into()).map_err(wrong)?;
        Ok(Self { prepared: engine, idle: Mutex::default() })
    }

    fn entry(package: Package) -> &'static str {
        match package {
            Package::Job => "data.outlast_entry.job",
            Package::Output => "data.outlast_entry.output",
        }
    }

    /// All verdicts of a package at once.
    pub fn verdicts(&self, package: Package, input: Value, now: Millis) -> Result<(Value, Printed), EvaluationError> {
        self.run(Self::entry(package), input, now)
    }

    /// The value of one rule. It is tried once more if it took too long, for the machine may have stood still.
    pub fn run(&self, rule: &str, input: Value, now: Millis) -> Result<(Value, Printed), EvaluationError> {
        match self.run_once(rule, input.clone(), now) {
            Err(EvaluationError::TooSlow) => self.run_once(rule, input, now),
            answer => answer,
        }
    }

    fn run_once(&self, rule: &str, input: Value, now: Millis) -> Result<(Value, Printed), EvaluationError> {
        let mut engine = self.idle.lock().pop().unwrap_or_else(|| self.prepared.clone());
        functions::set_now(now);
        // An interpreter that has panicked is not used again: whatever state it was in goes with it.
        let ran = panic::catch_unwind(AssertUnwindSafe(|| {
            engine.set_input(input);
            let value = engine.eval_rule(rule.to_owned());
            // The next to use it must find nothing of this job in it.
            engine.set_input(Value::Undefined);
            let printed = engine.take_prints().unwrap_or_default();
            (value, printed, engine)
        }));
        let (value, mut printed, engine) = ran.map_err(|_| EvaluationError::Panicked)?;
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
