//! Serialisation styles of the specification: a value as text (paths and headers) or as name-value pairs (queries,
//! cookies and forms). As in RFC 6570, null, an empty array and an empty object are undefined and produce nothing.
//!
//! For `color = ["blue", "black"]`:
//!
//! ```text
//! simple            blue,black             form, exploded    color=blue&color=black
//! label             .blue,black            form              color=blue,black
//! matrix            ;color=blue,black      pipeDelimited     color=blue%7Cblack
//! ```

use serde_json::Value;
use toolcrib_core::error::{Error, Result};
use toolcrib_core::execution::{OperationParameter, ParameterStyle};

use super::escape::EscapeMode;
use super::{invalid_argument, to_plain_text};

/// A value with at most one level of nesting. Deeper values, which the styles do not define, are JSON text.
enum FlatValue<'a> {
    /// Null, or an array or object without values.
    Undefined,
    Scalar(String),
    List(Vec<String>),
    /// Properties that are not null, in their order.
    Object(Vec<(&'a str, &'a Value)>),
}

/// Serialises the value of one parameter.
#[derive(Debug, Clone, Copy)]
pub(super) struct ValueWriter<'a> {
    /// Name of the argument, for errors.
    pub(super) argument: &'a str,
    /// Name on the wire, not encoded yet.
    pub(super) name: &'a str,
    pub(super) style: ParameterStyle,
    pub(super) explode: bool,
    pub(super) escape: EscapeMode,
    /// Maximum size of names and values together. Names are repeated, so a small argument could produce a huge request.
    pub(super) max_bytes: usize,
}

impl<'a> ValueWriter<'a> {
    /// Returns the writer of a parameter.
    pub(super) fn new(
        parameter: &'a OperationParameter,
        style: ParameterStyle,
        explode: bool,
        escape: EscapeMode,
        max_bytes: usize,
    ) -> ValueWriter<'a> {
        let OperationParameter { argument, name, .. } = parameter;
        ValueWriter { argument, name, style, explode, escape, max_bytes }
    }

    /// Serialises as text: simple, label or matrix. `None` if the value is undefined.
    pub(super) fn write_text(&self, value: &Value) -> Result<Option<String>> {
        let flat = FlatValue::from_value(value);
        let prefix = match self.style {
            ParameterStyle::Label => ".",
            ParameterStyle::Matrix => ";",
            ParameterStyle::Simple
            | ParameterStyle::Form
            | ParameterStyle::SpaceDelimited
            | ParameterStyle::PipeDelimited
            | ParameterStyle::TabDelimited
            | ParameterStyle::DeepObject
            | ParameterStyle::Cookie => "",
        };
        // An exploded value repeats the prefix.
        let pieces = match flat {
            FlatValue::Undefined => return Ok(None),
            FlatValue::Scalar(text) => vec![self.with_matrix_name(&self.escape.encode_item(&text, prefix))],
            // Only label and matrix repeat the name or prefix of an exploded list.
            FlatValue::List(items) if self.explode && !prefix.is_empty() => {
                // The name is repeated for each item, so the size is checked before the text is built.
                self.check_size(self.name.len().saturating_mul(items.len()))?;
                items.iter().map(|item| self.with_matrix_name(&self.escape.encode_item(item, prefix))).collect()
            }
            FlatValue::List(items) => vec![self.with_matrix_name(&self.join_items(&items))],
            FlatValue::Object(properties) if self.explode => {
                properties.iter().map(|(key, value)| self.property_text(key, value)).collect()
            }
            FlatValue::Object(properties) => {
                vec![self.with_matrix_name(&self.join_items(&flatten_properties(&properties)))]
            }
        };
        // Label and matrix separate values by their prefix.
        let separator = if prefix.is_empty() { "," } else { prefix };
        Ok(Some(format!("{prefix}{}", pieces.join(separator))))
    }

    /// Serialises as pairs, with encoded names and values: form and the other styles of queries.
    pub(super) fn write_pairs(&self, value: &Value) -> Result<Vec<(String, String)>> {
        let mut pairs = PairList {
            argument: self.argument,
            remaining_bytes: self.max_bytes,
            remaining_name_bytes: self.max_bytes,
            pairs: Vec::new(),
        };
        let name = self.escape.encode_name(self.name);
        if self.style == ParameterStyle::DeepObject {
            self.push_deep_object(self.name, value, &mut pairs)?;
            return Ok(pairs.pairs);
        }
        match FlatValue::from_value(value) {
            FlatValue::Undefined => {}
            FlatValue::Scalar(text) => pairs.push(name, self.escape.encode_value(&text))?,
            FlatValue::List(items) if self.explode => {
                for item in items {
                    pairs.push(name.clone(), self.escape.encode_value(&item))?;
                }
            }
            FlatValue::List(items) => pairs.push(name, self.join_items(&items))?,
            FlatValue::Object(properties) if self.explode => {
                for (key, value) in properties {
                    self.push_exploded_property(key, value, &mut pairs)?;
                }
            }
            FlatValue::Object(properties) => pairs.push(name, self.join_items(&flatten_properties(&properties)))?,
        }
        Ok(pairs.pairs)
    }

    /// Adds a property of an exploded object. It is a parameter of its own, so an array is repeated.
    fn push_exploded_property(&self, key: &str, value: &Value, pairs: &mut PairList<'_>) -> Result<()> {
        let items: &[Value] = if let Value::Array(items) = value { items } else { std::slice::from_ref(value) };
        for item in items.iter().filter(|item| !item.is_null()) {
            pairs.push(self.escape.encode_name(key), self.escape.encode_value(&to_plain_text(item)))?;
        }
        Ok(())
    }

    /// Adds `q[a]=1`. The specification does not define deeper values: nested objects continue in brackets; an array of
    /// scalars gets empty brackets, since parsers of such names (Rails, PHP, Stripe) keep only one value of a repeated
    /// name; any other array gets indices.
    fn push_deep_object(&self, name: &str, value: &Value, pairs: &mut PairList<'_>) -> Result<()> {
        match value {
            Value::Null => Ok(()),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                pairs.push(self.escape.encode_name(name), self.escape.encode_value(&to_plain_text(value)))
            }
            Value::Object(properties) => {
                pairs.charge_names(name, properties.len())?;
                properties
                    .iter()
                    .try_for_each(|(key, value)| self.push_deep_object(&format!("{name}[{key}]"), value, pairs))
            }
            Value::Array(items) if items.iter().all(is_scalar) => {
                pairs.charge_names(name, items.len())?;
                items.iter().try_for_each(|item| self.push_deep_object(&format!("{name}[]"), item, pairs))
            }
            Value::Array(items) => {
                pairs.charge_names(name, items.len())?;
                let mut indexed = items.iter().enumerate();
                indexed.try_for_each(|(index, item)| self.push_deep_object(&format!("{name}[{index}]"), item, pairs))
            }
        }
    }

    /// Prepends the name in the matrix style.
    fn with_matrix_name(&self, value: &str) -> String {
        if self.style == ParameterStyle::Matrix {
            matrix_pair(&self.escape.encode_name(self.name), value)
        } else {
            value.to_owned()
        }
    }

    /// Serialises a property as `key=value`, for paths and headers.
    fn property_text(&self, key: &str, value: &Value) -> String {
        let name = self.escape.encode_name(key);
        let value = self.escape.encode_item(&to_plain_text(value), ",;");
        if self.style == ParameterStyle::Matrix { matrix_pair(&name, &value) } else { format!("{name}={value}") }
    }

    /// Joins the items of a list with the delimiter of the style.
    fn join_items(&self, items: &[String]) -> String {
        let delimiter = self.delimiter();
        let separator = match delimiter {
            _ if self.escape == EscapeMode::Unescaped => delimiter.to_owned(),
            "," => delimiter.to_owned(),
            // RFC 3986 does not allow `|`, so the specification encodes this delimiter. If an item contains one too,
            // only the bare character tells them apart.
            "|" if items.iter().any(|item| item.contains(delimiter)) => delimiter.to_owned(),
            _other => EscapeMode::Unreserved.encode_value(delimiter),
        };
        // A delimiter within an item is encoded even where reserved characters are kept, so that the list can be split
        // again; only `Unescaped`, as in headers, encodes nothing.
        let delimiters = if self.style == ParameterStyle::Matrix { ",;" } else { delimiter };
        let items: Vec<String> = items.iter().map(|item| self.escape.encode_item(item, delimiters)).collect();
        items.join(&separator)
    }

    /// Checks a size before the text is built.
    fn check_size(&self, size: usize) -> Result<()> {
        if size > self.max_bytes { Err(too_large(self.argument)) } else { Ok(()) }
    }

    /// Returns the unencoded delimiter of the style.
    fn delimiter(&self) -> &'static str {
        match self.style {
            ParameterStyle::SpaceDelimited => " ",
            ParameterStyle::PipeDelimited => "|",
            ParameterStyle::TabDelimited => "\t",
            ParameterStyle::Simple
            | ParameterStyle::Label
            | ParameterStyle::Matrix
            | ParameterStyle::Form
            | ParameterStyle::DeepObject
            | ParameterStyle::Cookie => ",",
        }
    }
}

impl<'a> FlatValue<'a> {
    /// Classifies a value and drops nulls from it.
    fn from_value(value: &'a Value) -> FlatValue<'a> {
        match value {
            Value::Null => FlatValue::Undefined,
            Value::Bool(_) | Value::Number(_) | Value::String(_) => FlatValue::Scalar(to_plain_text(value)),
            Value::Array(items) => {
                let items: Vec<_> = items.iter().filter(|item| !item.is_null()).map(to_plain_text).collect();
                if items.is_empty() { FlatValue::Undefined } else { FlatValue::List(items) }
            }
            Value::Object(properties) => {
                let defined = properties.iter().filter(|(_, value)| !value.is_null());
                let properties: Vec<_> = defined.map(|(key, value)| (key.as_str(), value)).collect();
                if properties.is_empty() { FlatValue::Undefined } else { FlatValue::Object(properties) }
            }
        }
    }
}

/// Name-value pairs of bounded size.
struct PairList<'a> {
    /// Name of the argument, for errors.
    argument: &'a str,
    remaining_bytes: usize,
    /// Bytes left for intermediate names. Nested empty objects build names without adding pairs.
    remaining_name_bytes: usize,
    pairs: Vec<(String, String)>,
}

impl PairList<'_> {
    /// Adds a pair, unless the pairs would exceed the limit together. Counts `=` and `&` too.
    fn push(&mut self, name: String, value: String) -> Result<()> {
        let Some(remaining) = self.remaining_bytes.checked_sub(name.len() + value.len() + 2) else {
            return Err(too_large(self.argument));
        };
        self.remaining_bytes = remaining;
        self.pairs.push((name, value));
        Ok(())
    }

    /// Charges the copies of a name that the children of a value make.
    fn charge_names(&mut self, name: &str, count: usize) -> Result<()> {
        let remaining = self.remaining_name_bytes.checked_sub(name.len().saturating_mul(count));
        self.remaining_name_bytes = remaining.ok_or_else(|| too_large(self.argument))?;
        Ok(())
    }
}

/// Returns the error for an argument that exceeds the size of a request.
fn too_large(argument: &str) -> Error {
    invalid_argument(argument, "makes the request too large; shorten it")
}

/// Returns keys and values alternately, as styles without `explode` list them.
fn flatten_properties(pairs: &[(&str, &Value)]) -> Vec<String> {
    pairs.iter().flat_map(|(key, value)| [(*key).to_owned(), to_plain_text(value)]).collect()
}

/// Serialises a pair of the matrix style. RFC 6570 omits the equals sign of an empty value.
fn matrix_pair(name: &str, value: &str) -> String {
    if value.is_empty() { name.to_owned() } else { format!("{name}={value}") }
}

fn is_scalar(value: &Value) -> bool {
    !value.is_array() && !value.is_object()
}
