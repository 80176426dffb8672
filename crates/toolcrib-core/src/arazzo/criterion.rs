//! What must hold for a step to be successful or for an action to be taken: read once, asked as often as needed.

use std::borrow::Cow;

use regex::{Regex, RegexBuilder, bytes};
use serde_json::Value;

use super::budget::ConditionBudget;
use super::condition::Condition;
use super::jsonpath::JsonPathCondition;
use crate::expression::{Scope, is_expression, resolve};
use crate::json::truncated_json;
use crate::text::sanitize_truncated;

#[derive(Debug, Clone)]
pub struct Criterion {
    /// As the document has it.
    pub condition: String,
    kind: CriterionKind,
}

#[derive(Debug, Clone)]
enum CriterionKind {
    Simple(Condition),
    Regex { context: String, pattern: Regex },
    JsonPath { context: String, condition: JsonPathCondition },
}

impl Criterion {
    pub(super) fn parse(value: &Value) -> Result<Criterion, String> {
        let text = |name: &str| value.get(name).and_then(Value::as_str);
        let condition = text("condition").ok_or("it has no `condition`")?.to_owned();
        let kind = value.get("type").map(|kind| kind.get("type").unwrap_or(kind));
        let context = || {
            let context = text("context").ok_or("it has no `context`")?;
            let inner = context.trim().trim_start_matches('{').trim_end_matches('}');
            if is_expression(inner) {
                Ok(inner.to_owned())
            } else {
                Err(format!("its context `{}` is no runtime expression", sanitize_truncated(context, 60)))
            }
        };
        let test = match kind.map(|kind| kind.as_str().unwrap_or_default()) {
            None | Some("simple") => CriterionKind::Simple(Condition::parse(&condition)?),
            Some("regex") => CriterionKind::Regex { context: context()?, pattern: compile_pattern(&condition)? },
            Some("jsonpath") => {
                CriterionKind::JsonPath { context: context()?, condition: JsonPathCondition::parse(&condition)? }
            }
            Some("xpath") => return Err("conditions in XPath are not supported".into()),
            Some(other) => {
                return Err(format!("there is no type of condition called `{}`", sanitize_truncated(other, 40)));
            }
        };
        Ok(Criterion { condition, kind: test })
    }

    /// What the condition is about, where that does not stand in it.
    pub fn context(&self) -> Option<&str> {
        match &self.kind {
            CriterionKind::Simple(_) => None,
            CriterionKind::Regex { context, .. } | CriterionKind::JsonPath { context, .. } => Some(context),
        }
    }

    /// A context that leads nowhere satisfies nothing.
    pub fn evaluate(&self, scope: &Scope<'_>, budget: &ConditionBudget) -> Result<bool, String> {
        match &self.kind {
            CriterionKind::Simple(condition) => condition.evaluate(scope, budget),
            CriterionKind::Regex { context, pattern } => {
                let Ok(value) = resolve(context, scope) else { return Ok(false) };
                let text = match value.as_str() {
                    Some(text) => Cow::Borrowed(text),
                    None => Cow::Owned(truncated_json(&value, MAX_MATCHED_TEXT_LEN + 1)),
                };
                if text.len() > MAX_MATCHED_TEXT_LEN {
                    return Err(format!(
                        "a text of more than {MAX_MATCHED_TEXT_LEN} bytes is not matched with a pattern"
                    ));
                }
                budget.spend_on_match(&text)?;
                Ok(pattern.is_match(&text))
            }
            CriterionKind::JsonPath { context, condition: question } => match resolve(context, scope) {
                Ok(value) => question.evaluate(&value, budget),
                Err(_) => Ok(false),
            },
        }
    }
}

const MAX_MATCHED_TEXT_LEN: usize = 1024 * 1024;

/// A pattern of bounded size; the engine takes time in proportion to the text, multiplied by the states that it may be
/// in at once. What is repeated by the thousand makes so many states, classes of Unicode do not, and so the size is
/// measured without these.
pub(super) fn compile_pattern(text: &str) -> Result<Regex, String> {
    const MAX_PATTERN_LEN: usize = 1000;
    const MAX_NON_UNICODE_SIZE: usize = 24 * 1024;
    const MAX_UNICODE_SIZE: usize = 128 * 1024;
    const MAX_SIZE: usize = 512 * 1024;
    if text.len() > MAX_PATTERN_LEN {
        return Err(format!("the pattern is longer than {MAX_PATTERN_LEN} characters"));
    }
    let size = |limit: usize| bytes::RegexBuilder::new(text).unicode(false).nest_limit(50).size_limit(limit).build();
    let largest = match size(MAX_NON_UNICODE_SIZE) {
        Ok(_) => MAX_SIZE,
        Err(regex::Error::CompiledTooBig(_)) => 0,
        // It needs Unicode.
        Err(_) => MAX_UNICODE_SIZE,
    };
    let built = RegexBuilder::new(text).size_limit(largest).dfa_size_limit(MAX_SIZE).nest_limit(50).build();
    built.map_err(|_| format!("`{}` is no pattern that can be used here", sanitize_truncated(text, 60)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::expression::ResponseScope;

    #[test]
    fn each_kind_of_condition_is_asked_in_its_own_way() {
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
                Err("its context `body` is no runtime expression"),
            ),
            (
                json!({"context": "$url", "condition": "(?=x)", "type": "regex"}),
                Err("`(?=x)` is no pattern that can be used here"),
            ),
            (
                json!({"context": "$url", "condition": "(a{500}){500}", "type": "regex"}),
                Err("`(a{500}){500}` is no pattern that can be used here"),
            ),
            (
                json!({"context": "$url", "condition": "[ab]*a[ab]{5000}c", "type": "regex"}),
                Err("`[ab]*a[ab]{5000}c` is no pattern that can be used here"),
            ),
            (
                json!({"context": "$response.body#/status", "condition": r"^(?:\w+|\pL\s*|.*)$", "type": "regex"}),
                Ok(true),
            ),
            (
                json!({"context": "$url", "condition": "//a", "type": "xpath"}),
                Err("conditions in XPath are not supported"),
            ),
            (json!({"condition": "x", "type": "sql"}), Err("there is no type of condition called `sql`")),
        ] {
            let found =
                Criterion::parse(&criterion).and_then(|read| read.evaluate(&scope, &ConditionBudget::default()));
            assert_eq!(found, expected.map_err(str::to_owned), "{criterion}");
        }
    }
}
