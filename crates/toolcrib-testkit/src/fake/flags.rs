//! Command line flags that both scripted servers support.
//!
//! A flag either describes the tool list (`--tools`, `--tools-file`, `--big`) or names a fault (`--hang list`). Flags
//! can be combined. Those of one transport only are in its binary.

use std::env;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Request that a server never answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HangPoint {
    /// `initialize` and `server/discover`.
    Start,
    /// `tools/list`.
    List,
    /// Every `tools/call`.
    Call,
    /// `resources/unsubscribe`.
    Unsubscribe,
}

/// Behaviour of a fake server. docs/testing.md describes the flags.
///
/// More than twelve fields: one for each fault that a test can ask for.
#[derive(Debug, Default)]
pub struct ServerFlags {
    /// Number of tools; 3 by default.
    pub tools: Option<usize>,
    /// File whose tool list is served byte for byte.
    pub tools_file: Option<PathBuf>,
    /// Like `tools_file`, but read again for every `tools/list`.
    pub change_file: Option<PathBuf>,
    /// Names of special tools to list in addition.
    pub extra_tools: Vec<String>,
    /// Size of the `tools/list` response in bytes.
    pub list_bytes: Option<usize>,
    /// List a tool with invalid UTF-8.
    pub invalid_utf8: bool,
    /// List a tool without an input schema.
    pub no_schema: bool,
    /// Nesting depth of the schema of a tool `deep`.
    pub deep_schema_levels: Option<usize>,
    /// Number of pages of the tool list.
    pub pages: Option<usize>,
    /// Return the same cursor for every page, so that the list never ends.
    pub same_cursor: bool,
    /// Time before a response: over HTTP before each one, over stdio before that of `tools/list`.
    pub delay: Option<Duration>,
    /// Request that is never answered.
    pub hang: Option<HangPoint>,
    /// The only protocol version that the server accepts. Without it, all legacy versions are accepted.
    pub version: Option<String>,
    /// Offer one resource, `note://one`, with subscriptions.
    pub resources: bool,
    /// File with prompts, resources and instructions; see `fake/features.rs`.
    pub features_file: Option<PathBuf>,
    /// Subscriptions fail while this file exists.
    pub unwatchable_file: Option<PathBuf>,
    /// File that gets a line for every start (stdio) or request (HTTP), with which tests count them across processes.
    pub count_file: Option<PathBuf>,
    /// `ttlMs` of the tool list in protocol 2026-07-28, which is public then.
    pub ttl_ms: Option<u64>,
}

/// Command line arguments, read one by one. Invalid usage ends the program with exit code 2 and a message on stderr.
#[derive(Debug)]
pub struct ArgumentReader(std::iter::Skip<env::Args>);

impl ArgumentReader {
    /// Parses the next argument as the value of `flag`.
    pub fn next_value<T: FromStr>(&mut self, flag: &str) -> T {
        let text = self.0.next().unwrap_or_else(|| exit_with_usage_error(&format!("`{flag}` needs a value")));
        text.parse().unwrap_or_else(|_| exit_with_usage_error(&format!("`{text}` is not a valid value for `{flag}`")))
    }
}

impl ServerFlags {
    /// Parses the command line. A flag that is unknown here is passed to `parse_other`, which returns whether it knows
    /// it.
    pub fn from_args(mut parse_other: impl FnMut(&str, &mut ArgumentReader) -> bool) -> ServerFlags {
        let mut arguments = ArgumentReader(env::args().skip(1));
        let mut flags = ServerFlags::default();
        while let Some(flag) = arguments.0.next() {
            if !flags.parse_flag(&flag, &mut arguments) && !parse_other(&flag, &mut arguments) {
                exit_with_usage_error(&format!("unknown flag `{flag}`"));
            }
        }
        flags
    }

    /// Parses one flag; false if it is unknown.
    fn parse_flag(&mut self, flag: &str, arguments: &mut ArgumentReader) -> bool {
        match flag {
            "--tools" => self.tools = Some(arguments.next_value(flag)),
            "--tools-file" => self.tools_file = Some(arguments.next_value(flag)),
            "--change-file" => self.change_file = Some(arguments.next_value(flag)),
            "--with" => self.extra_tools.extend(arguments.next_value::<String>(flag).split(',').map(str::to_owned)),
            "--big" => self.list_bytes = Some(arguments.next_value(flag)),
            "--invalid-utf8" => self.invalid_utf8 = true,
            "--no-schema" => self.no_schema = true,
            "--deep" => self.deep_schema_levels = Some(arguments.next_value(flag)),
            "--pages" => self.pages = Some(arguments.next_value(flag)),
            "--same-cursor" => self.same_cursor = true,
            "--delay-ms" => self.delay = Some(Duration::from_millis(arguments.next_value(flag))),
            "--hang" => self.hang = Some(parse_hang_point(&arguments.next_value::<String>(flag))),
            "--version" => self.version = Some(arguments.next_value(flag)),
            "--resources" => self.resources = true,
            "--features-file" => self.features_file = Some(arguments.next_value(flag)),
            "--unwatchable-file" => self.unwatchable_file = Some(arguments.next_value(flag)),
            "--ttl-ms" => self.ttl_ms = Some(arguments.next_value(flag)),
            "--count-file" => self.count_file = Some(arguments.next_value(flag)),
            _ => return false,
        }
        true
    }
}

fn parse_hang_point(text: &str) -> HangPoint {
    match text {
        "start" => HangPoint::Start,
        "list" => HangPoint::List,
        "call" => HangPoint::Call,
        "unsubscribe" => HangPoint::Unsubscribe,
        other => exit_with_usage_error(&format!("`--hang` takes start, list, call or unsubscribe, not `{other}`")),
    }
}

/// Prints a message with a pointer to the documentation and ends the program.
#[expect(clippy::print_stderr, reason = "the message shows up in the output of the test")]
fn exit_with_usage_error(reason: &str) -> ! {
    eprintln!("{reason}; docs/testing.md lists the flags");
    std::process::exit(2)
}
