//! Colour for people at a terminal; plain text for everybody else.

use console::Style;

use crate::output;

pub(crate) fn bold(text: &str) -> String {
    apply_style(text, Style::new().bold())
}

pub(crate) fn dim(text: &str) -> String {
    apply_style(text, Style::new().dim())
}

pub(crate) fn success(text: &str) -> String {
    apply_style(text, Style::new().green())
}

pub(crate) fn warning(text: &str) -> String {
    apply_style(text, Style::new().yellow())
}

pub(crate) fn failure(text: &str) -> String {
    apply_style(text, Style::new().red().bold())
}

fn apply_style(text: &str, style: Style) -> String {
    match output::is_stdout_colored() {
        true => style.force_styling(true).apply_to(text).to_string(),
        false => text.to_owned(),
    }
}
