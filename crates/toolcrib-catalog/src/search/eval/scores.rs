//! Ranking metrics: recall, NDCG (gain 1 per needed tool) and mean reciprocal rank.
//!
//! Recall@k is the share of needed tools among the first k; NDCG@k also rewards a higher rank, relative to the best
//! possible order; the reciprocal rank is 1 divided by the rank of the first needed tool.

use std::collections::BTreeSet;

use serde::{Serialize, Serializer};
use serde_json::Value;

/// Cutoffs at which recall is always reported.
const RECALL_CUTOFFS: [usize; 4] = [1, 3, 5, DEFAULT_CUTOFF];
const DEFAULT_CUTOFF: usize = 10;

/// Accumulates metrics over queries.
#[derive(Debug, Clone)]
pub struct Scores {
    queries: usize,
    recall: Vec<CutoffSum>,
    ndcg: Vec<CutoffSum>,
    /// Sum over all queries.
    reciprocal_ranks: f64,
}

/// Sum of a metric over all queries, considering the first `cutoff` hits of each.
#[derive(Debug, Clone)]
struct CutoffSum {
    cutoff: usize,
    sum: f64,
}

/// Mean metrics over all queries, rounded to four digits.
#[derive(Debug, Clone, PartialEq)]
pub struct MeanScores {
    pub queries: usize,
    /// Metric name and value: `recall@5`, `ndcg@10`, `mrr`.
    pub measures: Vec<(String, f64)>,
}

impl Default for Scores {
    fn default() -> Scores {
        Scores::with_cutoff(DEFAULT_CUTOFF)
    }
}

impl Scores {
    /// Creates an accumulator with the default cutoffs and one more.
    pub fn with_cutoff(cutoff: usize) -> Scores {
        let sums = |default_cutoffs: &[usize]| -> Vec<CutoffSum> {
            let cutoffs: BTreeSet<usize> = default_cutoffs.iter().copied().chain([cutoff]).collect();
            cutoffs.into_iter().map(|cutoff| CutoffSum { cutoff, sum: 0.0 }).collect()
        };
        Scores { queries: 0, recall: sums(&RECALL_CUTOFFS), ndcg: sums(&[DEFAULT_CUTOFF]), reciprocal_ranks: 0.0 }
    }

    /// Largest cutoff, i.e. the number of hits to request per query.
    pub fn max_cutoff(&self) -> usize {
        self.recall.last().map_or(DEFAULT_CUTOFF, |sum| sum.cutoff)
    }

    /// Adds one query. `ranking` lists the tools found, by position; each group counts once, at its first tool.
    pub fn add(&mut self, groups: &[Vec<usize>], ranking: &[Option<usize>]) {
        let mut ranks: Vec<usize> = Vec::new();
        let mut is_found = vec![false; groups.len()];
        for (rank, tool) in ranking.iter().enumerate() {
            let Some(tool) = tool else { continue };
            let group = (0..groups.len()).find(|&group| !is_found[group] && groups[group].contains(tool));
            if let Some(group) = group {
                is_found[group] = true;
                ranks.push(rank);
            }
        }
        self.queries += 1;
        self.reciprocal_ranks += ranks.first().map_or(0.0, |rank| 1.0 / (*rank as f64 + 1.0));
        for CutoffSum { cutoff, sum } in &mut self.recall {
            let found_count = ranks.iter().filter(|rank| *rank < cutoff).count();
            *sum += found_count as f64 / groups.len().max(1) as f64;
        }
        // Ranks count from 0, so the first one has a gain of 1.
        let gain = |rank: usize| 1.0 / (rank as f64 + 2.0).log2();
        for CutoffSum { cutoff, sum } in &mut self.ndcg {
            let ideal: f64 = (0..groups.len().min(*cutoff)).map(gain).sum();
            let gained: f64 = ranks.iter().filter(|rank| *rank < cutoff).map(|rank| gain(*rank)).sum();
            *sum += if ideal > 0.0 { gained / ideal } else { 0.0 };
        }
    }

    /// Returns the means over all queries added so far.
    pub fn means(&self) -> MeanScores {
        // More than four digits would be noise.
        let mean = |sum: f64| (sum / self.queries.max(1) as f64 * 1e4).round() / 1e4;
        let recall = self.recall.iter().map(|CutoffSum { cutoff, sum }| (format!("recall@{cutoff}"), mean(*sum)));
        let ndcg = self.ndcg.iter().map(|CutoffSum { cutoff, sum }| (format!("ndcg@{cutoff}"), mean(*sum)));
        let measures = recall.chain(ndcg).chain([("mrr".to_owned(), mean(self.reciprocal_ranks))]);
        MeanScores { queries: self.queries, measures: measures.collect() }
    }
}

impl MeanScores {
    /// Returns a metric by name, e.g. `ndcg@10`.
    pub fn get(&self, measure: &str) -> Option<f64> {
        self.measures.iter().find(|(name, _)| name == measure).map(|(_, mean)| *mean)
    }
}

impl Serialize for MeanScores {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let measures = self.measures.iter().map(|(name, mean)| (name.as_str(), Value::from(*mean)));
        serializer.collect_map([("queries", Value::from(self.queries))].into_iter().chain(measures))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(groups: &[&[usize]], ranking: &[usize], expected: (f64, f64, f64)) {
        let groups: Vec<Vec<usize>> = groups.iter().map(|group| group.to_vec()).collect();
        let ranking: Vec<Option<usize>> = ranking.iter().copied().map(Some).collect();
        let mut scores = Scores::default();
        scores.add(&groups, &ranking);
        let mean = |measure: &str| scores.means().get(measure).unwrap();
        assert_eq!((mean("recall@1"), mean("ndcg@10"), mean("mrr")), expected, "{groups:?} {ranking:?}");
    }

    #[test]
    fn each_group_counts_once_at_its_first_hit() {
        check(&[&[7]], &[7, 1, 2], (1.0, 1.0, 1.0));
        check(&[&[7]], &[1, 7], (0.0, 0.6309, 0.5));
        check(&[&[7, 8]], &[8, 7], (1.0, 1.0, 1.0));
        check(&[&[7], &[8]], &[8, 7], (0.5, 1.0, 1.0));
        check(&[&[7], &[8]], &[8, 1, 7], (0.5, 0.9197, 1.0));
        check(&[&[]], &[1], (0.0, 0.0, 0.0));
        check(&[&[7]], &[], (0.0, 0.0, 0.0));
    }

    #[test]
    fn default_and_requested_cutoffs_are_reported() {
        for (cut, expected, depth) in [
            (1, "recall@1 recall@3 recall@5 recall@10 ndcg@1 ndcg@10 mrr", 10),
            (4, "recall@1 recall@3 recall@4 recall@5 recall@10 ndcg@4 ndcg@10 mrr", 10),
            (10, "recall@1 recall@3 recall@5 recall@10 ndcg@10 mrr", 10),
            (20, "recall@1 recall@3 recall@5 recall@10 recall@20 ndcg@10 ndcg@20 mrr", 20),
        ] {
            let scores = Scores::with_cutoff(cut);
            let measures = scores.means().measures;
            assert_eq!(measures.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" "), expected);
            assert_eq!(scores.max_cutoff(), depth);
        }
        let mut scores = Scores::with_cutoff(2);
        scores.add(&[vec![7], vec![8], vec![9]], &[Some(1), Some(7), Some(8)]);
        assert_eq!(scores.means().get("recall@2"), Some(0.3333));
        assert_eq!(scores.means().get("ndcg@2"), Some(0.3869));
    }
}
