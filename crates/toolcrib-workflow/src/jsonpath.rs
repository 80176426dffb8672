//! JSONPath (RFC 9535) for conditions: names, indices, slices, wildcards, descendants, filters and the standard
//! functions. An own implementation, because queries come from untrusted documents: it counts the work of a query and
//! stops at a limit, which no crate offers.
//!
//! A query is a list of segments, each with selectors: `$.pets[?@.id > 1]..name` has the segments `.pets`, a filter,
//! and a descendant segment with a name. The parser is in `parse`. Two limits apply: nodes visited by one query, and
//! the [`ConditionBudget`] of the whole execution.

mod parse;

use std::borrow::Cow;
use std::cmp::Ordering;

use regex::Regex;
use serde_json::Value;

use super::budget::ConditionBudget;
use super::condition::{compare_numbers, is_any_true, is_number};
use super::lexer::ComparisonOperator;

/// A criterion of type `jsonpath`, in one of two forms.
#[derive(Debug, Clone)]
pub(super) enum JsonPathCondition {
    /// Met if the query selects any node. The standard form: a query such as `$.items[?@.n == 1]`.
    Query(JsonPathQuery),
    /// `$.token != null` is not a JSONPath query, but real documents use it. Absent values count as null then.
    Comparison(LogicalExpression),
}

/// A query: segments applied one after the other.
#[derive(Debug, Clone)]
pub(super) struct JsonPathQuery {
    /// Starts at `@`, the node that a filter tests, instead of `$`.
    relative: bool,
    segments: Vec<JsonPathSegment>,
}

/// One segment of a query, e.g. `.name` or `[0, 2]`.
#[derive(Debug, Clone)]
struct JsonPathSegment {
    /// `..`: applies the selectors to all descendants.
    descendants: bool,
    selectors: Vec<JsonPathSelector>,
}

/// Selects children of a node.
#[derive(Debug, Clone)]
enum JsonPathSelector {
    /// `.name` or `['name']`
    Name(String),
    /// `*`: all items or values.
    Wildcard,
    /// `[0]`; a negative index counts from the end.
    Index(i64),
    /// `[start:end:step]`
    Slice { start: Option<i64>, end: Option<i64>, step: i64 },
    /// `[?…]`: children for which the expression is true.
    Filter(LogicalExpression),
}

/// Expression of a filter.
#[derive(Debug, Clone)]
pub(super) enum LogicalExpression {
    /// `||`
    Any(Vec<LogicalExpression>),
    /// `&&`
    All(Vec<LogicalExpression>),
    Not(Box<LogicalExpression>),
    /// True if the query selects any node. A query without comparison, as in `[?@.tags]`.
    Exists(JsonPathQuery),
    Compare(JsonPathOperand, ComparisonOperator, JsonPathOperand),
    /// Functions `match` (whole text) and `search`. The pattern must be a literal, so it is compiled once.
    Matches(JsonPathOperand, Regex),
}

/// Operand of a comparison.
#[derive(Debug, Clone)]
pub(super) enum JsonPathOperand {
    Literal(Value),
    /// Value of the only selected node; absent if there are none or several.
    Query(JsonPathQuery),
    /// Function `length`.
    Length(Box<JsonPathOperand>),
    /// Function `count`.
    Count(JsonPathQuery),
}

impl JsonPathCondition {
    /// Parses a condition. The error is a message for people.
    pub(super) fn parse(text: &str) -> Result<JsonPathCondition, String> {
        parse::parse_condition(text)
    }

    /// Evaluates the condition for a value. Fails at the limits on work.
    pub(super) fn evaluate(&self, root: &Value, budget: &ConditionBudget) -> Result<bool, String> {
        let mut evaluator = JsonPathEvaluator { root, visits_left: MAX_VISITED_NODES, absent_value: None, budget };
        let result = match self {
            JsonPathCondition::Query(query) => evaluator.select(query, root).map(|nodes| !nodes.is_empty()),
            JsonPathCondition::Comparison(expression) => {
                // In `$.token != null`, an absent token must not count as different from null.
                evaluator.absent_value = Some(&Value::Null);
                evaluator.evaluate(expression, root)
            }
        };
        // Visits count against the shared budget too, so that many cheap queries are bounded as well.
        budget.spend(MAX_VISITED_NODES - evaluator.visits_left)?;
        result
    }
}

/// Maximum number of nodes that one query visits, filters included. Half of the steps of a [`ConditionBudget`].
const MAX_VISITED_NODES: usize = 1_000_000;

/// Evaluates one query.
struct JsonPathEvaluator<'a> {
    /// `$`
    root: &'a Value,
    visits_left: usize,
    /// Value that replaces absent ones in comparisons.
    absent_value: Option<&'a Value>,
    /// Budget for operations that cost more than a visit: a filter may compare or match the same large value for each
    /// node.
    budget: &'a ConditionBudget,
}

impl<'a> JsonPathEvaluator<'a> {
    /// Counts one visited node; fails at the limit.
    fn count_visit(&mut self) -> Result<(), String> {
        self.visits_left = self.visits_left.checked_sub(1).ok_or("the JSONPath query takes too many steps")?;
        Ok(())
    }

    /// Nodes that a query selects, starting at `current` if it is relative.
    fn select(&mut self, query: &JsonPathQuery, current: &'a Value) -> Result<Vec<&'a Value>, String> {
        // Each segment maps the list of nodes to the next one. A node can be selected more than once, as in RFC 9535.
        let mut nodes = vec![if query.relative { current } else { self.root }];
        for segment in &query.segments {
            if segment.descendants {
                nodes = self.with_descendants(&nodes)?;
            }
            let mut next = Vec::new();
            for node in nodes {
                for selector in &segment.selectors {
                    self.apply_selector(selector, node, &mut next)?;
                }
            }
            nodes = next;
        }
        Ok(nodes)
    }

    /// The nodes and all of their descendants. Iterative, because values can be nested deeply.
    fn with_descendants(&mut self, nodes: &[&'a Value]) -> Result<Vec<&'a Value>, String> {
        let mut all = Vec::new();
        let mut pending: Vec<&'a Value> = nodes.iter().rev().copied().collect();
        while let Some(node) = pending.pop() {
            self.count_visit()?;
            all.push(node);
            // Siblings come out last first. Conditions test only whether nodes are selected, and how many.
            pending.extend(children(node));
        }
        Ok(all)
    }

    /// Appends the children that a selector selects.
    fn apply_selector(
        &mut self,
        selector: &JsonPathSelector,
        node: &'a Value,
        selected: &mut Vec<&'a Value>,
    ) -> Result<(), String> {
        // Also counted if nothing is selected: a filter inside may run for each of many nodes.
        self.count_visit()?;
        match selector {
            JsonPathSelector::Name(name) => selected.extend(node.as_object().and_then(|object| object.get(name))),
            JsonPathSelector::Index(index) => {
                let items = node.as_array().map(Vec::as_slice).unwrap_or_default();
                selected.extend(resolve_index(*index, items.len()).and_then(|position| items.get(position)));
            }
            JsonPathSelector::Wildcard => {
                for child in children(node) {
                    self.count_visit()?;
                    selected.push(child);
                }
            }
            JsonPathSelector::Slice { start, end, step } => {
                let items = node.as_array().map(Vec::as_slice).unwrap_or_default();
                for position in slice_positions(*start, *end, *step, items.len()) {
                    self.count_visit()?;
                    selected.extend(items.get(position));
                }
            }
            JsonPathSelector::Filter(filter) => {
                for child in children(node) {
                    self.count_visit()?;
                    if self.evaluate(filter, child)? {
                        selected.push(child);
                    }
                }
            }
        }
        Ok(())
    }

    /// Evaluates an expression for the node `current` (`@`).
    fn evaluate(&mut self, expression: &LogicalExpression, current: &'a Value) -> Result<bool, String> {
        match expression {
            LogicalExpression::Any(parts) => is_any_true(parts, |part| self.evaluate(part, current)),
            LogicalExpression::All(parts) => Ok(!is_any_true(parts, |part| Ok(!self.evaluate(part, current)?))?),
            LogicalExpression::Not(inner) => Ok(!self.evaluate(inner, current)?),
            LogicalExpression::Exists(query) => Ok(!self.select(query, current)?.is_empty()),
            LogicalExpression::Compare(left, operator, right) => {
                let left = self.evaluate_operand(left, current)?;
                let right = self.evaluate_operand(right, current)?;
                for value in [&left, &right].into_iter().flatten() {
                    self.budget.spend_on_comparison(value)?;
                }
                Ok(operator
                    .compare_in_query(left.as_deref().or(self.absent_value), right.as_deref().or(self.absent_value)))
            }
            LogicalExpression::Matches(operand, pattern) => {
                let value = self.evaluate_operand(operand, current)?;
                let value = value.as_deref().filter(|value| !is_number(value));
                let text = value.and_then(Value::as_str).filter(|text| text.len() <= MAX_MATCHED_TEXT_LEN);
                self.budget.spend_on_match(text.unwrap_or_default())?;
                Ok(text.is_some_and(|text| pattern.is_match(text)))
            }
        }
    }

    /// Value of an operand; `None` if it is absent.
    fn evaluate_operand<'q>(
        &mut self,
        operand: &'q JsonPathOperand,
        current: &'a Value,
    ) -> Result<Option<Cow<'q, Value>>, String>
    where
        'a: 'q,
    {
        self.count_visit()?;
        let number = |number: usize| Some(Cow::Owned(number.into()));
        Ok(match operand {
            JsonPathOperand::Literal(value) => Some(Cow::Borrowed(value)),
            // RFC 9535 allows only singular queries here; others give no value instead of an error.
            JsonPathOperand::Query(query) => match self.select(query, current)?.as_slice() {
                [only] => Some(Cow::Borrowed(*only)),
                _ => None,
            },
            JsonPathOperand::Count(query) => number(self.select(query, current)?.len()),
            JsonPathOperand::Length(inner) => match self.evaluate_operand(inner, current)?.as_deref() {
                Some(text @ Value::String(characters)) if !is_number(text) => {
                    self.budget.spend_on_comparison(text)?;
                    number(characters.chars().count())
                }
                Some(Value::Array(items)) => number(items.len()),
                Some(Value::Object(object)) => number(object.len()),
                Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => None,
            },
        })
    }
}

/// Maximum length of a text in bytes; longer ones match no pattern. An error would fail the whole query for one long
/// text.
const MAX_MATCHED_TEXT_LEN: usize = 1024 * 1024;

/// Comparison in JSONPath: strings are case-sensitive, and absent values are equal to each other only.
impl ComparisonOperator {
    /// Compares strictly, as RFC 9535 specifies.
    fn compare_in_query(self, left: Option<&Value>, right: Option<&Value>) -> bool {
        self.accepts(match (left, right) {
            (Some(left), Some(right)) if is_number(left) && is_number(right) => compare_numbers(left, right),
            (Some(Value::String(left)), Some(Value::String(right))) => Some(left.cmp(right)),
            (left, right) => (left == right).then_some(Ordering::Equal),
        })
    }
}

/// Items of an array or values of an object.
fn children(node: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match node {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(object) => Box::new(object.values()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Box::new(std::iter::empty()),
    }
}

/// Position for an index, which counts from the end if negative.
fn resolve_index(index: i64, length: usize) -> Option<usize> {
    let length = i64::try_from(length).ok()?;
    usize::try_from(if index < 0 { index.checked_add(length)? } else { index }).ok()
}

/// Positions that `start:end:step` selects, in order; none for step 0.
fn slice_positions(start: Option<i64>, end: Option<i64>, step: i64, length: usize) -> Box<dyn Iterator<Item = usize>> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    // Bounds as RFC 9535 computes them, with saturation instead of overflow for extreme indices.
    let normalize = |index: i64| if index < 0 { index.saturating_add(length) } else { index };
    let stride = usize::try_from(step.unsigned_abs()).unwrap_or(usize::MAX);
    let positions: Box<dyn Iterator<Item = i64>> = if stride == 0 {
        Box::new(std::iter::empty())
    } else if step > 0 {
        let lower = normalize(start.unwrap_or(0)).clamp(0, length);
        let upper = end.map_or(length, normalize).clamp(0, length);
        Box::new((lower..upper).step_by(stride))
    } else {
        let upper = start.map_or(length - 1, normalize).clamp(-1, length - 1);
        let lower = end.map_or(-1, normalize).clamp(-1, length - 1);
        Box::new((lower + 1..upper + 1).rev().step_by(stride))
    };
    Box::new(positions.filter_map(|position| usize::try_from(position).ok()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn select_values(text: &str, root: &Value) -> Vec<Value> {
        let Ok(JsonPathCondition::Query(query)) = JsonPathCondition::parse(text) else { panic!("{text} is no query") };
        let mut walk = JsonPathEvaluator {
            root,
            visits_left: MAX_VISITED_NODES,
            absent_value: None,
            budget: &ConditionBudget::default(),
        };
        walk.select(&query, root).unwrap().into_iter().cloned().collect()
    }

    #[test]
    fn queries_select_what_rfc_9535_specifies() {
        let root = json!({
            "pets": [{"id": 1, "name": "rex", "tags": ["a"]}, {"id": 2, "name": "Bo"}, {"id": 3, "name": "mo", "sold": false}],
            "total": 3, "it's": {"deep": [1, [2]]}, "limit": 2
        });
        for (query, expected) in [
            ("$.total", json!([3])),
            ("$['pets'][0].name", json!(["rex"])),
            ("$[\"it's\"].deep[0]", json!([1])),
            ("$['it\\'s'].deep[-1][0]", json!([2])),
            ("$.pets[*].id", json!([1, 2, 3])),
            ("$.pets[0,2].id", json!([1, 3])),
            ("$.pets[1:].id", json!([2, 3])),
            ("$.pets[:2].id", json!([1, 2])),
            ("$.pets[::-1].id", json!([3, 2, 1])),
            ("$.pets[::0].id", json!([])),
            ("$..deep..[0]", json!([1, 2])),
            ("$.pets[?@.name == 'rex'].id", json!([1])),
            ("$.pets[?@.name == 'REX'].id", json!([])),
            ("$.pets[?(@.id > 1 && @.id <= 3)].id", json!([2, 3])),
            ("$.pets[?@.tags].id", json!([1])),
            ("$.pets[?!@.tags].id", json!([2, 3])),
            ("$.pets[?@.sold == false].id", json!([3])),
            ("$.pets[?@.sold != false].id", json!([1, 2])),
            ("$.pets[?@.id >= $.limit].id", json!([2, 3])),
            ("$.pets[?length(@.name) == 2].id", json!([2, 3])),
            ("$.pets[?count(@.*) > 2].id", json!([1, 3])),
            ("$.pets[?match(@.name, '[a-z]+')].id", json!([1, 3])),
            ("$.pets[?search(@.name, 'o') || @.id == 1].id", json!([1, 2, 3])),
            ("$[?count(@) > 0].deep", json!([[1, [2]]])),
            ("$[?@ == 3]", json!([3])),
            ("$[?value(@..name) == 'rex']", json!([])),
            ("$.nope", json!([])),
            ("$", json!([root.clone()])),
        ] {
            assert_eq!(json!(select_values(query, &root)), expected, "{query}");
        }
    }

    #[test]
    fn a_malformed_query_is_rejected_with_the_reason() {
        for (text, reason) in [
            ("pets", "`pets` is not a literal"),
            ("$.pets[", "the JSONPath query ends too early"),
            ("$.pets[?@.id ==]", "unexpected `]` in the JSONPath query"),
            ("$.pets x", "unexpected `x` in the JSONPath query"),
            ("$.pets[?size(@) > 1]", "unknown function `size`"),
            ("$.pets[?match(@.name, @.x)]", "a pattern must be a literal"),
            ("$.pets[?1]", "a literal alone is not a condition"),
            ("$.pets[99999999999999999999]", "`99999999999999999999` is not an index"),
            (&format!("$[?{}", "(".repeat(100)), "the JSONPath query is nested deeper than 16 levels"),
            (&format!("${}", "[?@".repeat(100)), "the JSONPath query is nested deeper than 16 levels"),
        ] {
            assert_eq!(JsonPathCondition::parse(text).map(|_| ()), Err(reason.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_bare_comparison_is_evaluated_as_a_condition() {
        let root = json!({"token": "t", "none": null, "list": [1]});
        for (text, expected) in [
            ("$.token != null", true),
            ("$.none != null", false),
            ("$.gone != null", false),
            ("$.gone == null", true),
            ("$.list.length == 1 || length($.list) == 1", true),
            ("$.token == 't' && $.list[0] > 1", false),
            ("count($.list[*]) == 1", true),
        ] {
            let holds = |question: JsonPathCondition| question.evaluate(&root, &ConditionBudget::default());
            assert_eq!(JsonPathCondition::parse(text).and_then(holds), Ok(expected), "{text}");
        }
    }

    #[test]
    fn the_work_of_a_query_is_bounded() {
        let deep = (0..100).fold(json!([1, 2]), |inner, _| json!([inner, 1]));
        let query = JsonPathCondition::parse("$..*..*..*..*..*").unwrap();
        let too_many = |what: &str| Err(format!("{what} too many steps"));
        assert_eq!(query.evaluate(&deep, &ConditionBudget::default()), too_many("the JSONPath query takes"));
        let nested = JsonPathCondition::parse("$..[?@..[?@..[?@..x]]]").unwrap();
        assert_eq!(nested.evaluate(&deep, &ConditionBudget::default()), too_many("the JSONPath query takes"));
        let large =
            json!({"list": vec![0; 100_000], "text": "ab".repeat(400_000), "tree": vec![json!([1, "x"]); 50_000]});
        for text in [
            "$.list[?search($.text, '[ab]*a[ab]{100}c')]",
            "$.list[?$.tree != $.tree]",
            "$.list[?$.text < $.text]",
            "$.list[?length($.text) == 1]",
        ] {
            let found = JsonPathCondition::parse(text).unwrap().evaluate(&large, &ConditionBudget::default());
            assert_eq!(found, too_many("evaluating the conditions takes"), "{text}");
        }
    }

    #[test]
    fn queries_of_one_execution_share_a_budget() {
        let wide = json!(vec![0; 600_000]);
        let budget = ConditionBudget::default();
        let query = JsonPathCondition::parse("$[?@ == 1]").unwrap();
        let decided = (0..1_000).take_while(|_| query.evaluate(&wide, &budget).is_ok()).count();
        assert!(decided < 100, "{decided}");
    }
}
