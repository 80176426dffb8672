//! Splits text into the pieces of an embedding model, by the vocabulary of its `tokenizer.json`: WordPiece, BPE and
//! Unigram, as far as static embeddings need it. Texts are put into lower case and split at white space and punctuation
//! first, whatever the file says: names and queries differ in both from the prose that models were made for.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;
use toolcrib_core::error::Result;

use super::model::unusable_error;

/// Maximum length of a word in bytes. Longer ones are skipped, as splitting takes quadratic time.
const MAX_WORD_LEN: usize = 64;
/// Marks the beginning of a word in vocabularies of SentencePiece.
const METASPACE: char = '▁';

/// Splits words into pieces.
#[derive(Debug)]
pub(super) struct Tokenizer {
    /// Number of each piece.
    vocabulary: HashMap<Box<str>, u32>,
    algorithm: Algorithm,
    /// Mark of a piece that begins a word.
    word_prefix: WordPrefix,
}

#[derive(Debug)]
enum Algorithm {
    /// Longest match first; continuations have a prefix, usually `##`.
    WordPiece { continuation: Box<str> },
    /// Merges neighbours in the order of a list: rank by pair of pieces, separated by a space.
    Bpe { ranks: HashMap<Box<str>, u32>, word_end: Box<str> },
    /// Most probable split: logarithm of the probability by number of the piece.
    Unigram { scores: Vec<f32> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WordPrefix {
    None,
    /// `▁` of SentencePiece.
    Metaspace,
    /// Bytes as printable characters, a space as `Ġ`, as GPT-2 does it.
    ByteLevel,
}

/// The parts of `tokenizer.json` that are used.
#[derive(Deserialize)]
struct TokenizerFile {
    model: TokenizerModel,
}

#[derive(Deserialize)]
struct TokenizerModel {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    /// A map of pieces to numbers, or in Unigram a list of pieces with scores.
    vocab: Value,
    #[serde(default)]
    merges: Vec<Value>,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
}

impl Tokenizer {
    /// Parses `tokenizer.json`; `CONFIG_INVALID` for an unknown kind.
    pub(super) fn parse(text: &str) -> Result<Tokenizer> {
        let TokenizerFile { model } = serde_json::from_str(text)
            .map_err(|error| unusable_error(&format!("`tokenizer.json` is malformed: {error}")))?;
        let malformed = || unusable_error("the vocabulary of its tokenizer is malformed");
        // Old files do not name the kind; only Unigram has a list.
        let kind = match (model.kind.as_deref(), &model.vocab) {
            (Some(kind), _) => kind,
            (None, Value::Array(_)) => "Unigram",
            (None, _) if !model.merges.is_empty() => "BPE",
            (None, _) => "WordPiece",
        };
        let mut scores = Vec::new();
        let mut vocabulary: HashMap<Box<str>, u32> = HashMap::new();
        match &model.vocab {
            Value::Object(pieces) => {
                for (piece, number) in pieces {
                    let number = number.as_u64().and_then(|number| u32::try_from(number).ok()).ok_or_else(malformed)?;
                    vocabulary.insert(piece.as_str().into(), number);
                }
            }
            Value::Array(pieces) => {
                for (number, entry) in pieces.iter().enumerate() {
                    let piece = entry.get(0).and_then(Value::as_str).ok_or_else(malformed)?;
                    scores.push(entry.get(1).and_then(Value::as_f64).ok_or_else(malformed)? as f32);
                    vocabulary.entry(piece.into()).or_insert(number as u32);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return Err(malformed()),
        }
        let algorithm = match kind {
            "WordPiece" => {
                Algorithm::WordPiece { continuation: model.continuing_subword_prefix.as_deref().unwrap_or("##").into() }
            }
            "BPE" => Algorithm::Bpe {
                ranks: read_merges(&model.merges).ok_or_else(malformed)?,
                word_end: model.end_of_word_suffix.unwrap_or_default().into(),
            },
            "Unigram" if scores.len() >= vocabulary.len() => Algorithm::Unigram { scores },
            "Unigram" => return Err(malformed()),
            other => {
                let reason = format!("its tokenizer is `{other}`; `WordPiece`, `BPE` and `Unigram` are supported");
                return Err(unusable_error(&reason));
            }
        };
        let has_prefix = |prefix: char| vocabulary.keys().any(|piece| piece.starts_with(prefix));
        let word_prefix = match kind {
            "WordPiece" => WordPrefix::None,
            _ if has_prefix(METASPACE) => WordPrefix::Metaspace,
            _ if has_prefix('Ġ') => WordPrefix::ByteLevel,
            _ => WordPrefix::None,
        };
        Ok(Tokenizer { vocabulary, algorithm, word_prefix })
    }

    /// Largest number of a piece.
    pub(super) fn max_number(&self) -> Option<u32> {
        self.vocabulary.values().copied().max()
    }

    /// Numbers of the pieces of a text, in order; words with unknown parts give fewer or none.
    pub(super) fn split(&self, text: &str, max_pieces: usize) -> Vec<u32> {
        let lower = text.to_lowercase();
        let mut numbers = Vec::new();
        for word in lower.split(|character: char| !character.is_alphanumeric()) {
            if numbers.len() >= max_pieces {
                break;
            }
            if !word.is_empty() && word.len() <= MAX_WORD_LEN {
                self.split_word(word, &mut numbers);
            }
        }
        numbers.truncate(max_pieces);
        numbers
    }

    fn split_word(&self, word: &str, numbers: &mut Vec<u32>) {
        let word = match self.word_prefix {
            WordPrefix::None => word.to_owned(),
            WordPrefix::Metaspace => format!("{METASPACE}{word}"),
            WordPrefix::ByteLevel => std::iter::once('Ġ').chain(word.bytes().map(printable_byte)).collect(),
        };
        match &self.algorithm {
            Algorithm::WordPiece { continuation } => self.split_longest(&word, continuation, numbers),
            Algorithm::Bpe { ranks, word_end } => self.merge_pairs(&word, ranks, word_end, numbers),
            Algorithm::Unigram { scores } => self.split_most_probable(&word, scores, numbers),
        }
    }

    /// WordPiece: the longest known prefix, then the longest known continuations. Nothing if a part is unknown: such a
    /// word is `[UNK]`, which says nothing.
    fn split_longest(&self, word: &str, continuation: &str, numbers: &mut Vec<u32>) {
        let before = numbers.len();
        let mut start = 0;
        while start < word.len() {
            let prefix = if start == 0 { "" } else { continuation };
            let ends = (start + 1..=word.len()).rev().filter(|end| word.is_char_boundary(*end));
            let found = ends
                .map(|end| (end, format!("{prefix}{}", &word[start..end])))
                .find_map(|(end, piece)| self.vocabulary.get(piece.as_str()).map(|number| (end, *number)));
            let Some((end, number)) = found else {
                numbers.truncate(before);
                return;
            };
            numbers.push(number);
            start = end;
        }
    }

    /// BPE: starts with single characters and merges the pair of the lowest rank until none is left.
    fn merge_pairs(&self, word: &str, ranks: &HashMap<Box<str>, u32>, word_end: &str, numbers: &mut Vec<u32>) {
        let mut pieces: Vec<String> = word.chars().map(String::from).collect();
        if let Some(last) = pieces.last_mut() {
            last.push_str(word_end);
        }
        loop {
            let pairs = pieces.windows(2).enumerate();
            let ranked = pairs.filter_map(|(position, pair)| {
                Some((*ranks.get(format!("{} {}", pair[0], pair[1]).as_str())?, position))
            });
            let Some((_, position)) = ranked.min() else { break };
            let second = pieces.remove(position + 1);
            pieces[position].push_str(&second);
        }
        numbers.extend(pieces.iter().filter_map(|piece| self.vocabulary.get(piece.as_str())).copied());
    }

    /// Unigram: the split with the largest sum of scores (Viterbi); characters that no piece covers are skipped.
    fn split_most_probable(&self, word: &str, scores: &[f32], numbers: &mut Vec<u32>) {
        /// Worse than any piece, so that a character is skipped only if nothing covers it.
        const UNKNOWN_SCORE: f32 = -100.0;
        let ends: Vec<usize> = word.char_indices().map(|(start, character)| start + character.len_utf8()).collect();
        let starts: Vec<usize> = std::iter::once(0).chain(ends.iter().copied()).take(ends.len()).collect();
        // By position: the best score of a split up to it, where its last piece starts, and the number of that piece.
        let mut best: Vec<(f32, usize, Option<u32>)> = vec![(0.0, 0, None); ends.len() + 1];
        for (end_position, end) in ends.iter().enumerate() {
            let skipped = (best[end_position].0 + UNKNOWN_SCORE, end_position, None);
            best[end_position + 1] = (0..=end_position).fold(skipped, |chosen, start_position| {
                let Some(number) = self.vocabulary.get(&word[starts[start_position]..*end]) else { return chosen };
                let piece_score = scores.get(*number as usize).copied().unwrap_or(UNKNOWN_SCORE);
                let score = best[start_position].0 + piece_score;
                if score > chosen.0 { (score, start_position, Some(*number)) } else { chosen }
            });
        }
        let mut reversed = Vec::new();
        let mut position = ends.len();
        while position > 0 {
            reversed.extend(best[position].2);
            position = best[position].1;
        }
        numbers.extend(reversed.into_iter().rev());
    }
}

/// Ranks of merges, which are `"a b"` or `["a", "b"]`; `None` if one is neither.
fn read_merges(merges: &[Value]) -> Option<HashMap<Box<str>, u32>> {
    let mut ranks = HashMap::with_capacity(merges.len());
    for (rank, merge) in merges.iter().enumerate() {
        let pair = match merge.as_str() {
            Some(pair) => pair.to_owned(),
            None => format!("{} {}", merge.get(0)?.as_str()?, merge.get(1)?.as_str()?),
        };
        ranks.entry(pair.into()).or_insert(rank as u32);
    }
    Some(ranks)
}

/// The character that stands for a byte in byte-level vocabularies: itself if it is printable, otherwise one after
/// U+0100, in order.
fn printable_byte(byte: u8) -> char {
    let is_printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if is_printable(byte) {
        return char::from(byte);
    }
    let offset = (0..byte).filter(|other| !is_printable(*other)).count() as u32;
    char::from_u32(0x100 + offset).unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use toolcrib_core::error::Code;

    use super::*;

    fn check(tokenizer: &str, text: &str, expected: &[u32]) {
        assert_eq!(Tokenizer::parse(tokenizer).unwrap().split(text, 16), expected, "{text}");
    }

    #[test]
    fn word_pieces_are_the_longest_ones() {
        let tokenizer = r###"{"model":{"type":"WordPiece","vocab":{"[UNK]":0,"rain":1,"##y":2,"cloud":3,"rai":4}}}"###;
        check(tokenizer, "Rainy, cloud!", &[1, 2, 3]);
        check(tokenizer, "rainx cloud", &[3]);
    }

    #[test]
    fn pairs_are_merged_by_rank() {
        let metaspace = r#"{"model":{"type":"BPE","merges":["r a","▁ ra",["▁ra","in"],"i n"],
            "vocab":{"▁":0,"r":1,"a":2,"i":3,"n":4,"ra":5,"▁ra":6,"in":7,"▁rain":8,"y":9}}}"#;
        check(metaspace, "Rain rainy in", &[8, 8, 9, 0, 7]);
        let byte_level = r#"{"model":{"type":"BPE","merges":["Ġ a","Ã ©"],"vocab":{"Ġa":0,"Ġ":1,"Ã©":2,"a":3}}}"#;
        check(byte_level, "a é", &[0, 1, 2]);
        let suffix =
            r#"{"model":{"type":"BPE","end_of_word_suffix":"</w>","merges":["i n</w>"],"vocab":{"in</w>":5,"i":1}}}"#;
        check(suffix, "in", &[5]);
    }

    #[test]
    fn unigram_takes_the_most_probable_split() {
        let tokenizer = r#"{"model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0.0],["▁rain",-2.0],["y",-3.0],["▁ra",-1.0],["iny",-9.0],["▁",-4.0]]}}"#;
        check(tokenizer, "rainy", &[1, 2]);
        check(tokenizer, "y x", &[5, 2, 5]);
    }

    #[test]
    fn other_tokenizers_are_rejected() {
        for text in [
            r#"{"model":{"type":"WordLevel","vocab":{}}}"#,
            r#"{"model":{"type":"BPE","vocab":{},"merges":[1]}}"#,
            r#"{"model":{"type":"Unigram","vocab":{"a":1}}}"#,
            r#"{"model":{"type":"WordPiece","vocab":{"a":-1}}}"#,
            "{}",
        ] {
            assert_eq!(Tokenizer::parse(text).unwrap_err().code, Code::ConfigInvalid, "{text}");
        }
    }
}
