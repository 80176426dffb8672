//! A closer look at the tools that words alone put first: do the words stand side by side, is the name accounted for,
//! does the source fit, and does the tool add something to those before it.

use super::asked::{Asked, Known};
use super::directory::{Directory, Spread};
use super::rank::{Scored, better};

/// What two words side by side add, by their mean rarity.
const PAIR: f32 = 0.15;
/// What a name of which every word was asked for adds, as a share of the score.
const WHOLE_NAME: f32 = 0.3;
/// How far a related word accounts for one in the name.
const RELATED_IN_NAME: f32 = 0.3;
/// What a source adds to each of its tools, as a share of its best tool's score.
const FITTING_SOURCE: f32 = 0.2;
/// So many places are filled with an eye to those before, from so many candidates.
const DIVERSE: usize = 10;
const DIVERSE_AMONG: usize = 30;
/// How much a word that was answered already still counts less.
const ANSWERED: f32 = 0.3;

/// Scores anew and puts the best first.
pub(super) fn look(directory: &Directory, asked: &Asked<'_>, best: &mut Vec<Scored>) {
    let wanted = Wanted::new(asked);
    let texts = directory.texts();
    let mut best_of = vec![0.0_f32; directory.places()];
    for scored in best.iter_mut() {
        let pairs = wanted.pairs(texts.sequence(scored.tool));
        let share = wanted.share_of_name(texts.name(scored.tool), texts.rarity_of_name(scored.tool));
        scored.score = (scored.score + pairs) * (1.0 + WHOLE_NAME * share);
        let best_there = &mut best_of[directory.place_of(scored.tool) as usize];
        *best_there = best_there.max(scored.score);
    }
    // In a catalogue of one source it would say nothing.
    let mut sources = best.iter().map(|scored| directory.place_of(scored.tool));
    let first = sources.next();
    if sources.any(|source| Some(source) != first) {
        for scored in best.iter_mut() {
            scored.score += FITTING_SOURCE * best_of[directory.place_of(scored.tool) as usize];
        }
    }
    best.sort_unstable_by(better);
    diversify(directory, &asked.terms, best);
}

/// The query by the numbers of its terms, ready to be compared with many tools.
struct Wanted {
    /// By number: how rare a term is, and how far it accounts for one in a name.
    terms: Vec<(u32, f32, f32)>,
    any: Sieve,
    /// What pairs are worth.
    pairs: Vec<(u32, u32, f32)>,
    firsts: Sieve,
}

impl Wanted {
    fn new(asked: &Asked<'_>) -> Wanted {
        let related = asked.related.iter().map(|related| (related.spread, RELATED_IN_NAME));
        let terms = related.chain(asked.terms.iter().map(|term| (term.spread, 1.0)));
        let mut terms: Vec<(u32, f32, f32)> =
            terms.map(|(spread, share)| (spread.number, spread.rarity, share)).collect();
        terms.sort_unstable_by_key(|(number, ..)| *number);
        let worth = |one: &Spread, other: &Spread| PAIR * ((one.rarity + other.rarity) / 2.0);
        Wanted {
            any: Sieve::of(terms.iter().map(|(number, ..)| *number)),
            terms,
            firsts: Sieve::of(asked.pairs.iter().map(|(first, _)| first.number)),
            pairs: asked.pairs.iter().map(|(one, other)| (one.number, other.number, worth(one, other))).collect(),
        }
    }

    /// What the pairs of the query that stand in a tool's text are worth, each counted once.
    fn pairs(&self, sequence: &[u32]) -> f32 {
        let mut found: Vec<(u32, u32)> = Vec::new();
        let mut sum = 0.0;
        for pair in sequence.windows(2) {
            if !self.firsts.may_have(pair[0]) {
                continue;
            }
            let wanted = self.pairs.iter().find(|(one, other, _)| (*one, *other) == (pair[0], pair[1]));
            if let Some(&(one, other, worth)) = wanted
                && !found.contains(&(one, other))
            {
                sum += worth;
                found.push((one, other));
            }
        }
        sum
    }

    /// How much of a tool's name was asked for, from 0 to 1, rare words before common ones.
    fn share_of_name(&self, name: &[u32], rarity: f32) -> f32 {
        let mut asked = 0.0;
        for term in name.iter().filter(|term| self.any.may_have(**term)) {
            if let Ok(position) = self.terms.binary_search_by_key(term, |(number, ..)| *number) {
                let (_, rarity, share) = self.terms[position];
                asked += rarity * share;
            }
        }
        if rarity > 0.0 { asked / rarity } else { 0.0 }
    }
}

/// A quick no for most numbers.
struct Sieve([bool; 4096]);

impl Sieve {
    fn of(numbers: impl Iterator<Item = u32>) -> Sieve {
        let mut sieve = Sieve([false; 4096]);
        numbers.for_each(|number| sieve.0[number as usize % 4096] = true);
        sieve
    }

    fn may_have(&self, number: u32) -> bool {
        self.0[number as usize % 4096]
    }
}

/// A task may need several tools: what the tools before have answered counts less for those that follow.
fn diversify(directory: &Directory, terms: &[Known<'_>], best: &mut Vec<Scored>) {
    let mut rest = best.split_off(DIVERSE_AMONG.min(best.len()));
    let worth = worth(directory, terms, best);
    let worth = |row: usize| &worth[row * terms.len()..(row + 1) * terms.len()];
    let mut left: Vec<(usize, Scored)> = best.drain(..).enumerate().collect();
    let mut answered = vec![0.0_f32; terms.len()];
    while !left.is_empty() {
        let adjusted = |(row, scored): &(usize, Scored)| {
            let again: f32 = worth(*row).iter().zip(&answered).map(|(worth, answered)| worth * answered).sum();
            Scored { score: scored.score - ANSWERED * again, ..*scored }
        };
        if best.len() >= DIVERSE {
            best.extend(left.iter().map(adjusted));
            break;
        }
        let nearest = left.iter().map(adjusted).enumerate().min_by(|(_, one), (_, other)| better(one, other));
        let Some((position, scored)) = nearest else { break };
        best.push(scored);
        let (row, _) = left.remove(position);
        for ((answered, worth), term) in answered.iter_mut().zip(worth(row)).zip(terms) {
            *answered = answered.max(if term.weight > 0.0 { worth / term.weight } else { 0.0 });
        }
    }
    let places = best.len().min(DIVERSE);
    best[places..].sort_unstable_by(better);
    // Scores go down a list, here too.
    let last = best.last().map_or(f32::MAX, |scored| scored.score);
    rest.iter_mut().for_each(|scored| scored.score = scored.score.min(last));
    best.append(&mut rest);
}

/// What each term is worth for each tool, one tool after the other.
fn worth(directory: &Directory, terms: &[Known<'_>], tools: &[Scored]) -> Vec<f32> {
    let mut worth = vec![0.0; tools.len() * terms.len()];
    for (column, term) in terms.iter().enumerate() {
        let postings = directory.postings(term.spread);
        for (row, scored) in tools.iter().enumerate() {
            if let Ok(found) = postings.binary_search_by_key(&scored.tool, |posting| posting.tool) {
                worth[row * terms.len() + column] = postings[found].impact * term.weight;
            }
        }
    }
    worth
}
