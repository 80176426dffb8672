//! Many short texts in one, so that all can be searched in one go.

use memchr::memmem;

#[derive(Debug, Default)]
pub(super) struct TextBlock {
    /// Each with a line break after it, which none has within.
    text: String,
    starts: Vec<u32>,
}

impl TextBlock {
    pub(super) fn push(&mut self, line: &str) {
        self.starts.push(self.text.len() as u32);
        self.text.push_str(line);
        self.text.push('\n');
    }

    pub(super) fn get(&self, position: usize) -> &str {
        let start = |position: usize| self.starts.get(position).map_or(self.text.len(), |start| *start as usize);
        self.text.get(start(position)..start(position + 1).saturating_sub(1)).unwrap_or_default()
    }

    /// How many come before the first that is not `before`; they must be in order.
    pub(super) fn partition_point(&self, before: impl Fn(&str) -> bool) -> usize {
        let (mut low, mut high) = (0, self.starts.len());
        while low < high {
            let middle = low.midpoint(high);
            if before(self.get(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The positions of those that have `part` inside, in order. It must not be empty.
    pub(super) fn containing(&self, part: &str) -> Vec<usize> {
        let mut found: Vec<usize> = Vec::new();
        for at in memmem::find_iter(self.text.as_bytes(), part) {
            let position = self.starts.partition_point(|start| *start as usize <= at).saturating_sub(1);
            if found.last() != Some(&position) {
                found.push(position);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_block(all: &[&str]) -> TextBlock {
        let mut lines = TextBlock::default();
        all.iter().for_each(|line| lines.push(line));
        lines
    }

    #[test]
    fn a_part_is_found_within_lines_once_in_each() {
        let lines = text_block(&["banana", "", "an", "nab", "größe"]);
        assert_eq!(lines.containing("an"), [0, 2]);
        assert_eq!(lines.containing("na"), [0, 3]);
        assert_eq!(lines.containing("öß"), [4]);
        assert_eq!(lines.containing("nn"), [0; 0]);
        assert_eq!((lines.get(0), lines.get(1), lines.get(4), lines.get(5)), ("banana", "", "größe", ""));
    }

    #[test]
    fn lines_in_order_are_parted() {
        let lines = text_block(&["a", "b", "b", "c"]);
        assert_eq!(lines.partition_point(|line| line < "b"), 1);
        assert_eq!(lines.partition_point(|line| line < "d"), 4);
    }
}
