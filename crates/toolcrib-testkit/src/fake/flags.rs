//! The flags that both scripted servers understand.

use std::env;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Where a server stops answering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HangPoint {
    Start,
    List,
    Call,
    Unsubscribe,
}

/// What a fake server is told to be.
#[derive(Debug, Default)]
pub struct ServerFlags {
    /// How many tools; 3 when absent.
    pub tools: Option<usize>,
    /// Serve this list, byte for byte.
    pub tools_file: Option<PathBuf>,
    /// As `tools_file`, and read anew for every list.
    pub change_file: Option<PathBuf>,
    /// Special tools to list as well.
    pub extra_tools: Vec<String>,
    /// Size of the answer to `tools/list`.
    pub list_bytes: Option<usize>,
    pub invalid_utf8: bool,
    pub no_schema: bool,
    /// Levels of the schema of a tool `deep`.
    pub deep_schema_levels: Option<usize>,
    pub pages: Option<usize>,
    pub same_cursor: bool,
    pub delay: Option<Duration>,
    pub hang: Option<HangPoint>,
    /// The protocol version it insists on.
    pub version: Option<String>,
    /// Has one resource, `note://one`, that can be watched.
    pub resources: bool,
    /// Nothing can be watched while this file is there.
    pub unwatchable_file: Option<PathBuf>,
    pub count_file: Option<PathBuf>,
    /// How long the list holds, as servers of 2026 say it; it is public then.
    pub ttl_ms: Option<u64>,
}

/// The command line, word by word. A fixture ends with code 2 and a word on stderr when it is misused.
#[derive(Debug)]
pub struct ArgumentReader(std::iter::Skip<env::Args>);

impl ArgumentReader {
    /// The value of a flag.
    pub fn next_value<T: FromStr>(&mut self, flag: &str) -> T {
        let word = self.0.next().unwrap_or_else(|| exit_with_usage_error(&format!("`{flag}` needs a value")));
        word.parse().unwrap_or_else(|_| exit_with_usage_error(&format!("`{word}` is no value for `{flag}`")))
    }
}

impl ServerFlags {
    /// Reads the command line; a flag that is not known here goes to `own`, which tells whether it knew it.
    pub fn from_args(mut own: impl FnMut(&str, &mut ArgumentReader) -> bool) -> ServerFlags {
        let mut words = ArgumentReader(env::args().skip(1));
        let mut flags = ServerFlags::default();
        while let Some(flag) = words.0.next() {
            if !flags.parse_flag(&flag, &mut words) && !own(&flag, &mut words) {
                exit_with_usage_error(&format!("unknown flag `{flag}`"));
            }
        }
        flags
    }

    fn parse_flag(&mut self, flag: &str, words: &mut ArgumentReader) -> bool {
        match flag {
            "--tools" => self.tools = Some(words.next_value(flag)),
            "--tools-file" => self.tools_file = Some(words.next_value(flag)),
            "--change-file" => self.change_file = Some(words.next_value(flag)),
            "--with" => self.extra_tools.extend(words.next_value::<String>(flag).split(',').map(str::to_owned)),
            "--big" => self.list_bytes = Some(words.next_value(flag)),
            "--invalid-utf8" => self.invalid_utf8 = true,
            "--no-schema" => self.no_schema = true,
            "--deep" => self.deep_schema_levels = Some(words.next_value(flag)),
            "--pages" => self.pages = Some(words.next_value(flag)),
            "--same-cursor" => self.same_cursor = true,
            "--delay-ms" => self.delay = Some(Duration::from_millis(words.next_value(flag))),
            "--hang" => self.hang = Some(parse_hang_point(&words.next_value::<String>(flag))),
            "--version" => self.version = Some(words.next_value(flag)),
            "--resources" => self.resources = true,
            "--unwatchable-file" => self.unwatchable_file = Some(words.next_value(flag)),
            "--ttl-ms" => self.ttl_ms = Some(words.next_value(flag)),
            "--count-file" => self.count_file = Some(words.next_value(flag)),
            _ => return false,
        }
        true
    }
}

fn parse_hang_point(word: &str) -> HangPoint {
    match word {
        "start" => HangPoint::Start,
        "list" => HangPoint::List,
        "call" => HangPoint::Call,
        "unsubscribe" => HangPoint::Unsubscribe,
        other => exit_with_usage_error(&format!("`--hang` is start, list, call or unsubscribe, not `{other}`")),
    }
}

#[expect(clippy::print_stderr, reason = "a fixture tells its misuse to whoever reads the test")]
fn exit_with_usage_error(reason: &str) -> ! {
    eprintln!("{reason}; docs/testing.md lists the flags");
    std::process::exit(2)
}
