//! JSONPath (RFC 9535) as far as conditions need it: names, indices, slices, wildcards, descendants, filters and the
//! functions of the standard. Written here because a query comes from a document nobody vouches for: what it may cost
//! is counted, which no crate offers.

mod parse;

use std::borrow::Cow;
use std::cmp::Ordering;

use regex::Regex;
use serde_json::Value;

use super::budget::Budget;
use super::condition::{Comparison, order_of_numbers};

/// What a criterion asks of its context.
#[derive(Debug, Clone)]
pub(super) struct Question(Kind);

#[derive(Debug, Clone)]
enum Kind {
    /// Whether it selects anything.
    Query(Query),
    /// `$.token != null` is no query, yet documents write it. What is not there counts as null.
    Comparison(Logical),
}

#[derive(Debug, Clone)]
struct Query {
    /// From `@`, what a filter looks at, and not from `$`.
    relative: bool,
    segments: Vec<Segment>,
}

#[derive(Debug, Clone)]
struct Segment {
    descendants: bool,
    selectors: Vec<Selector>,
}

#[derive(Debug, Clone)]
enum Selector {
    Name(String),
    Wildcard,
    Index(i64),
    Slice { start: Option<i64>, end: Option<i64>, step: i64 },
    Filter(Logical),
}

#[derive(Debug, Clone)]
enum Logical {
    Any(Vec<Logical>),
    All(Vec<Logical>),
    Not(Box<Logical>),
    Exists(Query),
    Compare(Operand, Comparison, Operand),
    /// `match` (the whole text) and `search`; the pattern is a literal, compiled when it was read.
    Matches(Operand, Regex),
}

#[derive(Debug, Clone)]
enum Operand {
    Literal(Value),
    /// Of one node; of none or several, nothing.
    Query(Query),
    Length(Box<Operand>),
    Count(Query),
}

impl Question {
    pub(super) fn parse(text: &str) -> Result<Question, String> {
        parse::question(text)
    }

    pub(super) fn holds(&self, root: &Value, budget: &Budget) -> Result<bool, String> {
        let mut walk = Walk { root, visits: MOST_VISITS, absent: None, budget };
        let holds = match &self.0 {
            Kind::Query(query) => walk.select(query, root).map(|found| !found.is_empty()),
            Kind::Comparison(logical) => {
                walk.absent = Some(&Value::Null);
                walk.holds(logical, root)
            }
        };
        budget.spend(MOST_VISITS - walk.visits)?;
        holds
    }
}

/// How many nodes one query may look at, filters included.
const MOST_VISITS: usize = 1_000_000;

struct Walk<'a> {
    root: &'a Value,
    visits: usize,
    /// What stands for a value that is not there.
    absent: Option<&'a Value>,
    /// For what costs more than a visit: a filter may compare or match the same large value for each node.
    budget: &'a Budget,
}

impl<'a> Walk<'a> {
    fn visit(&mut self) -> Result<(), String> {
        self.visits = self.visits.checked_sub(1).ok_or("the JSONPath query takes too many steps")?;
        Ok(())
    }

    fn select(&mut self, query: &Query, current: &'a Value) -> Result<Vec<&'a Value>, String> {
        let mut nodes = vec![if query.relative { current } else { self.root }];
        for segment in &query.segments {
            if segment.descendants {
                nodes = self.with_descendants(&nodes)?;
            }
            let mut next = Vec::new();
            for node in nodes {
                for selector in &segment.selectors {
                    self.apply(selector, node, &mut next)?;
                }
            }
            nodes = next;
        }
        Ok(nodes)
    }

    fn with_descendants(&mut self, nodes: &[&'a Value]) -> Result<Vec<&'a Value>, String> {
        let mut all = Vec::new();
        let mut open: Vec<&'a Value> = nodes.iter().rev().copied().collect();
        while let Some(node) = open.pop() {
            self.visit()?;
            all.push(node);
            open.extend(children(node));
        }
        Ok(all)
    }

    fn apply(&mut self, selector: &Selector, node: &'a Value, found: &mut Vec<&'a Value>) -> Result<(), String> {
        self.visit()?;
        match selector {
            Selector::Name(name) => found.extend(node.as_object().and_then(|object| object.get(name))),
            Selector::Index(index) => {
                let items = node.as_array().map(Vec::as_slice).unwrap_or_default();
                found.extend(position(*index, items.len()).and_then(|position| items.get(position)));
            }
            Selector::Wildcard => {
                for child in children(node) {
                    self.visit()?;
                    found.push(child);
                }
            }
            Selector::Slice { start, end, step } => {
                let items = node.as_array().map(Vec::as_slice).unwrap_or_default();
                for position in slice(*start, *end, *step, items.len()) {
                    self.visit()?;
                    found.extend(items.get(position));
                }
            }
            Selector::Filter(logical) => {
                for child in children(node) {
                    self.visit()?;
                    if self.holds(logical, child)? {
                        found.push(child);
                    }
                }
            }
        }
        Ok(())
    }

    fn holds(&mut self, logical: &Logical, current: &'a Value) -> Result<bool, String> {
        match logical {
            Logical::Any(parts) => {
                for part in parts {
                    if self.holds(part, current)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Logical::All(parts) => {
                for part in parts {
                    if !self.holds(part, current)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Logical::Not(inner) => Ok(!self.holds(inner, current)?),
            Logical::Exists(query) => Ok(!self.select(query, current)?.is_empty()),
            Logical::Compare(left, comparison, right) => {
                let (left, right) = (self.value(left, current)?, self.value(right, current)?);
                for value in [&left, &right].into_iter().flatten() {
                    self.budget.spend_on(value)?;
                }
                Ok(comparison.holds_in_a_query(left.as_deref().or(self.absent), right.as_deref().or(self.absent)))
            }
            Logical::Matches(operand, pattern) => {
                let value = self.value(operand, current)?;
                let text = value.as_deref().and_then(Value::as_str).filter(|text| text.len() <= LONGEST_TEXT);
                self.budget.spend_on_match(text.unwrap_or_default())?;
                Ok(text.is_some_and(|text| pattern.is_match(text)))
            }
        }
    }

    fn value<'q>(&mut self, operand: &'q Operand, current: &'a Value) -> Result<Option<Cow<'q, Value>>, String>
    where
        'a: 'q,
    {
        self.visit()?;
        let number = |number: usize| Some(Cow::Owned(number.into()));
        Ok(match operand {
            Operand::Literal(value) => Some(Cow::Borrowed(value)),
            Operand::Query(query) => match self.select(query, current)?.as_slice() {
                [only] => Some(Cow::Borrowed(*only)),
                _ => None,
            },
            Operand::Count(query) => number(self.select(query, current)?.len()),
            Operand::Length(inner) => match self.value(inner, current)?.as_deref() {
                Some(text @ Value::String(characters)) => {
                    self.budget.spend_on(text)?;
                    number(characters.chars().count())
                }
                Some(Value::Array(items)) => number(items.len()),
                Some(Value::Object(object)) => number(object.len()),
                Some(Value::Null | Value::Bool(_) | Value::Number(_)) | None => None,
            },
        })
    }
}

/// Longer texts match no pattern.
const LONGEST_TEXT: usize = 1024 * 1024;

/// JSONPath tells letters apart by their case, and knows what is absent; conditions do not.
impl Comparison {
    fn holds_in_a_query(self, left: Option<&Value>, right: Option<&Value>) -> bool {
        let order = match (left, right) {
            (Some(Value::Number(left)), Some(Value::Number(right))) => order_of_numbers(left, right),
            (Some(Value::String(left)), Some(Value::String(right))) => Some(left.cmp(right)),
            (left, right) => (left == right).then_some(Ordering::Equal),
        };
        match self {
            Comparison::Equal | Comparison::LessOrEqual if order == Some(Ordering::Equal) => true,
            Comparison::Equal => false,
            Comparison::NotEqual => order != Some(Ordering::Equal),
            Comparison::Less | Comparison::LessOrEqual => order == Some(Ordering::Less),
            Comparison::Greater => order == Some(Ordering::Greater),
            Comparison::GreaterOrEqual => order.is_some_and(Ordering::is_ge),
        }
    }
}

fn children(node: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match node {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(object) => Box::new(object.values()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Box::new(std::iter::empty()),
    }
}

/// Counted from the end where it is negative.
fn position(index: i64, length: usize) -> Option<usize> {
    let length = i64::try_from(length).ok()?;
    usize::try_from(if index < 0 { index.checked_add(length)? } else { index }).ok()
}

/// The positions that `start:end:step` selects.
fn slice(start: Option<i64>, end: Option<i64>, step: i64, length: usize) -> Box<dyn Iterator<Item = usize>> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let normal = |index: i64| if index < 0 { index.saturating_add(length) } else { index };
    let stride = usize::try_from(step.unsigned_abs()).unwrap_or(usize::MAX);
    let positions: Box<dyn Iterator<Item = i64>> = if stride == 0 {
        Box::new(std::iter::empty())
    } else if step > 0 {
        let (lower, upper) = (normal(start.unwrap_or(0)).clamp(0, length), end.map_or(length, normal).clamp(0, length));
        Box::new((lower..upper).step_by(stride))
    } else {
        let upper = start.map_or(length - 1, normal).clamp(-1, length - 1);
        let lower = end.map_or(-1, normal).clamp(-1, length - 1);
        Box::new((lower + 1..upper + 1).rev().step_by(stride))
    };
    Box::new(positions.filter_map(|position| usize::try_from(position).ok()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selected(text: &str, root: &Value) -> Vec<Value> {
        let Ok(Question(Kind::Query(query))) = Question::parse(text) else { panic!("{text} is no query") };
        let mut walk = Walk { root, visits: MOST_VISITS, absent: None, budget: &Budget::default() };
        walk.select(&query, root).unwrap().into_iter().cloned().collect()
    }

    #[test]
    fn a_query_selects_what_the_standard_says() {
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
            assert_eq!(json!(selected(query, &root)), expected, "{query}");
        }
    }

    #[test]
    fn a_query_that_cannot_be_read_says_why() {
        for (text, reason) in [
            ("pets", "`pets` is no literal"),
            ("$.pets[", "the JSONPath query ends too early"),
            ("$.pets[?@.id ==]", "`]` is not expected there in a JSONPath query"),
            ("$.pets x", "`x` is not expected there in a JSONPath query"),
            ("$.pets[?size(@) > 1]", "there is no function `size`"),
            ("$.pets[?match(@.name, @.x)]", "a pattern must be a literal"),
            ("$.pets[?1]", "a literal alone is no condition"),
            ("$.pets[99999999999999999999]", "`99999999999999999999` is no index"),
            (&format!("$[?{}", "(".repeat(100)), "the JSONPath query is nested deeper than 16 levels"),
            (&format!("${}", "[?@".repeat(100)), "the JSONPath query is nested deeper than 16 levels"),
        ] {
            assert_eq!(Question::parse(text).map(|_| ()), Err(reason.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_comparison_that_is_no_query_is_taken_for_what_it_means() {
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
            let holds = |question: Question| question.holds(&root, &Budget::default());
            assert_eq!(Question::parse(text).and_then(holds), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_a_query_may_cost_is_bounded() {
        let deep = (0..100).fold(json!([1, 2]), |inner, _| json!([inner, 1]));
        let query = Question::parse("$..*..*..*..*..*").unwrap();
        let too_many = |what: &str| Err(format!("{what} too many steps"));
        assert_eq!(query.holds(&deep, &Budget::default()), too_many("the JSONPath query takes"));
        let nested = Question::parse("$..[?@..[?@..[?@..x]]]").unwrap();
        assert_eq!(nested.holds(&deep, &Budget::default()), too_many("the JSONPath query takes"));
        let large =
            json!({"list": vec![0; 100_000], "text": "ab".repeat(400_000), "tree": vec![json!([1, "x"]); 50_000]});
        for text in [
            "$.list[?search($.text, '[ab]*a[ab]{100}c')]",
            "$.list[?$.tree != $.tree]",
            "$.list[?$.text < $.text]",
            "$.list[?length($.text) == 1]",
        ] {
            let found = Question::parse(text).unwrap().holds(&large, &Budget::default());
            assert_eq!(found, too_many("deciding the conditions takes"), "{text}");
        }
    }

    #[test]
    fn queries_of_one_run_share_what_they_may_cost() {
        let (wide, budget) = (json!(vec![0; 600_000]), Budget::default());
        let query = Question::parse("$[?@ == 1]").unwrap();
        let decided = (0..1_000).take_while(|_| query.holds(&wide, &budget).is_ok()).count();
        assert!(decided < 100, "{decided}");
    }
}
