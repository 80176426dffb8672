//! The flags that both scripted servers understand.

use std::env;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Where a server stops answering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hang {
    Start,
    List,
    Call,
    Unsubscribe,
}

/// What a fake server is told to be.
#[derive(Debug, Default)]
pub struct Flags {
    /// How many tools; 3 when absent.
    pub tools: Option<usize>,
    /// Serve this list, byte for byte.
    pub tools_file: Option<PathBuf>,
    /// As `tools_file`, and read anew for every list.
    pub change_file: Option<PathBuf>,
    /// Special tools to list as well.
    pub with: Vec<String>,
    /// Size of the answer to `tools/list`.
    pub big: Option<usize>,
    pub invalid_utf8: bool,
    pub no_schema: bool,
    /// Levels of the schema of a tool `deep`.
    pub deep: Option<usize>,
    pub pages: Option<usize>,
    pub same_cursor: bool,
    pub delay: Option<Duration>,
    pub hang: Option<Hang>,
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
pub struct Words(std::iter::Skip<env::Args>);

impl Words {
    /// The value of a flag.
    pub fn value<T: FromStr>(&mut self, flag: &str) -> T {
        let word = self.0.next().unwrap_or_else(|| misused(&format!("`{flag}` needs a value")));
        word.parse().unwrap_or_else(|_| misused(&format!("`{word}` is no value for `{flag}`")))
    }
}

impl Flags {
    /// Reads the command line; a flag that is not known here goes to `own`, which tells whether it knew it.
    pub fn read(mut own: impl FnMut(&str, &mut Words) -> bool) -> Flags {
        let mut words = Words(env::args().skip(1));
        let mut flags = Flags::default();
        while let Some(flag) = words.0.next() {
            if !flags.take(&flag, &mut words) && !own(&flag, &mut words) {
                misused(&format!("unknown flag `{flag}`"));
            }
        }
        flags
    }

    fn take(&mut self, flag: &str, words: &mut Words) -> bool {
        match flag {
            "--tools" => self.tools = Some(words.value(flag)),
            "--tools-file" => self.tools_file = Some(words.value(flag)),
            "--change-file" => self.change_file = Some(words.value(flag)),
            "--with" => self.with.extend(words.value::<String>(flag).split(',').map(str::to_owned)),
            "--big" => self.big = Some(words.value(flag)),
            "--invalid-utf8" => self.invalid_utf8 = true,
            "--no-schema" => self.no_schema = true,
            "--deep" => self.deep = Some(words.value(flag)),
            "--pages" => self.pages = Some(words.value(flag)),
            "--same-cursor" => self.same_cursor = true,
            "--delay-ms" => self.delay = Some(Duration::from_millis(words.value(flag))),
            "--hang" => self.hang = Some(hang(&words.value::<String>(flag))),
            "--version" => self.version = Some(words.value(flag)),
            "--resources" => self.resources = true,
            "--unwatchable-file" => self.unwatchable_file = Some(words.value(flag)),
            "--ttl-ms" => self.ttl_ms = Some(words.value(flag)),
            "--count-file" => self.count_file = Some(words.value(flag)),
            _ => return false,
        }
        true
    }
}

fn hang(word: &str) -> Hang {
    match word {
        "start" => Hang::Start,
        "list" => Hang::List,
        "call" => Hang::Call,
        "unsubscribe" => Hang::Unsubscribe,
        other => misused(&format!("`--hang` is start, list, call or unsubscribe, not `{other}`")),
    }
}

#[expect(clippy::print_stderr, reason = "a fixture tells its misuse to whoever reads the test")]
fn misused(reason: &str) -> ! {
    eprintln!("{reason}; docs/testing.md lists the flags");
    std::process::exit(2)
}
