//! Reads the fenced code blocks of a Markdown page. The words behind the opening fence say what a block is:
//!
//! | fence | the block is |
//! |---|---|
//! | `console` | commands after `$ ` with their output, which is compared |
//! | `sh` | commands that must succeed; their output is not compared |
//! | `yaml`, `json`, `toml` with a file name | a file that later examples use |
//! | `yaml`, `toml` | a configuration that must load without an error |
//! | `json` | JSON that must parse |
//! | `python`, `js` | a program whose syntax must be valid; it needs an account or a network, so it is not run |
//! | `rust` | compiled by `cargo test --doc`, not here |
//! | `text` | an illustration, not run |

/// A block of a page that can be run.
#[derive(Debug, PartialEq)]
pub(crate) struct Example {
    /// 1-based line of the opening fence.
    pub(crate) line: usize,
    pub(crate) content: ExampleContent,
}

#[derive(Debug, PartialEq)]
pub(crate) enum ExampleContent {
    /// Commands, each with the output that follows it.
    Session(Vec<ConsoleCommand>),
    /// A script that must end with 0.
    Script(String),
    /// A file to write, with its name.
    File {
        name: String,
        text: String,
    },
    /// A configuration, with the extension of its syntax.
    Configuration {
        extension: String,
        text: String,
    },
    Json(String),
    /// A program in another language, checked for its syntax.
    Program {
        language: Language,
        text: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Language {
    Python,
    JavaScript,
}

#[derive(Debug, PartialEq)]
pub(crate) struct ConsoleCommand {
    pub(crate) command: String,
    /// Lines of expected output. `…` stands for any text within a line, and alone on a line for any lines.
    pub(crate) output: Vec<String>,
}

/// Returns all examples of a page, or the line and fault of the first block that is not well formed.
pub(crate) fn read_examples(page: &str) -> Result<Vec<Example>, String> {
    let mut examples = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let Some(info) = line.trim_start().strip_prefix("```") else { continue };
        let indent = line.len() - line.trim_start().len();
        let mut text = Vec::new();
        loop {
            let Some((_, line)) = lines.next() else { return Err(format!("{}: the block has no end", index + 1)) };
            if line.trim_start().starts_with("```") {
                break;
            }
            text.push(line.get(indent..).unwrap_or(line.trim_start()));
        }
        let content = read_block(info, &text).map_err(|fault| format!("{}: {fault}", index + 1))?;
        examples.extend(content.map(|content| Example { line: index + 1, content }));
    }
    Ok(examples)
}

fn read_block(info: &str, lines: &[&str]) -> Result<Option<ExampleContent>, String> {
    let text = || lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let mut words = info.split_whitespace();
    let kind = words.next().unwrap_or_default();
    let name = words.next();
    if words.next().is_some() {
        return Err(format!("more than a kind and a file name in `{info}`"));
    }
    let content = match (kind, name) {
        ("console", None) => ExampleContent::Session(read_session(lines)?),
        ("sh", None) => ExampleContent::Script(text()),
        ("yaml" | "json" | "toml" | "sh" | "python" | "js", Some(name)) => {
            ExampleContent::File { name: name.to_owned(), text: text() }
        }
        ("yaml" | "toml", None) => ExampleContent::Configuration { extension: kind.to_owned(), text: text() },
        ("json", None) => ExampleContent::Json(text()),
        ("python", None) => ExampleContent::Program { language: Language::Python, text: text() },
        ("js", None) => ExampleContent::Program { language: Language::JavaScript, text: text() },
        ("text", None) => return Ok(None),
        (rust, None) if rust == "rust" || rust.starts_with("rust,") => return Ok(None),
        _ => return Err(format!("unknown kind of example `{info}`; docs/testing.md lists the known ones")),
    };
    Ok(Some(content))
}

/// Splits a session into commands. A command that ends in `\` continues on the next line.
fn read_session(lines: &[&str]) -> Result<Vec<ConsoleCommand>, String> {
    let mut commands: Vec<ConsoleCommand> = Vec::new();
    let mut lines = lines.iter();
    while let Some(line) = lines.next() {
        if let Some(first) = line.strip_prefix("$ ") {
            let mut command = first.to_owned();
            while command.ends_with('\\') {
                command.push('\n');
                command.push_str(lines.next().ok_or("a command ends in `\\`")?);
            }
            commands.push(ConsoleCommand { command, output: Vec::new() });
        } else {
            let last = commands.last_mut().ok_or("a console block begins with a command after `$ `")?;
            last.output.push((*line).to_owned());
        }
    }
    Ok(commands)
}

#[test]
fn blocks_are_read_by_the_words_behind_their_fence() {
    let page = "text\n```console\n$ a \\\n  b\nout\n```\n\n  ```yaml x.yaml\n  a: 1\n  ```\n```text\nfree\n```\n";
    let session = vec![ConsoleCommand { command: "a \\\n  b".to_owned(), output: vec!["out".to_owned()] }];
    let expected = [
        Example { line: 2, content: ExampleContent::Session(session) },
        Example { line: 8, content: ExampleContent::File { name: "x.yaml".to_owned(), text: "a: 1\n".to_owned() } },
    ];
    assert_eq!(read_examples(page).unwrap(), expected);
    for (page, fault) in [
        ("```\na\n```\n", "1: unknown kind of example ``"),
        ("```console\nno command\n```\n", "1: a console block begins with"),
        ("\n```sh\n", "2: the block has no end"),
    ] {
        assert!(read_examples(page).unwrap_err().starts_with(fault), "{page}");
    }
}
