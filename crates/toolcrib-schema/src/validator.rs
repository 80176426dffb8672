//! Validation of arguments against a tool's schema. Computes the [`cost`](super::cost) first, so that no schema
//! occupies a thread or fills the memory.
//!
//! Whatever cannot be validated within the limits is not rejected: the call goes to the source with a note
//! ([`ValidationOutcome::Unvalidated`]), and the source decides.

mod digits;
mod variants;

use std::sync::{Arc, OnceLock};

use jsonschema::PatternOptions;
use jsonschema::error::{ValidationError, ValidationErrorKind};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolcrib_core::json::{approximate, parse_exact, unescape_pointer_token};
use toolcrib_core::text::sanitize_truncated;

use digits::restore_digits;

use super::cost::{BACKTRACK_LIMIT, CostModel, MAX_EXPANDED_PATHS, MAX_SUBSCHEMA_DEPTH, Unbounded};

/// Maximum steps of one validation, some tenths of a second.
const MAX_VALIDATION_STEPS: u64 = 1_000_000;
/// Maximum steps if a match may stay unfinished, since validation then runs up to 64 times.
const MAX_BACKTRACKING_STEPS: u64 = MAX_VALIDATION_STEPS / 8;
/// Maximum steps of a validation on an async worker, well below a millisecond.
const MAX_INLINE_STEPS: u64 = 2_000;
/// Maximum memory of the errors that one validation collects. `jsonschema` collects all of them, those inside
/// alternatives too, before the first can be read.
const MAX_ERROR_BYTES: u64 = 16 * 1024 * 1024;
/// Maximum memory of errors if validation runs up to 64 times: the errors of all runs are in memory together.
const MAX_BACKTRACKING_ERROR_BYTES: u64 = MAX_ERROR_BYTES / 64;
/// Maximum size of one compiled pattern.
const MAX_PATTERN_BYTES: usize = 8 * 1024 * 1024;
/// Maximum number of faults in a list.
const MAX_LISTED_ERRORS: usize = 50;
/// Maximum number of allowed values that a fault names.
const MAX_LISTED_CHOICES: usize = 24;

/// A schema ready to validate arguments. Compiled on the first validation.
#[derive(Debug)]
pub struct Validator {
    schema: Arc<RawValue>,
    /// `Err` for a schema that is too expensive for any arguments.
    cost: Result<CostModel, Unbounded>,
    /// `None` for a schema that cannot be compiled: the source decides about its arguments.
    compiled: OnceLock<Option<jsonschema::Validator>>,
}

/// Outcome of a validation that found no errors: the arguments may be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValidationOutcome {
    /// The arguments match the schema.
    Valid,
    /// Validation was skipped. Holds the reason, as a note for the caller.
    Unvalidated(String),
}

/// An invalid argument and its path: `/repo/name`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct ArgumentError {
    /// JSON pointer of the argument, `/` for all arguments.
    pub path: String,
    /// Reason, for people and agents.
    pub message: String,
}

impl Validator {
    /// Computes the cost model of a schema, in linear time.
    pub fn new(schema: Arc<RawValue>) -> Validator {
        let cost = parse_schema(&schema).map_or(Err(Unbounded::Unreadable), |parsed| CostModel::new(&parsed));
        Validator { schema, cost, compiled: OnceLock::new() }
    }

    /// Returns why arguments cannot be validated against this schema, if so.
    pub fn note(&self) -> Option<String> {
        self.cost.as_ref().err().map(|reason| unvalidated_note(*reason))
    }

    /// Validates on an async worker, if that is cheap. Returns `None` if it takes longer or the arguments are invalid:
    /// call [`Self::validate`] on a blocking thread.
    pub fn accept_inline(&self, arguments: &Value) -> Option<ValidationOutcome> {
        let model = match &self.cost {
            Ok(model) => model,
            Err(reason) => return Some(ValidationOutcome::Unvalidated(unvalidated_note(*reason))),
        };
        // Integers of more than 64 bits are compared as floats.
        let approximated = approximate(arguments);
        let arguments = approximated.as_ref().unwrap_or(arguments);
        // Compiling takes too long for an async worker, so the first validation goes to a blocking thread.
        let compiled = self.compiled.get()?.as_ref()?;
        let is_object = arguments.is_object();
        // Compiled before, few steps, and valid: the usual case needs no blocking thread.
        let is_cheap = || model.validation_steps(arguments, MAX_INLINE_STEPS).is_some();
        (is_object && is_cheap() && compiled.is_valid(arguments)).then_some(ValidationOutcome::Valid)
    }

    /// Validates within a bounded number of steps.
    pub fn validate(&self, arguments: &Value) -> Result<ValidationOutcome, Vec<ArgumentError>> {
        if !arguments.is_object() {
            return Err(vec![ArgumentError::new("/", "the arguments must be a JSON object")]);
        }
        let model = match &self.cost {
            Ok(model) => model,
            Err(reason) => return Ok(ValidationOutcome::Unvalidated(unvalidated_note(*reason))),
        };
        let exact_arguments = arguments;
        let approximated = approximate(arguments);
        let arguments = approximated.as_ref().unwrap_or(arguments);
        // Computed before compiling: a schema too expensive for these arguments may be fine for others.
        let max_steps = if model.has_backtracking() { MAX_BACKTRACKING_STEPS } else { MAX_VALIDATION_STEPS };
        if model.validation_steps(arguments, max_steps).is_none() {
            let reason = format!("that would take more than {max_steps} steps or {MAX_SUBSCHEMA_DEPTH} levels");
            return Ok(ValidationOutcome::Unvalidated(format!("these arguments were not validated: {reason}")));
        }
        let Some(compiled) = self.compiled() else {
            let reason = "the schema is not a valid JSON Schema";
            return Ok(ValidationOutcome::Unvalidated(format!("arguments are not validated: {reason}")));
        };
        if compiled.is_valid(arguments) {
            return Ok(ValidationOutcome::Valid);
        }
        list_errors(compiled, model, arguments).map_err(|errors| {
            let schema: Value = parse_exact(self.schema.get()).unwrap_or_default();
            restore_digits(errors, [&schema, exact_arguments])
        })
    }

    /// Validates arguments and returns them, without invalid `null`s: those count as absent, because models with strict
    /// schemas must name every argument and send `null` for those they leave out.
    ///
    /// # Errors
    /// The arguments as they were, with the reasons.
    pub fn validate_without_nulls(
        &self,
        arguments: Value,
    ) -> Result<(Value, ValidationOutcome), (Value, Vec<ArgumentError>)> {
        let faults = match self.validate(&arguments) {
            Ok(accepted) => return Ok((arguments, accepted)),
            Err(faults) => faults,
        };
        // Remove the `null`s that the faults point at, and validate again.
        let mut rest = arguments.clone();
        let mut removed = faults.iter().filter(|fault| remove_null(&mut rest, &fault.path)).count();
        // The list of faults is limited; the `null`s may be among those that it left out.
        if let (0, Value::Object(members)) = (removed, &mut rest) {
            let before = members.len();
            members.retain(|_, value| !value.is_null());
            removed = before - members.len();
        }
        // Only if the rest is valid; otherwise the faults of the original arguments are returned, which the caller can
        // relate to what it sent.
        if removed > 0
            && let Ok(accepted) = self.validate(&rest)
        {
            return Ok((rest, accepted));
        }
        Err((arguments, faults))
    }

    /// Compiles the schema on first use.
    fn compiled(&self) -> Option<&jsonschema::Validator> {
        let compile = || {
            let schema = parse_schema(&self.schema)?;
            let patterns = PatternOptions::fancy_regex().backtrack_limit(BACKTRACK_LIMIT).size_limit(MAX_PATTERN_BYTES);
            jsonschema::options().with_pattern_options(patterns).build(&schema).ok()
        };
        self.compiled.get_or_init(compile).as_ref()
    }
}

/// Removes the `null` at a JSON pointer. Returns whether there was one. Elements of arrays are not removed, because
/// that would move the elements behind them.
fn remove_null(arguments: &mut Value, path: &str) -> bool {
    let Some((parent, key)) = path.rsplit_once('/') else { return false };
    let key = unescape_pointer_token(key);
    match arguments.pointer_mut(parent) {
        Some(Value::Object(fields)) if fields.get(&key).is_some_and(Value::is_null) => {
            fields.shift_remove(&key).is_some()
        }
        _ => false,
    }
}

/// Parses a schema; integers of more than 64 bits become floats.
fn parse_schema(schema: &RawValue) -> Option<Value> {
    let schema: Value = parse_exact(schema.get()).ok()?;
    Some(approximate(&schema).unwrap_or(schema))
}

/// Whether the validator can compile a pattern into at most `max_bytes`. One that it cannot compile would invalidate the
/// whole schema.
pub fn can_compile_pattern(pattern: &str, max_bytes: usize) -> bool {
    let patterns = PatternOptions::fancy_regex().size_limit(max_bytes);
    jsonschema::options().with_pattern_options(patterns).build(&json!({ "pattern": pattern })).is_ok()
}

impl ArgumentError {
    /// Returns an error at a path.
    fn new(path: impl Into<String>, message: impl Into<String>) -> ArgumentError {
        ArgumentError { path: path.into(), message: message.into() }
    }
}

/// Describes why arguments are not validated, for callers.
fn unvalidated_note(reason: Unbounded) -> String {
    let reason = match reason {
        Unbounded::Paths => format!("the schema expands to more than {MAX_EXPANDED_PATHS} paths"),
        Unbounded::Depth => {
            format!("references in the schema are circular or nest deeper than {MAX_SUBSCHEMA_DEPTH} levels")
        }
        Unbounded::Reference => {
            "a reference in the schema cannot be resolved, or a subschema has an `$id` of its own".to_owned()
        }
        Unbounded::Compilation => "compiling the schema would take too long".to_owned(),
        Unbounded::Unreadable => "the schema cannot be read".to_owned(),
    };
    format!("arguments are not validated: {reason}")
}

/// Lists the errors of invalid arguments. A match that did not finish is not an error: it may have succeeded.
fn list_errors(
    compiled: &jsonschema::Validator,
    model: &CostModel,
    arguments: &Value,
) -> Result<ValidationOutcome, Vec<ArgumentError>> {
    let max_bytes = if model.has_backtracking() { MAX_BACKTRACKING_ERROR_BYTES } else { MAX_ERROR_BYTES };
    let can_list =
        model.error_list_cost(arguments, MAX_VALIDATION_STEPS).is_some_and(|cost| cost.error_bytes <= max_bytes);
    let unfinished =
        || Ok(ValidationOutcome::Unvalidated("these arguments were not validated: a pattern takes too long".into()));
    // `is_valid` is false for an unfinished match too, so without a list the arguments may be valid.
    if !can_list && model.has_backtracking() {
        return unfinished();
    }
    if !can_list {
        let message = "the arguments do not match the schema; there are too many errors to list";
        return Err(vec![ArgumentError::new("/", message)]);
    }
    let reported = compiled.iter_errors(arguments).filter(|error| !is_unfinished(error)).take(MAX_LISTED_ERRORS);
    let mut errors: Vec<ArgumentError> =
        reported.flat_map(|error| describe_error(&error)).take(MAX_LISTED_ERRORS).collect();
    if errors.is_empty() {
        return unfinished();
    }
    errors.sort_by(|a, b| a.path.cmp(&b.path));
    Err(errors)
}

/// Returns whether an error only says that a regular expression hit its limit.
fn is_unfinished(error: &ValidationError<'_>) -> bool {
    matches!(
        error.kind(),
        ValidationErrorKind::BacktrackLimitExceeded { .. } | ValidationErrorKind::RegexEngineFailure { .. }
    )
}

/// Converts an error of `jsonschema` into errors with a path per argument, not more than are listed.
fn describe_error(error: &ValidationError<'_>) -> Vec<ArgumentError> {
    use ValidationErrorKind as Kind;

    let parent = error.instance_path().as_str();
    let path = if parent.is_empty() { "/" } else { parent };
    #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum; its own words do for all other kinds")]
    let mut errors = match error.kind() {
        Kind::Enum { options } => {
            let choices: Vec<&Value> = options.as_array().into_iter().flatten().collect();
            vec![enum_error(path, error.instance(), &choices)]
        }
        Kind::Required { property } => {
            vec![ArgumentError::new(format!("{parent}/{}", property.as_str().unwrap_or_default()), "is required")]
        }
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => unexpected
            .iter()
            .take(MAX_LISTED_ERRORS)
            .map(|name| format!("{parent}/{}", sanitize_truncated(name, 80)))
            .map(|path| ArgumentError::new(path, "is not an argument of this tool"))
            .collect(),
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
            variants::describe_variant_errors(parent, context).unwrap_or_else(|| vec![other_error(path, error)])
        }
        _ => vec![other_error(path, error)],
    };
    errors.truncate(MAX_LISTED_ERRORS);
    errors
}

/// Returns an error in the words of `jsonschema`.
fn other_error(path: &str, error: &ValidationError<'_>) -> ArgumentError {
    ArgumentError::new(path, sanitize_truncated(&error.to_string(), 300))
}

/// Describes a value that is none of the allowed ones.
fn enum_error(path: &str, actual: &Value, choices: &[&Value]) -> ArgumentError {
    let listed = choices.iter().take(MAX_LISTED_CHOICES).map(|choice| sanitize_truncated(&choice.to_string(), 60));
    let listed: Vec<String> = listed.collect();
    let more = choices.len().saturating_sub(MAX_LISTED_CHOICES);
    let more = if more > 0 { format!(" or {more} more") } else { String::new() };
    let actual = sanitize_truncated(&actual.to_string(), 80);
    ArgumentError::new(path, format!("{actual} is not one of {}{more}", listed.join(", ")))
}

#[cfg(test)]
mod tests;
