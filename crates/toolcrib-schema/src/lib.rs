//! Reads JSON Schemas of tools, which come from sources and are not trusted: they may be malformed, recursive, or expand
//! to millions of paths. Every function ends within a bound that does not depend on time.
//!
//! ```text
//! reference      local `$ref`s                  types          declared types, types of values
//! keywords       kinds of keywords              limits         `minimum`, `maxLength` and the like
//! budget         work that a list may cost
//! layers         schemas that apply at once     alternatives   the cases that a value may match
//! normal_form    equal for equivalent schemas   validator      errors of arguments; `cost` estimates it first
//! ```
//!
//! Outlines and renderings for providers (`toolcrib-catalog`), comparisons (`toolcrib-diff`), OpenAPI documents and
//! workflows build on this crate.

mod reference;

mod keywords;
mod limits;
mod types;

mod budget;

mod alternatives;
mod layers;
mod normal_form;

mod argument_text;
mod cost;
mod validator;

pub use alternatives::{
    Alternative, MAX_ALTERNATIVES, alternatives, alternatives_of_any, non_null_alternatives, sole_alternative,
};
pub use argument_text::{parse_typed, parse_typed_items, property_types};
pub use budget::{KEYWORDS_PER_NODE, WorkBudget};
pub use keywords::{KeywordKind, accepts_anything, array_at, array_keyword, is_annotation, is_vacuous, keyword_kind};
pub use layers::SchemaLayers;
pub use limits::{LIMITS, Limit, LimitKeywords, MAXIMUM, MINIMUM, is_limit};
pub use normal_form::NormalForm;
pub use reference::{
    LocalReference, definition_reference, follow_references, reference_text, referenced_definition, resolve_reference,
};
pub use types::{JSON_TYPES, declared_types, type_name};
pub use validator::{ArgumentError, ValidationOutcome, Validator, can_compile_pattern};
