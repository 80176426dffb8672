//! Draft of a group, access rule or policy: its definition as it is being edited, valid or not.
//!
//! A draft comes from fields, from YAML or from a rule in force. The names of the fields are the key paths of the
//! definition, so that each error of the parser belongs to a field:
//!
//! ```text
//! rule=support&select[0].source=zendesk*&select[0].risk=read_only
//! → support: { select: [{ source: "zendesk*", risk: [read_only] }] }
//! ```

use serde_json::{Map, Value, json};
use toolcrib::config::{REQUEST_BODY, parse_rule, rule_to_json};
use toolcrib::core::access_rules::{ClaimTest, NamedRule, RuleKind};
use toolcrib::core::fingerprint::Fingerprint;

use super::yaml::write_yaml;
use crate::console::form_data::FormData;

/// Name of the YAML text in messages, which tells the parser the syntax.
const YAML_NAME: &str = "definition.yaml";
/// Maximum number of selectors or conditions in a form.
const MAX_ROWS: usize = 200;

/// Definition that is being edited.
#[derive(Debug, Clone)]
pub(super) struct RuleDraft {
    pub(super) kind: RuleKind,
    /// The rule that is changed; `None` for a new one.
    pub(super) original: Option<OriginalRule>,
    /// Name under which it is saved.
    pub(super) name: String,
    pub(super) body: DraftBody,
}

/// The rule that a draft changes, as it was when the form was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OriginalRule {
    pub(super) name: String,
    /// Digest of its definition. Saving is refused if the rule has another one by then.
    pub(super) digest: String,
}

impl OriginalRule {
    pub(super) fn new(rule: &NamedRule) -> OriginalRule {
        OriginalRule { name: rule.name().to_owned(), digest: rule_digest(rule) }
    }

    /// Reads the fields of a submitted form.
    pub(super) fn from_form(form_data: &FormData) -> Option<OriginalRule> {
        let name = form_data.get_text("original")?.to_owned();
        Some(OriginalRule { name, digest: form_data.get("original_digest").unwrap_or_default().to_owned() })
    }
}

/// Digest of a definition with its name.
pub(super) fn rule_digest(rule: &NamedRule) -> String {
    let keys = Value::Object(to_keys(rule));
    Fingerprint::digest(format!("{} {} {keys}", rule.kind().as_str(), rule.name())).to_string()
}

/// Text or fields of a draft.
#[derive(Debug, Clone)]
pub(super) enum DraftBody {
    /// Keys of the definition, as far as they are filled in.
    Fields(Map<String, Value>),
    /// Text of the YAML editor.
    Yaml(String),
}

/// Error of a draft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DraftError {
    /// Key path of the field, such as `select[0].name`; empty for the draft as a whole.
    pub(super) field: String,
    /// Line of the YAML text; zero for fields.
    pub(super) line: usize,
    pub(super) message: String,
}

impl DraftError {
    /// Error about the draft as a whole.
    pub(super) fn general(message: impl Into<String>) -> DraftError {
        DraftError { field: String::new(), line: 0, message: message.into() }
    }

    /// Error about the name of the rule.
    pub(super) fn about_name(message: impl Into<String>) -> DraftError {
        DraftError { field: "rule".to_owned(), ..DraftError::general(message) }
    }
}

impl RuleDraft {
    /// Returns an empty draft.
    pub(super) fn empty(kind: RuleKind) -> RuleDraft {
        let keys = match kind {
            RuleKind::Group | RuleKind::Policy => Map::new(),
            RuleKind::Access => Map::from_iter([("active".to_owned(), json!(true))]),
        };
        RuleDraft { kind, original: None, name: String::new(), body: DraftBody::Fields(keys) }
    }

    /// Returns the draft that changes a rule.
    pub(super) fn from_rule(rule: &NamedRule) -> RuleDraft {
        let keys = to_keys(rule);
        let body = if fit_into_fields(&keys) { DraftBody::Fields(keys) } else { DraftBody::Yaml(write_yaml(&keys)) };
        RuleDraft { kind: rule.kind(), original: Some(OriginalRule::new(rule)), name: rule.name().to_owned(), body }
    }

    /// Reads a submitted form.
    pub(super) fn from_form(kind: RuleKind, form_data: &FormData) -> RuleDraft {
        let original = OriginalRule::from_form(form_data);
        let name = original.as_ref().map(|original| original.name.as_str()).or_else(|| form_data.get_text("rule"));
        let name = name.unwrap_or_default().to_owned();
        let body = match form_data.get("yaml") {
            Some(text) => DraftBody::Yaml(text.replace("\r\n", "\n")),
            None => DraftBody::Fields(read_fields(kind, form_data)),
        };
        RuleDraft { kind, original, name, body }
    }

    /// Parses the definition. Fails with all errors that do not depend on other rules.
    pub(super) fn parse(&self) -> Result<NamedRule, Vec<DraftError>> {
        if self.name.is_empty() {
            return Err(vec![DraftError::about_name("enter a name")]);
        }
        let (text, file) = match &self.body {
            DraftBody::Fields(keys) => (Value::Object(keys.clone()).to_string(), REQUEST_BODY),
            DraftBody::Yaml(text) if text.trim().is_empty() => ("{}".to_owned(), YAML_NAME),
            DraftBody::Yaml(text) => (text.clone(), YAML_NAME),
        };
        let is_yaml = file == YAML_NAME;
        let parsed = parse_rule(self.kind, &self.name, &text, file).map_err(|diagnostics| {
            let errors = diagnostics.into_iter().map(|diagnostic| match diagnostic.line {
                // The only error without a line is that of the name.
                0 => DraftError::about_name(diagnostic.message),
                line => DraftError {
                    field: diagnostic.key,
                    line: if is_yaml { line } else { 0 },
                    message: diagnostic.message,
                },
            });
            errors.collect::<Vec<_>>()
        })?;
        parsed.rule.check().map_err(|error| vec![DraftError::general(error.message)])?;
        Ok(parsed.rule)
    }

    /// Returns the draft in the YAML editor. What is filled in is kept, valid or not.
    pub(super) fn into_yaml(self) -> RuleDraft {
        let body = match self.body {
            DraftBody::Fields(keys) => DraftBody::Yaml(write_yaml(&keys)),
            DraftBody::Yaml(text) => DraftBody::Yaml(text),
        };
        RuleDraft { body, ..self }
    }

    /// Returns the draft with fields.
    ///
    /// # Errors
    /// Those of the text: fields can show a valid definition only.
    pub(super) fn to_fields(&self) -> Result<RuleDraft, Vec<DraftError>> {
        let keys = to_keys(&self.parse()?);
        if !fit_into_fields(&keys) {
            let message = "fields would change this definition: they have no place for a comma in a tag, for space \
                           around a text, or for a line break in a name";
            return Err(vec![DraftError::general(message)]);
        }
        Ok(RuleDraft { body: DraftBody::Fields(keys), ..self.clone() })
    }
}

/// Returns the keys of a definition that are set.
pub(super) fn to_keys(rule: &NamedRule) -> Map<String, Value> {
    let Value::Object(mut keys) = rule_to_json(rule) else { return Map::new() };
    keys.retain(|key, value| key != "name" && !is_blank(value));
    // A selector without conditions selects every tool; in a form it would be a row that is not filled in.
    for selector in keys.get_mut("select").and_then(Value::as_array_mut).into_iter().flatten() {
        if is_blank(selector) {
            *selector = json!({ "source": "*" });
        }
    }
    keys
}

/// Whether fields can show a definition, so that an untouched form is read back as the same one. A form trims texts,
/// browsers write their own line breaks, tags are separated by commas and lists by lines.
fn fit_into_fields(keys: &Map<String, Value>) -> bool {
    let is_line = |text: &str| !text.is_empty() && text.trim() == text && !text.contains(['\n', '\r']);
    let is_text = |text: &str| !text.is_empty() && text.trim() == text && !text.contains('\r');
    let fits = |(key, value): (&String, &Value)| match (key.as_str(), value) {
        ("instructions", Value::String(text)) => is_text(text),
        ("tags" | "without_tags", Value::Array(tags)) => {
            tags.iter().filter_map(Value::as_str).all(|tag| is_line(tag) && !tag.contains(','))
        }
        ("when", Value::Array(conditions)) => conditions.iter().all(condition_fits),
        (_, Value::Array(items)) => items.iter().filter_map(Value::as_str).all(is_line),
        (_, Value::String(text)) => is_line(text),
        (_, Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_)) => true,
    };
    let selectors = keys.get("select").and_then(Value::as_array).into_iter().flatten().chain(keys.get("match"));
    keys.iter().chain(selectors.filter_map(Value::as_object).flatten()).all(fits)
}

/// Whether the fields of a condition are read back as the same condition.
fn condition_fits(condition: &Value) -> bool {
    let (test, text) = condition_fields(condition);
    let claim = condition["claim"].as_str().unwrap_or_default();
    let is_line = |text: &str| text.trim() == text && !text.contains(['\n', '\r']);
    is_line(claim) && is_line(&text) && read_claim_value(test, &text) == condition[test]
}

fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(values) => values.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Reads the fields of a form into the keys of a definition.
fn read_fields(kind: RuleKind, form_data: &FormData) -> Map<String, Value> {
    let fields = Fields { form_data };
    let mut keys = Map::new();
    match kind {
        RuleKind::Group => {
            fields.read_text(&mut keys, "", "title");
            insert(&mut keys, "select", fields.read_rows("select", |prefix| fields.read_selector(prefix)));
            fields.read_lines(&mut keys, "tools");
            fields.read_lines(&mut keys, "exclude");
            fields.read_text(&mut keys, "", "instructions");
            fields.read_lines(&mut keys, "essential");
            fields.read_text(&mut keys, "", "mode");
        }
        RuleKind::Access => {
            insert(&mut keys, "when", fields.read_rows("when", |prefix| fields.read_condition(prefix)));
            fields.read_choices(&mut keys, "", "groups");
            keys.insert("active".to_owned(), json!(form_data.get("active").is_some()));
        }
        RuleKind::Policy => {
            let mut matches = fields.read_selector("match.");
            fields.read_text(&mut matches, "match.", "group");
            let conditions = fields.read_rows("match.when", |prefix| fields.read_condition(prefix));
            insert(&mut matches, "when", conditions);
            insert(&mut keys, "match", matches.into());
            fields.read_text(&mut keys, "", "verdict");
        }
    }
    keys
}

/// Inserts a value that is not blank.
fn insert(keys: &mut Map<String, Value>, key: &str, value: Value) {
    if !is_blank(&value) {
        keys.insert(key.to_owned(), value);
    }
}

/// Reads fields by their key paths.
struct Fields<'a> {
    form_data: &'a FormData,
}

impl Fields<'_> {
    fn read_text(&self, keys: &mut Map<String, Value>, prefix: &str, key: &str) {
        if let Some(text) = self.form_data.get_text(&format!("{prefix}{key}")) {
            keys.insert(key.to_owned(), json!(text.replace("\r\n", "\n")));
        }
    }

    /// Reads a list with one item per line.
    fn read_lines(&self, keys: &mut Map<String, Value>, key: &str) {
        let lines = self.form_data.get(key).unwrap_or_default().lines().map(str::trim);
        insert(keys, key, lines.filter(|line| !line.is_empty()).collect());
    }

    /// Reads a list of items separated by commas.
    fn read_words(&self, keys: &mut Map<String, Value>, prefix: &str, key: &str) {
        let name = format!("{prefix}{key}");
        let words = self.form_data.get(&name).unwrap_or_default().split([',', '\n']).map(str::trim);
        insert(keys, key, words.filter(|word| !word.is_empty()).collect());
    }

    /// Reads the checked boxes of a list.
    fn read_choices(&self, keys: &mut Map<String, Value>, prefix: &str, key: &str) {
        let name = format!("{prefix}{key}");
        insert(keys, key, self.form_data.get_all(&name).filter(|value| !value.is_empty()).collect());
    }

    /// Reads `key[0].…`, `key[1].…` and so on, without rows that are not filled in.
    fn read_rows(&self, key: &str, read: impl Fn(&str) -> Map<String, Value>) -> Value {
        let prefixes = (0..MAX_ROWS).map(|index| format!("{key}[{index}]."));
        let rows = prefixes.take_while(|prefix| self.form_data.has_prefix(prefix)).map(|prefix| read(&prefix));
        rows.filter(|row| !row.is_empty()).collect()
    }

    fn read_selector(&self, prefix: &str) -> Map<String, Value> {
        let mut keys = Map::new();
        self.read_text(&mut keys, prefix, "source");
        self.read_text(&mut keys, prefix, "name");
        self.read_words(&mut keys, prefix, "tags");
        self.read_words(&mut keys, prefix, "without_tags");
        self.read_text(&mut keys, prefix, "method");
        self.read_text(&mut keys, prefix, "path");
        self.read_choices(&mut keys, prefix, "risk");
        keys
    }

    /// Reads a condition. A row counts as filled in if it has a claim or a value.
    fn read_condition(&self, prefix: &str) -> Map<String, Value> {
        let get = |key: &str| self.form_data.get_text(&format!("{prefix}{key}"));
        let (claim, value) = (get("claim"), get("value"));
        let test = get("test").filter(|test| ClaimTest::NAMES.contains(test)).unwrap_or("equals");
        let mut keys = Map::new();
        if claim.is_none() && value.is_none() {
            return keys;
        }
        keys.insert("claim".to_owned(), json!(claim.unwrap_or_default()));
        keys.insert(test.to_owned(), read_claim_value(test, value.unwrap_or_default()));
        keys
    }
}

/// Reads the value of a condition: JSON if it is valid JSON, else text. Several values are separated by commas.
fn read_claim_value(test: &str, text: &str) -> Value {
    let read = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| json!(text));
    match test {
        "exists" if text.is_empty() => json!(true),
        "matches" => json!(text),
        "in" | "not_in" if !text.starts_with('[') => {
            text.split(',').map(str::trim).filter(|text| !text.is_empty()).map(read).collect()
        }
        _ => read(text),
    }
}

/// Returns the test of a condition and the text of its value, which [`read_claim_value`] reads back.
pub(super) fn condition_fields(condition: &Value) -> (&str, String) {
    let entry = condition.as_object().and_then(|keys| keys.iter().find(|(key, _)| key.as_str() != "claim"));
    let Some((test, value)) = entry else { return ("equals", String::new()) };
    // A text that looks like JSON is quoted.
    let is_plain = |text: &&str| test == "matches" || serde_json::from_str::<Value>(text).is_err();
    (test, value.as_str().filter(is_plain).map_or_else(|| value.to_string(), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: RuleKind, form: &str) -> Value {
        let draft = RuleDraft::from_form(kind, &FormData::parse(form));
        Value::Object(to_keys(&draft.parse().unwrap()))
    }

    #[test]
    fn fields_become_the_keys_of_a_definition() {
        let form = "rule=support&title=Support&select[0].source=zen*&select[0].tags=read,+open&select[0].risk=read_only\
                    &select[1].source=&select[2].name=get_*&tools=git__a%0D%0Agit__b&exclude=&mode=";
        assert_eq!(
            read(RuleKind::Group, form),
            json!({
                "title": "Support",
                "select": [{ "source": "zen*", "tags": ["read", "open"], "risk": ["read_only"] }, { "name": "get_*" }],
                "tools": ["git__a", "git__b"],
            })
        );
        let form = "rule=desk&when[0].claim=team&when[0].test=in&when[0].value=a,+3&when[1].claim=&when[1].test=equals\
                    &when[1].value=&groups=support&active=yes";
        assert_eq!(
            read(RuleKind::Access, form),
            json!({ "when": [{ "claim": "team", "in": ["a", 3] }], "groups": ["support"], "active": true })
        );
        let form = "rule=ask&match.risk=destructive&match.group=support&verdict=ask";
        assert_eq!(
            read(RuleKind::Policy, form),
            json!({ "match": { "risk": ["destructive"], "group": "support" }, "verdict": "ask" })
        );
    }

    #[test]
    fn errors_belong_to_fields() {
        let fields = |kind, form: &str| -> Vec<(String, usize)> {
            let errors = RuleDraft::from_form(kind, &FormData::parse(form)).parse().unwrap_err();
            errors.into_iter().map(|error| (error.field, error.line)).collect()
        };
        assert_eq!(fields(RuleKind::Group, ""), [("rule".to_owned(), 0)]);
        assert_eq!(fields(RuleKind::Group, "rule=A+b"), [("rule".to_owned(), 0)]);
        let form = "rule=a&select[0].source=&select[1].name=regex:(";
        assert_eq!(fields(RuleKind::Group, form), [("select[0].name".to_owned(), 0)]);
        let form = "rule=a&yaml=title:+x%0Aselect:%0A++-+{+name:+%22regex:(%22+}";
        assert_eq!(fields(RuleKind::Group, form), [("select[0].name".to_owned(), 3)]);
    }

    /// A definition that a form would change is edited as YAML.
    #[test]
    fn an_untouched_form_is_read_back_as_the_same_definition() {
        let is_yaml = |kind, definition: Value| {
            let body = DraftBody::Yaml(definition.to_string());
            let rule = RuleDraft { kind, original: None, name: "x".to_owned(), body }.parse().unwrap();
            let draft = RuleDraft::from_rule(&rule);
            assert_eq!(draft.parse().as_ref(), Ok(&rule), "{definition}");
            matches!(draft.body, DraftBody::Yaml(_))
        };
        let access = |condition: Value| is_yaml(RuleKind::Access, json!({ "when": [condition], "groups": ["a"] }));
        for value in [json!(" ops"), json!("a\nb"), json!(["a\rb"]), json!("")] {
            let claim = json!({ "claim": "dept", "contains": value });
            assert_eq!(access(claim), value != json!("") && value != json!(["a\rb"]), "{value}");
        }
        assert!(access(json!({ "claim": " dept", "exists": true })));
        assert!(access(json!({ "claim": "dept", "matches": "a " })));
        assert!(!access(json!({ "claim": "dept", "in": [" a", "b,c"] })));
        for group in [
            json!({ "instructions": "Read first.\n" }),
            json!({ "title": " A" }),
            json!({ "title": "A\nB" }),
            json!({ "tools": ["git__a "] }),
            json!({ "select": [{ "name": "regex:^a $ " }] }),
            json!({ "select": [{ "tags": ["a,b"] }] }),
        ] {
            assert!(is_yaml(RuleKind::Group, group.clone()), "{group}");
        }
        assert!(!is_yaml(RuleKind::Group, json!({ "instructions": "One.\nTwo.", "title": "A b", "tools": ["a"] })));
        let policy = json!({ "match": { "when": [{ "claim": "a", "equals": "b " }] }, "verdict": "ask" });
        assert!(is_yaml(RuleKind::Policy, policy));
    }

    #[test]
    fn the_text_of_a_claim_value_is_read_back() {
        for (test, value) in [
            ("equals", json!("support")),
            ("equals", json!("3")),
            ("equals", json!(3)),
            ("in", json!(["a", "b,c", 1])),
            ("exists", json!(false)),
            ("matches", json!("true")),
        ] {
            let condition = json!({ "claim": "x", test: value });
            let (name, text) = condition_fields(&condition);
            assert_eq!((name, read_claim_value(name, &text)), (test, value));
        }
    }
}
