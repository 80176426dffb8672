//! Text styles for stdout at a terminal. Elsewhere, or with `NO_COLOR`, every function returns the text unchanged.

use console::Style;

use crate::output;

/// Headings and names.
pub(crate) fn bold(text: &str) -> String {
    apply_style(text, Style::new().bold())
}

/// Labels and secondary text.
pub(crate) fn dim(text: &str) -> String {
    apply_style(text, Style::new().dim())
}

/// A check that passed, a result of the demo. Green.
pub(crate) fn success(text: &str) -> String {
    apply_style(text, Style::new().green())
}

/// A problem that does not change the exit code. Yellow.
pub(crate) fn warning(text: &str) -> String {
    apply_style(text, Style::new().yellow())
}

/// A problem that makes the command fail. Bold red.
pub(crate) fn failure(text: &str) -> String {
    apply_style(text, Style::new().red().bold())
}

/// Applies the style if stdout is coloured.
fn apply_style(text: &str, style: Style) -> String {
    if output::is_stdout_colored() {
        // `console` has its own detection of terminals; ours has decided already.
        style.force_styling(true).apply_to(text).to_string()
    } else {
        text.to_owned()
    }
}
