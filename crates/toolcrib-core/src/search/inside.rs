//! Weaker ways to meet a word: inside of longer words and names, or with a slip of the finger. What is found so ranks
//! below what has the word itself.

use super::directory::Directory;
use super::question::Question;
use super::words;

/// What a word counts that only holds the one asked for.
const INSIDE: f32 = 0.05;
const SHORTEST_INSIDE: usize = 2;
/// What a word counts that differs by a slip.
const SLIP: f32 = 0.5;
const SHORTEST_SLIP: usize = 5;
const LONG: usize = 9;
/// Names of people and places are unknown words too; in a long query, that is what most are.
const MOST_WORDS: usize = 6;

pub(super) fn score(directory: &Directory, question: &Question<'_>, scores: &mut [f32]) {
    if let [word] = &question.words[..] {
        inside(directory, word, scores);
    }
    if question.words.len() <= MOST_WORDS {
        let unknown = question.words.iter().filter(|word| directory.frequency(words::term(word)) == 0);
        unknown.for_each(|word| slips(directory, word, scores));
    }
}

fn inside(directory: &Directory, word: &str, scores: &mut [f32]) {
    // A single letter says nothing, but a single sign may be a word.
    if word.is_ascii() && word.len() < SHORTEST_INSIDE {
        return;
    }
    for key in directory.spellings().around(word, &words::stem(word)) {
        add(directory, key, INSIDE, scores);
    }
    for tool in directory.roll().around(word) {
        scores[tool as usize] += INSIDE;
    }
}

fn slips(directory: &Directory, word: &str, scores: &mut [f32]) {
    let stem = words::stem(word);
    let length = stem.chars().count();
    if length < SHORTEST_SLIP || stem.bytes().any(|byte| byte.is_ascii_digit()) {
        return;
    }
    let most = if length < LONG { 1 } else { 2 };
    // Slips rarely fall on the first letter.
    for key in directory.spellings().like(&stem, most) {
        add(directory, key, SLIP, scores);
    }
}

fn add(directory: &Directory, key: u64, share: f32, scores: &mut [f32]) {
    let Some(spread) = directory.spread(key) else { return };
    let weight = share * spread.rarity;
    directory.each(spread, |tool, impact| scores[tool as usize] += weight * impact);
}
