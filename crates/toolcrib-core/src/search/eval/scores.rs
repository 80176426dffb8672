//! The usual measures: recall, NDCG with one gain for each needed tool, and the reciprocal rank of the first found.

use serde::Serialize;

const DEPTH: usize = 10;

#[derive(Debug, Clone, Default)]
pub struct Scores {
    queries: usize,
    recall: [f64; 4],
    ndcg: f64,
    reciprocal: f64,
}

/// Means over all queries.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Means {
    pub queries: usize,
    #[serde(rename = "recall@1")]
    pub recall_1: f64,
    #[serde(rename = "recall@3")]
    pub recall_3: f64,
    #[serde(rename = "recall@5")]
    pub recall_5: f64,
    #[serde(rename = "recall@10")]
    pub recall_10: f64,
    #[serde(rename = "ndcg@10")]
    pub ndcg_10: f64,
    pub mrr: f64,
}

const CUTS: [usize; 4] = [1, 3, 5, 10];

impl Scores {
    /// `ranking` names tools by their position; the first found of a group counts.
    pub fn add(&mut self, groups: &[Vec<usize>], ranking: &[Option<usize>]) {
        let mut ranks: Vec<usize> = Vec::new();
        let mut met = vec![false; groups.len()];
        for (rank, tool) in ranking.iter().enumerate() {
            let Some(tool) = tool else { continue };
            let group = (0..groups.len()).find(|&group| !met[group] && groups[group].contains(tool));
            if let Some(group) = group {
                met[group] = true;
                ranks.push(rank);
            }
        }
        let gain = |rank: usize| 1.0 / (rank as f64 + 2.0).log2();
        let ideal: f64 = (0..groups.len().min(DEPTH)).map(gain).sum();
        let gained: f64 = ranks.iter().filter(|rank| **rank < DEPTH).map(|rank| gain(*rank)).sum();
        self.queries += 1;
        self.ndcg += if ideal > 0.0 { gained / ideal } else { 0.0 };
        self.reciprocal += ranks.first().map_or(0.0, |rank| 1.0 / (*rank as f64 + 1.0));
        for (sum, cut) in self.recall.iter_mut().zip(CUTS) {
            let found = ranks.iter().filter(|rank| **rank < cut).count();
            *sum += found as f64 / groups.len().max(1) as f64;
        }
    }

    pub fn means(&self) -> Means {
        // Four digits: more would be noise.
        let mean = |sum: f64| (sum / self.queries.max(1) as f64 * 1e4).round() / 1e4;
        let [recall_1, recall_3, recall_5, recall_10] = self.recall.map(mean);
        let (ndcg_10, mrr) = (mean(self.ndcg), mean(self.reciprocal));
        Means { queries: self.queries, recall_1, recall_3, recall_5, recall_10, ndcg_10, mrr }
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
        let means = scores.means();
        assert_eq!((means.recall_1, means.ndcg_10, means.mrr), expected, "{groups:?} {ranking:?}");
    }

    #[test]
    fn each_needed_tool_counts_once_where_it_is_first_found() {
        check(&[&[7]], &[7, 1, 2], (1.0, 1.0, 1.0));
        check(&[&[7]], &[1, 7], (0.0, 0.6309, 0.5));
        check(&[&[7, 8]], &[8, 7], (1.0, 1.0, 1.0));
        check(&[&[7], &[8]], &[8, 7], (0.5, 1.0, 1.0));
        check(&[&[7], &[8]], &[8, 1, 7], (0.5, 0.9197, 1.0));
        check(&[&[]], &[1], (0.0, 0.0, 0.0));
        check(&[&[7]], &[], (0.0, 0.0, 0.0));
    }
}
