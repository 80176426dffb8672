//! OpenAI's functions: JSON Schema under `parameters`, without alternatives at its top, and a short description.

use std::borrow::Cow;

use super::limits::OPENAI_DESCRIPTION;
use super::plain::{self, OPENAI};
use super::projection::{Loss, Projected};
use super::strict;
use crate::json;
use crate::tool::Tool;

pub(super) fn project(name: &str, tool: &Tool) -> Projected {
    let (schema, losses) = plain::schema(&tool.face.input_schema, &OPENAI);
    match schema {
        Ok(schema) => function(name, &tool.face.description, "", &schema, losses),
        Err(unfit) => Projected { text: None, losses, set_aside: Some(unfit.to_string()) },
    }
}

/// With Structured Outputs, which guarantee that arguments fit.
pub(super) fn project_strictly(name: &str, tool: &Tool) -> Projected {
    let (schema, losses) = strict::schema(&tool.face.input_schema);
    match schema {
        Ok(schema) => function(name, &tool.face.description, ",\"strict\":true", &schema.to_string(), losses),
        Err(unfit) => Projected { text: None, losses, set_aside: Some(unfit.to_string()) },
    }
}

fn function(name: &str, description: &str, strict: &str, schema: &str, mut losses: Vec<Loss>) -> Projected {
    let length = description.chars().count();
    let description = match length > OPENAI_DESCRIPTION {
        true => {
            let edit = format!("{length} characters are too many, cut to {OPENAI_DESCRIPTION}");
            losses.push(Loss { path: "description".to_owned(), edit });
            Cow::from(description.chars().take(OPENAI_DESCRIPTION - 1).chain(['…']).collect::<String>())
        }
        false => Cow::from(description),
    };
    let mut text = String::with_capacity(schema.len() + description.len() + 128);
    text.push_str("{\"type\":\"function\",\"function\":{\"name\":");
    json::push_string(name, &mut text);
    text.push_str(",\"description\":");
    json::push_string(&description, &mut text);
    text.push_str(strict);
    text.push_str(",\"parameters\":");
    text.push_str(schema);
    text.push_str("}}");
    Projected { text: Some(text), losses, set_aside: None }
}
