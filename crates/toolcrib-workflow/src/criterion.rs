//! Criteria of Arazzo: conditions for the success of a step or for taking an action. Parsed once, evaluated often.
//!
//! A criterion is one of these objects; without `type` it is simple:
//!
//! ```json
//! {"condition": "$statusCode == 200"}
//! {"context": "$response.body#/status", "condition": "^(done|failed)$", "type": "regex"}
//! {"context": "$response.body", "condition": "$.items[?@.n > 1]", "type": {"type": "jsonpath", "version": "…"}}
//! ```

use std::borrow::Cow;

use regex::{Regex, RegexBuilder, bytes};
use serde_json::Value;
use toolcrib_core::json::{long_integer, truncated_json};
use toolcrib_core::text::sanitize_truncated;
use toolcrib_openapi::expression::{Scope, is_expression, resolve};

use super::budget::ConditionBudget;
use super::condition::Condition;
use super::jsonpath::JsonPathCondition;

/// A condition with its type.
#[derive(Debug, Clone)]
pub struct Criterion {
    /// As written in the document, for messages.
    pub condition: String,
    kind: CriterionKind,
}

/// Type of a criterion. `context` is the expression whose value is tested.
#[derive(Debug, Clone)]
enum CriterionKind {
    Simple(Condition),
    Regex { context: String, pattern: Regex },
    JsonPath { context: String, condition: JsonPathCondition },
}

impl Criterion {
    /// Parses a criterion object. The error is a message for people.
    pub(super) fn parse(value: &Value) -> Result<Criterion, String> {
        let text = |name: &str| value.get(name).and_then(Value::as_str);
        let condition = text("condition").ok_or("it has no `condition`")?.to_owned();
        // `type` is a name, or an object with the name and a version. The version is not read: one dialect is
        // supported.
        let kind = value.get("type").map(|kind| kind.get("type").unwrap_or(kind));
        let context = || {
            let context = text("context").ok_or("it has no `context`")?;
            // Braces around the expression are optional, as in conditions.
            let inner = context.trim().trim_start_matches('{').trim_end_matches('}');
            if is_expression(inner) {
                Ok(inner.to_owned())
            } else {
                Err(format!("its context `{}` is not a runtime expression", sanitize_truncated(context, 60)))
            }
        };
        let criterion_kind = match kind.map(|kind| kind.as_str().unwrap_or_default()) {
            None | Some("simple") => CriterionKind::Simple(Condition::parse(&condition)?),
            Some("regex") => CriterionKind::Regex { context: context()?, pattern: compile_pattern(&condition)? },
            Some("jsonpath") => {
                CriterionKind::JsonPath { context: context()?, condition: JsonPathCondition::parse(&condition)? }
            }
            Some("xpath") => return Err("conditions in XPath are not supported".into()),
            Some(other) => {
                return Err(format!("unknown condition type `{}`", sanitize_truncated(other, 40)));
            }
        };
        Ok(Criterion { condition, kind: criterion_kind })
    }

    /// Expression whose value is tested; `None` for simple conditions, which contain their expressions.
    pub fn context(&self) -> Option<&str> {
        match &self.kind {
            CriterionKind::Simple(_) => None,
            CriterionKind::Regex { context, .. } | CriterionKind::JsonPath { context, .. } => Some(context),
        }
    }

    /// Evaluates the criterion. A context that cannot be resolved gives `false`. Fails at the limits on work.
    pub fn evaluate(&self, scope: &Scope<'_>, budget: &ConditionBudget) -> Result<bool, String> {
        match &self.kind {
            CriterionKind::Simple(condition) => condition.evaluate(scope, budget),
            CriterionKind::Regex { context, pattern } => {
                let Ok(value) = resolve(context, scope) else { return Ok(false) };
                let text = match long_integer(&value).or(value.as_str()) {
                    Some(text) => Cow::Borrowed(text),
                    // One byte more than allowed, so that a value that is too long is rejected below instead of matched
                    // in part.
                    None => Cow::Owned(truncated_json(&value, MAX_MATCHED_TEXT_LEN + 1)),
                };
                if text.len() > MAX_MATCHED_TEXT_LEN {
                    return Err(format!(
                        "a text of more than {MAX_MATCHED_TEXT_LEN} bytes cannot be matched with a pattern"
                    ));
                }
                budget.spend_on_match(&text)?;
                Ok(pattern.is_match(&text))
            }
            CriterionKind::JsonPath { context, condition } => match resolve(context, scope) {
                Ok(value) => condition.evaluate(&value, budget),
                Err(_) => Ok(false),
            },
        }
    }
}

/// Maximum length of a text that is matched with a pattern, in bytes. A longer text is an error and not a mismatch,
/// because the result would decide an action.
const MAX_MATCHED_TEXT_LEN: usize = 1024 * 1024;

/// Compiles a pattern of bounded size. Matching takes time in proportion to the text times the states that the engine
/// can be in at once. Large repetitions create many states, Unicode classes do not; so the size without Unicode is what
/// is limited.
pub(super) fn compile_pattern(text: &str) -> Result<Regex, String> {
    const MAX_PATTERN_LEN: usize = 1000;
    // Bytes of the compiled program: without Unicode; with it, where the first cannot be measured; and of any pattern.
    const MAX_NON_UNICODE_SIZE: usize = 24 * 1024;
    const MAX_UNICODE_SIZE: usize = 128 * 1024;
    const MAX_SIZE: usize = 512 * 1024;
    if text.len() > MAX_PATTERN_LEN {
        return Err(format!("the pattern is longer than {MAX_PATTERN_LEN} bytes"));
    }
    let compile_without_unicode =
        |limit: usize| bytes::RegexBuilder::new(text).unicode(false).nest_limit(50).size_limit(limit).build();
    let size_limit = match compile_without_unicode(MAX_NON_UNICODE_SIZE) {
        Ok(_) => MAX_SIZE,
        // No pattern compiles within 0 bytes, so the build below fails with the common message.
        Err(regex::Error::CompiledTooBig(_)) => 0,
        // The pattern does not compile without Unicode, so limit its size with it.
        Err(_) => MAX_UNICODE_SIZE,
    };
    let pattern = RegexBuilder::new(text).size_limit(size_limit).dfa_size_limit(MAX_SIZE).nest_limit(50).build();
    pattern.map_err(|_| format!("the pattern `{}` is invalid or too complex", sanitize_truncated(text, 60)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use toolcrib_openapi::expression::ResponseScope;

    #[test]
    fn each_type_of_criterion_is_evaluated() {
        let body = json!({"status": "done", "items": [{"n": 1}]});
        let scope = Scope {
            response: Some(ResponseScope { status: 200, headers: &[], body: Some(&body) }),
            ..Scope::default()
        };
        for (criterion, expected) in [
            (json!({"condition": "$statusCode == 200"}), Ok(true)),
            (json!({"condition": "$statusCode == 200", "type": "simple"}), Ok(true)),
            (json!({"context": "$statusCode", "condition": "^2\\d\\d$", "type": "regex"}), Ok(true)),
            (json!({"context": "$response.body#/status", "condition": "^D", "type": "regex"}), Ok(false)),
            (json!({"context": "$response.body#/nope", "condition": ".*", "type": "regex"}), Ok(false)),
            (json!({"context": "$response.body", "condition": "$.items[?@.n == 1]", "type": "jsonpath"}), Ok(true)),
            (
                json!({"context": "$response.body", "condition": "$[?count(@.*) > 5]",
                    "type": {"type": "jsonpath", "version": "draft-goessner-dispatch-jsonpath-00"}}),
                Ok(false),
            ),
            (json!({"type": "simple"}), Err("it has no `condition`")),
            (json!({"condition": "^2", "type": "regex"}), Err("it has no `context`")),
            (
                json!({"context": "body", "condition": "^2", "type": "regex"}),
                Err("its context `body` is not a runtime expression"),
            ),
            (
                json!({"context": "$url", "condition": "(?=x)", "type": "regex"}),
                Err("the pattern `(?=x)` is invalid or too complex"),
            ),
            (
                json!({"context": "$url", "condition": "(a{500}){500}", "type": "regex"}),
                Err("the pattern `(a{500}){500}` is invalid or too complex"),
            ),
            (
                json!({"context": "$url", "condition": "[ab]*a[ab]{5000}c", "type": "regex"}),
                Err("the pattern `[ab]*a[ab]{5000}c` is invalid or too complex"),
            ),
            (
                json!({"context": "$response.body#/status", "condition": r"^(?:\w+|\pL\s*|.*)$", "type": "regex"}),
                Ok(true),
            ),
            (
                json!({"context": "$url", "condition": "//a", "type": "xpath"}),
                Err("conditions in XPath are not supported"),
            ),
            (json!({"condition": "x", "type": "sql"}), Err("unknown condition type `sql`")),
        ] {
            let found =
                Criterion::parse(&criterion).and_then(|read| read.evaluate(&scope, &ConditionBudget::default()));
            assert_eq!(found, expected.map_err(str::to_owned), "{criterion}");
        }
    }
}
