//! Colour for people at a terminal; plain text for everybody else.

use console::Style;

use crate::output;

pub(crate) fn bold(text: &str) -> String {
    painted(text, Style::new().bold())
}

pub(crate) fn dim(text: &str) -> String {
    painted(text, Style::new().dim())
}

pub(crate) fn good(text: &str) -> String {
    painted(text, Style::new().green())
}

pub(crate) fn doubtful(text: &str) -> String {
    painted(text, Style::new().yellow())
}

pub(crate) fn bad(text: &str) -> String {
    painted(text, Style::new().red().bold())
}

fn painted(text: &str, style: Style) -> String {
    match output::coloured() {
        true => style.force_styling(true).apply_to(text).to_string(),
        false => text.to_owned(),
    }
}
