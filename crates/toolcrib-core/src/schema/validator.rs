//! Arguments against a tool's schema. What that takes is known before it is begun: see [`cost`](super::cost).

use std::sync::{Arc, OnceLock};

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::cost::{BACKTRACK_LIMIT, Cost, CostModel, MAX_DEPTH, MAX_EXPANDED_PATHS, Unbounded};
use crate::text::shown_short;

/// Maximum steps of one validation, a few tenths of a second at most.
const MAX_STEPS: u64 = 1_000_000;
/// Maximum steps of a validation on an async worker, well below a millisecond.
const MAX_INLINE_STEPS: u64 = 2_000;
/// Maximum memory of the errors that one validation collects. `jsonschema` collects all of them, those inside
/// alternatives too, before the first can be read.
const MAX_ERROR_BYTES: u64 = 16 * 1024 * 1024;
/// Size of one such error without its path, measured.
const ERROR_BYTES: u64 = 800;
/// Maximum number of faults in a list.
const MAX_FAULTS: usize = 50;
/// Maximum number of allowed values that a fault names.
const MAX_CHOICES: usize = 24;

/// A schema ready to validate arguments. It is compiled by the first of them.
#[derive(Debug)]
pub struct Validator {
    schema: Arc<RawValue>,
    cost: Result<CostModel, Unbounded>,
    /// `None` for a schema that cannot be compiled: the source decides about its arguments.
    compiled: OnceLock<Option<jsonschema::Validator>>,
}

/// Outcome of a validation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Validation {
    Valid,
    Invalid(Vec<Fault>),
    /// Validation would take too long. Holds the reason, as a note for the caller.
    Skipped(String),
}

/// What is wrong with an argument, and where: `/repo/name`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    pub path: String,
    pub message: String,
}

impl Validator {
    /// Linear in the schema.
    pub fn new(schema: Arc<RawValue>) -> Validator {
        let parsed = serde_json::from_str::<Value>(schema.get());
        let cost = parsed.map_or(Err(Unbounded::Unreadable), |parsed| CostModel::new(&parsed));
        Validator { schema, cost, compiled: OnceLock::new() }
    }

    /// Returns why no arguments are validated against this schema, where that is so.
    pub fn note(&self) -> Option<String> {
        self.cost.as_ref().err().map(|reason| not_validated(*reason))
    }

    /// Validates if that is cheap enough for an async worker. `None` means: call [`Self::validate`] on a blocking thread.
    pub fn validate_inline(&self, arguments: &Value) -> Option<Validation> {
        let Ok(model) = &self.cost else { return Some(self.validate(arguments)) };
        self.compiled.get()?;
        model.cost(arguments, MAX_INLINE_STEPS)?;
        Some(self.validate(arguments))
    }

    /// Validates within a bounded number of steps.
    pub fn validate(&self, arguments: &Value) -> Validation {
        if !arguments.is_object() {
            let message = "the arguments must be a JSON object".into();
            return Validation::Invalid(vec![Fault { path: "/".into(), message }]);
        }
        let model = match &self.cost {
            Ok(model) => model,
            Err(reason) => return Validation::Skipped(not_validated(*reason)),
        };
        let Some(cost) = model.cost(arguments, MAX_STEPS) else {
            let reason = format!("with this schema they would take more than {MAX_STEPS} steps or {MAX_DEPTH} levels");
            return Validation::Skipped(format!("arguments were not validated: {reason}"));
        };
        let Some(compiled) = self.compiled() else { return Validation::Valid };
        if compiled.is_valid(arguments) {
            return Validation::Valid;
        }
        Validation::Invalid(list_faults(compiled, arguments, cost))
    }

    fn compiled(&self) -> Option<&jsonschema::Validator> {
        let compile = || {
            let schema: Value = serde_json::from_str(self.schema.get()).ok()?;
            let patterns = jsonschema::PatternOptions::fancy_regex().backtrack_limit(BACKTRACK_LIMIT);
            jsonschema::options().with_pattern_options(patterns).build(&schema).ok()
        };
        self.compiled.get_or_init(compile).as_ref()
    }
}

fn not_validated(reason: Unbounded) -> String {
    let reason = match reason {
        Unbounded::Paths => format!("the schema expands to more than {MAX_EXPANDED_PATHS} paths"),
        Unbounded::Depth => format!("references in the schema are circular or nest deeper than {MAX_DEPTH} levels"),
        Unbounded::Reference => "a reference in the schema cannot be resolved within it".to_owned(),
        Unbounded::Unreadable => "the schema cannot be read".to_owned(),
    };
    format!("arguments are not validated: {reason}")
}

/// Lists what is wrong with arguments that are known to be invalid.
fn list_faults(compiled: &jsonschema::Validator, arguments: &Value, cost: Cost) -> Vec<Fault> {
    if cost.steps.saturating_mul(ERROR_BYTES + cost.path_bytes as u64) > MAX_ERROR_BYTES {
        let message = "the arguments do not match the schema, which is too large to say where";
        return vec![Fault { path: "/".into(), message: message.into() }];
    }
    let errors = compiled.iter_errors(arguments).take(MAX_FAULTS);
    let mut faults: Vec<Fault> = errors.flat_map(|error| describe(&error)).collect();
    faults.sort_by(|a, b| a.path.cmp(&b.path));
    faults
}

fn describe(error: &jsonschema::ValidationError<'_>) -> Vec<Fault> {
    use jsonschema::error::ValidationErrorKind as Kind;

    let at = error.instance_path().as_str();
    let fault = |path: String, message: String| Fault { path, message };
    #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum; its own words do for all other kinds")]
    match error.kind() {
        Kind::Enum { options } => {
            let listed = options.as_array().map(Vec::as_slice).unwrap_or_default();
            let shown: Vec<String> =
                listed.iter().take(MAX_CHOICES).map(|choice| shown_short(&choice.to_string(), 60)).collect();
            let more = listed.len().saturating_sub(MAX_CHOICES);
            let more = if more > 0 { format!(" or {more} more") } else { String::new() };
            let path = if at.is_empty() { "/" } else { at };
            let given = shown_short(&error.instance().to_string(), 80);
            vec![fault(path.to_owned(), format!("{given} is not one of {}{more}", shown.join(", ")))]
        }
        Kind::Required { property } => {
            vec![fault(format!("{at}/{}", property.as_str().unwrap_or_default()), "is required".into())]
        }
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => unexpected
            .iter()
            .map(|name| fault(format!("{at}/{}", shown_short(name, 80)), "is not an argument of this tool".into()))
            .collect(),
        _ => {
            let path = if at.is_empty() { "/" } else { at };
            vec![fault(path.to_owned(), shown_short(&error.to_string(), 300))]
        }
    }
}

#[cfg(test)]
mod tests;
