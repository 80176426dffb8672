//! Reads a query as text, before it becomes terms: which of its words are values such as numbers, dates and paths,
//! whether it asks a question, whether it is written in another language than English, and which source it states.

use std::collections::HashSet;
use std::sync::OnceLock;

use super::tokenize::{self, Word};
use super::vocabulary::vocabulary;

/// Words that begin a question or a request to show something; such a query prefers tools that only read.
const QUESTION_WORDS: [&str; 12] =
    ["who", "whose", "whom", "which", "what", "when", "where", "list", "show", "display", "count", "enumerate"];
/// Number of words at the beginning of a query among which a question word is looked for: `please show me`.
const QUESTION_PREFIX_WORDS: usize = 4;
/// Letters that may follow the digits of a number or date: `3rd`, `10am`, `20km`, `2026-05-01T10:00Z`.
const NUMBER_SUFFIXES: [&str; 26] = [
    "st", "nd", "rd", "th", "am", "pm", "h", "m", "s", "ms", "min", "mins", "k", "kb", "mb", "gb", "tb", "kg", "km",
    "cm", "mm", "px", "usd", "eur", "t", "z",
];
/// Words before the name of a source: `in github`, `using jira`.
const SOURCE_PREPOSITIONS: [&str; 11] =
    ["in", "on", "using", "use", "from", "with", "via", "through", "inside", "within", "at"];
/// Words between the preposition and the name.
const ARTICLES: [&str; 5] = ["the", "my", "our", "your", "a"];
/// Words after the name of a source that leave no doubt that the source is meant.
const SOURCE_NOUNS: [&str; 10] =
    ["server", "source", "mcp", "tool", "tools", "toolset", "connector", "integration", "plugin", "servers"];
/// Maximum number of words in the name of a source.
const MAX_SOURCE_WORDS: usize = 4;
/// Maximum number of words of a query that are compared with the names of sources.
const MAX_STATED_WORDS: usize = 400;

/// Common words of other languages (German, French, Spanish, Italian, Portuguese, Dutch), none of which is an English
/// word, abbreviation or part of a common name.
const FOREIGN_WORDS: &str = include_str!("foreign_words.txt");

/// A source that a query may state.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StatedSource {
    /// Letters and digits of the name, see [`tokenize::normalize_name`].
    pub(super) name: String,
    /// Whether the query says that it is a source: `the slack server`.
    pub(super) is_explicit: bool,
}

/// A word of a query.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct QueryWord {
    pub(super) word: Word,
    pub(super) kind: WordKind,
}

/// Part of a query that a word belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WordKind {
    /// The wording of the request.
    Text,
    /// A number, an amount, a date or a time.
    Number,
    /// The extension of a file, which tells its kind.
    Extension,
    /// A path or an address. Its words name files and people; where a tool has them too, it is by chance.
    Path,
}

impl WordKind {
    /// Whether it is part of a path or an address.
    pub(super) fn is_in_path(self) -> bool {
        match self {
            WordKind::Extension | WordKind::Path => true,
            WordKind::Text | WordKind::Number => false,
        }
    }
}

impl QueryWord {
    /// The word in lower case, not stemmed.
    pub(super) fn whole(&self) -> &str {
        &self.word.whole
    }
}

/// Parts of a word of a query, as written between white space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct QueryChunk<'a> {
    text: &'a str,
    kind: WordKind,
}

/// Splits a query at white space. A URL counts as two chunks, since its host often names a service; so does a path with
/// its file extension.
fn chunks(text: &str) -> impl Iterator<Item = QueryChunk<'_>> {
    text.split_whitespace().flat_map(|chunk| {
        let chunk_of = |kind, text| QueryChunk { text, kind };
        if let Some(scheme_end) = chunk.find("://") {
            let host_end = chunk[scheme_end + 3..].find('/').map_or(chunk.len(), |end| scheme_end + 3 + end);
            let host = chunk_of(WordKind::Text, &chunk[scheme_end + 3..host_end]);
            return [host, chunk_of(WordKind::Path, &chunk[host_end..])];
        }
        if is_path(chunk) {
            let start = extension_start(chunk).unwrap_or(chunk.len());
            return [chunk_of(WordKind::Path, &chunk[..start]), chunk_of(WordKind::Extension, &chunk[start..])];
        }
        let kind = if is_number(chunk) {
            WordKind::Number
        } else if is_address(chunk) {
            WordKind::Path
        } else {
            WordKind::Text
        };
        [chunk_of(kind, chunk), chunk_of(WordKind::Text, "")]
    })
}

/// Splits a query into its words, in order.
pub(super) fn words(text: &str) -> Vec<QueryWord> {
    let mut words = Vec::new();
    for QueryChunk { text, kind } in chunks(text) {
        tokenize::for_each_word(text, |word| words.push(QueryWord { word, kind }));
    }
    words
}

/// Whether a query asks for something to be shown.
pub(super) fn is_question(words: &[QueryWord]) -> bool {
    let words = &words[..words.len().min(QUESTION_PREFIX_WORDS)];
    let mut pairs = words.iter().zip(words.iter().skip(1));
    let asks_quantity =
        pairs.any(|(first, second)| first.whole() == "how" && matches!(second.whole(), "many" | "much"));
    asks_quantity || words.iter().any(|word| QUESTION_WORDS.contains(&word.whole()))
}

/// Whether a query is written in another language than English: at least half of its words are of another language. One
/// of them must be in the list, because English has words with accents too (`café`).
pub(super) fn is_foreign(words: &[QueryWord]) -> bool {
    let content =
        || words.iter().filter(|word| word.kind == WordKind::Text && !vocabulary().is_stop_word(word.whole()));
    let foreign = content().filter(|word| is_foreign_word(word.whole()) || has_accent(word.whole())).count();
    2 * foreign >= content().count() && content().any(|word| is_foreign_word(word.whole()))
}

/// Whether a word in lower case is a common one of another language than English.
pub(super) fn is_foreign_word(word: &str) -> bool {
    static FOREIGN: OnceLock<HashSet<&'static str>> = OnceLock::new();
    FOREIGN.get_or_init(|| FOREIGN_WORDS.split_whitespace().collect()).contains(word)
}

/// Whether a word has Latin letters with an accent.
pub(super) fn has_accent(word: &str) -> bool {
    // Latin-1 Supplement and Latin Extended; other scripts have words of their own, in which slips happen too.
    word.chars().any(|letter| matches!(letter, '\u{c0}'..='\u{24f}')) && word.chars().any(|letter| letter.is_ascii())
}

/// Candidates for sources that a query states, longest first at each position.
pub(super) fn stated_sources(words: &[QueryWord]) -> Vec<StatedSource> {
    let words = &words[..words.len().min(MAX_STATED_WORDS)];
    let word = |position: usize| words.get(position).map(QueryWord::whole).unwrap_or_default();
    let mut stated = Vec::new();
    for position in 0..words.len() {
        if !SOURCE_PREPOSITIONS.contains(&word(position)) {
            continue;
        }
        let start = position + 1 + usize::from(ARTICLES.contains(&word(position + 1)));
        for end in (start + 1..=(start + MAX_SOURCE_WORDS).min(words.len())).rev() {
            let is_explicit = SOURCE_NOUNS.contains(&word(end));
            let name = words[start..end].iter().map(QueryWord::whole).collect();
            stated.push(StatedSource { name, is_explicit });
        }
    }
    stated
}

/// Texts between backticks, without the arguments of a call: `` `create_issue(owner)` `` becomes `create_issue`.
pub(super) fn quoted_names(text: &str) -> impl Iterator<Item = &str> {
    let parts: Vec<&str> = text.split('`').collect();
    // Every second part is inside, unless the last backtick is never closed.
    let closed = parts.len() - usize::from(parts.len().is_multiple_of(2));
    let inside = (1..closed).step_by(2).map(move |part| parts[part]);
    inside.map(|name| name.split('(').next().unwrap_or_default().trim()).filter(|name| !name.is_empty())
}

/// Whether a chunk is a number, an amount, a date or a time.
fn is_number(chunk: &str) -> bool {
    let inner = chunk.trim_matches(|letter: char| !letter.is_alphanumeric());
    if !inner.starts_with(|letter: char| letter.is_ascii_digit()) {
        return false;
    }
    let mut letters = inner.split(|letter: char| !letter.is_alphabetic()).filter(|part| !part.is_empty());
    letters.all(|part| NUMBER_SUFFIXES.contains(&part.to_ascii_lowercase().as_str()))
}

/// Whether a chunk is a path of a file system. A single slash separates source and tool too (`github/create_issue`), so
/// it takes more than that.
fn is_path(chunk: &str) -> bool {
    let inner = chunk.trim_matches(['"', '\'', '`', '(', ')', ',', ';', '<', '>', '[', ']']);
    let is_rooted = ["/", "./", "../", "~/"].iter().any(|root| inner.len() > root.len() && inner.starts_with(root));
    let slashes = inner.matches(['/', '\\']).count();
    is_rooted || slashes >= 2 || inner.contains(":\\") || (slashes == 1 && extension_start(inner).is_some())
}

/// Whether a chunk is an email address.
fn is_address(chunk: &str) -> bool {
    chunk.split_once('@').is_some_and(|(user, host)| !user.is_empty() && host.contains('.'))
}

/// Start of a file extension at the end of a chunk, without its dot.
fn extension_start(chunk: &str) -> Option<usize> {
    let end = chunk.trim_end_matches(|letter: char| !letter.is_alphanumeric()).len();
    let dot = chunk[..end].rfind('.')?;
    let extension = &chunk[dot + 1..end];
    let is_extension =
        (1..=5).contains(&extension.len()) && extension.chars().all(|letter| letter.is_ascii_alphanumeric());
    (is_extension && chunk[..dot].ends_with(char::is_alphanumeric)).then_some(dot + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_dates_paths_and_addresses_are_values() {
        let values = |text: &str| -> Vec<String> {
            chunks(text)
                .filter(|chunk| chunk.kind != WordKind::Text && !chunk.text.is_empty())
                .map(|chunk| chunk.text.to_owned())
                .collect()
        };
        assert_eq!(values("convert /srv/files/report.pdf to text"), ["/srv/files/report.", "pdf"]);
        assert_eq!(values("pay $20 on 2026-05-01 at 10am for 3rd time"), ["$20", "2026-05-01", "10am", "3rd"]);
        assert_eq!(values("clone https://github.com/a/b"), ["/a/b"]);
        assert_eq!(values("mail bob@example.com about src/main.rs"), ["bob@example.com", "src/main.", "rs"]);
        assert_eq!(values("use github/create_issue for k8s, s3, 2fa and/or v2"), [""; 0]);
    }

    #[test]
    fn questions_are_recognised() {
        for text in ["who wrote this?", "Which branches exist", "please show me orders", "how many users are there"] {
            assert!(is_question(&words(text)), "{text}");
        }
        for text in ["create an issue", "how to deploy", "delete the item that we list", ""] {
            assert!(!is_question(&words(text)), "{text}");
        }
    }

    #[test]
    fn other_languages_are_recognised() {
        for text in
            ["wetter morgen", "crear evento", "météo demain", "chercher un fichier", "datei löschen", "crea lista"]
        {
            assert!(is_foreign(&words(text)), "{text}");
        }
        for text in [
            "calender evnts",
            "send an emial",
            "wether forcast",
            "поисск",
            "list agenda items",
            "EST calender evnts",
            "café calender evnts",
            "résumé calender",
            "wetter calender evnts",
        ] {
            assert!(!is_foreign(&words(text)), "{text}");
        }
    }

    #[test]
    fn stated_sources_and_names_in_backticks_are_read() {
        let names = |text: &str| -> Vec<(String, bool)> {
            stated_sources(&words(text)).into_iter().map(|stated| (stated.name, stated.is_explicit)).collect()
        };
        assert!(names("list issues in github").contains(&("github".to_owned(), false)));
        assert!(names("post from the Google Maps server").contains(&("googlemaps".to_owned(), true)));
        assert_eq!(names("create an issue"), []);
        let quoted = |text| quoted_names(text).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(quoted("use `forecast` and `create_issue(title)`, not `x"), ["forecast", "create_issue"]);
        assert_eq!(quoted("nothing"), [""; 0]);
    }
}
