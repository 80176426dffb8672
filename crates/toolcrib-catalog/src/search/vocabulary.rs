//! Built-in knowledge about English words: stop words, weak words and related words (synonyms). Tables in the source
//! code instead of a model: they can be read and edited, and cost nothing at start. Other languages are searched
//! without them.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use super::tokenize;

/// Weight of a related word relative to a word of the query.
const RELATED_WEIGHT: f32 = 0.3;
/// Weight of a related verb. Lower, because verbs such as `get` and `fetch` are in most tool names and discriminate
/// less.
const RELATED_VERB_WEIGHT: f32 = 0.15;

/// Stop words: they say nothing about a tool.
const STOP_WORDS: &str = "
a an the and or but nor so yet if then else than that this these those there here
i me my mine myself we us our ours ourselves you your yours yourself he him his she her hers they them their theirs
it its itself is am are was were be been being do does did doing done have has had having
will would shall should can could may might must ought cannot
of to in on at by for from with without about into onto upon over under between among through during before after
above below up down out off again further once as per via within across
what which who whom whose when where why how not no yes any some each every all both few more most other others such
only own same too very just also even ever never
s t d m ll re ve don didn doesn isn aren wasn weren won wouldn couldn shouldn
please thanks thank hello hi hey ok okay";

/// Words that usually frame a request (`I want to`, `help me`), but are sometimes what it is about.
const WEAK_WORDS: &str = "
want need like help provide give tell let know get find show see look make use using used able try
interested information detail available specific currently recent latest best good great new
additionally furthermore moreover finally first next lastly together along including based related relevant various
different certain thing something anything someone anyone everything way kind type sort lot bit much many one two three
going plan planning consider wondering think hope love enjoy prefer wish
suggest recommend suggestion recommendation assist assistance support advice tip idea question answer explain
understand learn today now soon time day week month year really actually maybe perhaps sure possible possibly quickly
easily friend family company wife husband people person user fetch retrieve obtain check ensure access return";

/// Groups of related words, one per line. Words before `>` are related to those after it, but not vice versa; lines
/// that start with `!` are verbs.
const RELATED_WORDS: &str = include_str!("related.txt");

/// Weight of a weak word of a query.
const WEAK_WORD_WEIGHT: f32 = 0.7;

/// Parsed word lists.
#[derive(Debug, Default)]
pub(super) struct Vocabulary {
    stop_words: HashSet<&'static str>,
    weak_terms: HashSet<u64>,
    /// By term key: related terms and their weights.
    related: HashMap<u64, Vec<(u64, f32)>>,
}

/// Returns the vocabulary, which is parsed on first use.
pub(super) fn vocabulary() -> &'static Vocabulary {
    static VOCABULARY: OnceLock<Vocabulary> = OnceLock::new();
    VOCABULARY.get_or_init(Vocabulary::load)
}

impl Vocabulary {
    fn load() -> Vocabulary {
        let mut vocabulary = Vocabulary {
            stop_words: STOP_WORDS.split_whitespace().collect(),
            weak_terms: WEAK_WORDS.split_whitespace().map(tokenize::term_key).collect(),
            related: HashMap::new(),
        };
        RELATED_WORDS.lines().for_each(|line| vocabulary.add_group(line));
        vocabulary
    }

    /// Adds one line of `related.txt`.
    fn add_group(&mut self, line: &str) {
        let (line, weight) = match line.strip_prefix('!') {
            Some(line) => (line, RELATED_VERB_WEIGHT),
            None => (line, RELATED_WEIGHT),
        };
        let (from, to) = line.split_once('>').unwrap_or((line, line));
        let to: Vec<u64> = to.split_whitespace().map(tokenize::term_key).collect();
        for word in from.split_whitespace().map(tokenize::term_key) {
            let related = self.related.entry(word).or_default();
            for other in &to {
                if *other != word && related.iter().all(|(related, _)| related != other) {
                    related.push((*other, weight));
                }
            }
        }
    }

    /// Whether a lower-case word is a stop word.
    pub(super) fn is_stop_word(&self, word: &str) -> bool {
        self.stop_words.contains(word)
    }

    /// Whether a term is one of the vocabulary, so that its word is spelled as it is meant.
    pub(super) fn contains(&self, term: u64) -> bool {
        self.weak_terms.contains(&term) || self.related.contains_key(&term)
    }

    /// Weight of a query term before rarity is taken into account.
    pub(super) fn weight(&self, term: u64) -> f32 {
        if self.weak_terms.contains(&term) { WEAK_WORD_WEIGHT } else { 1.0 }
    }

    /// Related terms with their weights.
    pub(super) fn related(&self, term: u64) -> &[(u64, f32)] {
        self.related.get(&term).map(Vec::as_slice).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_related(from: &str, to: &str) -> bool {
        vocabulary().related(tokenize::term_key(from)).iter().any(|(term, _)| *term == tokenize::term_key(to))
    }

    #[test]
    fn words_of_a_group_are_related_both_ways() {
        for (a, b) in [("repo", "repository"), ("delete", "remove"), ("k8s", "kubernetes"), ("emails", "mail")] {
            assert!(is_related(a, b) && is_related(b, a), "{a} {b}");
        }
    }

    #[test]
    fn words_before_an_arrow_are_related_one_way() {
        assert!(is_related("umbrella", "weather"));
        assert!(!is_related("weather", "umbrella"));
    }

    #[test]
    fn no_word_is_related_to_itself_or_to_a_stop_word() {
        for (term, related) in &vocabulary().related {
            assert!(related.iter().all(|(other, _)| other != term));
        }
        let listed = RELATED_WORDS.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        let stop_words: Vec<&str> = listed.filter(|word| vocabulary().is_stop_word(word)).collect();
        assert_eq!(stop_words, Vec::<&str>::new());
    }
}
