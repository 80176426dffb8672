//! A closer look at the tools that words alone put first: do the words stand side by side, is the name accounted for,
//! does the source fit, and does the tool add something to those before it.

use std::collections::HashMap;

use super::directory::{Directory, Keyed};
use super::postings::{Card, Posting};
use super::question::Question;
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
pub(super) fn look(directory: &Directory, question: &Question<'_>, best: &mut Vec<Scored>) {
    let asked = Asked::new(directory, question);
    let mut by_source: HashMap<u32, f32> = HashMap::new();
    let mut sources: Vec<u32> = Vec::with_capacity(best.len());
    for scored in best.iter_mut() {
        let Some((source, card)) = directory.card(scored.tool) else { continue };
        scored.score = (scored.score + asked.pairs(card)) * (1.0 + WHOLE_NAME * asked.share_of_name(directory, card));
        let best_there = by_source.entry(source).or_default();
        *best_there = best_there.max(scored.score);
        sources.push(source);
    }
    // In a catalogue of one source it would say nothing.
    if by_source.len() > 1 {
        for (scored, source) in best.iter_mut().zip(&sources) {
            scored.score += FITTING_SOURCE * by_source.get(source).copied().unwrap_or_default();
        }
    }
    best.sort_unstable_by(better);
    diversify(directory, question, best);
}

/// The query, ready to be compared with many tools.
struct Asked {
    /// How far each term accounts for one in a name.
    terms: Keyed<f32>,
    /// What pairs are worth, by both words.
    pairs: Keyed<f32>,
    /// The first words of pairs, as a quick look.
    firsts: Keyed<()>,
}

impl Asked {
    fn new(directory: &Directory, question: &Question<'_>) -> Asked {
        let related = question.related.iter().map(|related| (related.key, RELATED_IN_NAME));
        let rarity = |&(one, other): &(u64, u64)| (directory.rarity(one) + directory.rarity(other)) / 2.0;
        Asked {
            terms: related.chain(question.terms.iter().map(|term| (term.key, 1.0))).collect(),
            pairs: question.pairs.iter().map(|pair| (joined(pair.0, pair.1), PAIR * rarity(pair))).collect(),
            firsts: question.pairs.iter().map(|(first, _)| (*first, ())).collect(),
        }
    }

    /// What the pairs of the query that stand in a tool's text are worth, each counted once.
    fn pairs(&self, card: &Card) -> f32 {
        let mut found: Vec<u64> = Vec::new();
        let mut sum = 0.0;
        for pair in card.sequence.windows(2) {
            let (one, pair) = (pair[0], joined(pair[0], pair[1]));
            if !self.firsts.contains_key(&one) || found.contains(&pair) {
                continue;
            }
            if let Some(worth) = self.pairs.get(&pair) {
                sum += worth;
                found.push(pair);
            }
        }
        sum
    }

    /// How much of a tool's name was asked for, from 0 to 1, rare words before common ones.
    fn share_of_name(&self, directory: &Directory, card: &Card) -> f32 {
        let (mut asked, mut all) = (0.0, 0.0);
        for term in &card.name {
            let rarity = directory.rarity(*term);
            all += rarity;
            asked += rarity * self.terms.get(term).copied().unwrap_or_default();
        }
        if all > 0.0 { asked / all } else { 0.0 }
    }
}

fn joined(one: u64, other: u64) -> u64 {
    one.rotate_left(17) ^ other
}

/// A task may need several tools: what the tools before have answered counts less for those that follow.
fn diversify(directory: &Directory, question: &Question<'_>, best: &mut Vec<Scored>) {
    let mut rest = best.split_off(DIVERSE_AMONG.min(best.len()));
    let full: Vec<f32> = question.terms.iter().map(|term| term.weight * directory.rarity(term.key)).collect();
    let postings: Vec<&[Posting]> = question.terms.iter().map(|term| directory.postings(term.key)).collect();
    let worth = |scored: &Scored| -> Vec<f32> {
        let impact = |postings: &&[Posting]| {
            let found = postings.binary_search_by_key(&scored.tool, |posting| posting.tool);
            found.map_or(0.0, |found| postings[found].impact)
        };
        postings.iter().map(impact).zip(&full).map(|(impact, full)| impact * full).collect()
    };
    let mut left: Vec<(Scored, Vec<f32>)> = best.drain(..).map(|scored| (scored, worth(&scored))).collect();
    let mut answered = vec![0.0_f32; full.len()];
    while !left.is_empty() {
        let adjusted = |(scored, worth): &(Scored, Vec<f32>)| {
            let again: f32 = worth.iter().zip(&answered).map(|(worth, answered)| worth * answered).sum();
            Scored { score: scored.score - ANSWERED * again, ..*scored }
        };
        if best.len() >= DIVERSE {
            best.extend(left.iter().map(adjusted));
            break;
        }
        let nearest = left.iter().map(adjusted).enumerate().min_by(|(_, one), (_, other)| better(one, other));
        let Some((position, scored)) = nearest else { break };
        best.push(scored);
        let (_, worth) = left.remove(position);
        for ((answered, worth), full) in answered.iter_mut().zip(worth).zip(&full) {
            *answered = answered.max(if *full > 0.0 { worth / full } else { 0.0 });
        }
    }
    let places = best.len().min(DIVERSE);
    best[places..].sort_unstable_by(better);
    // Scores go down a list, here too.
    let last = best.last().map_or(f32::MAX, |scored| scored.score);
    rest.iter_mut().for_each(|scored| scored.score = scored.score.min(last));
    best.append(&mut rest);
}
