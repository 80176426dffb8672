//! Many short texts concatenated into one, so that a substring search scans them all in a single pass. A line break
//! cannot occur in a text, so no match spans two of them.

use memchr::memmem;

/// Texts joined by line breaks, addressed by position.
#[derive(Debug, Default)]
pub(super) struct TextBlock {
    /// Each text followed by a line break. Texts contain no line breaks themselves.
    text: String,
    /// Byte offset of each text.
    starts: Vec<u32>,
}

impl TextBlock {
    /// Appends a text.
    pub(super) fn push(&mut self, line: &str) {
        self.starts.push(self.text.len() as u32);
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// Returns the text at a position, or an empty one past the end.
    pub(super) fn get(&self, position: usize) -> &str {
        let start = |position: usize| self.starts.get(position).map_or(self.text.len(), |start| *start as usize);
        self.text.get(start(position)..start(position + 1).saturating_sub(1)).unwrap_or_default()
    }

    /// Number of texts at the front for which `before` is true. Requires texts sorted accordingly, like
    /// [`slice::partition_point`].
    pub(super) fn partition_point(&self, before: impl Fn(&str) -> bool) -> usize {
        let mut low = 0;
        let mut high = self.starts.len();
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

    /// Positions of the texts that contain `part`, in ascending order. `part` must not be empty.
    pub(super) fn containing(&self, part: &str) -> Vec<usize> {
        let mut found: Vec<usize> = Vec::new();
        for offset in memmem::find_iter(self.text.as_bytes(), part) {
            let position = self.starts.partition_point(|start| *start as usize <= offset).saturating_sub(1);
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

    fn text_block(texts: &[&str]) -> TextBlock {
        let mut block = TextBlock::default();
        texts.iter().for_each(|text| block.push(text));
        block
    }

    #[test]
    fn containing_finds_each_text_once() {
        let block = text_block(&["banana", "", "an", "nab", "größe"]);
        assert_eq!(block.containing("an"), [0, 2]);
        assert_eq!(block.containing("na"), [0, 3]);
        assert_eq!(block.containing("öß"), [4]);
        assert_eq!(block.containing("nn"), [0; 0]);
        assert_eq!((block.get(0), block.get(1), block.get(4), block.get(5)), ("banana", "", "größe", ""));
    }

    #[test]
    fn partition_point_splits_sorted_texts() {
        let block = text_block(&["a", "b", "b", "c"]);
        assert_eq!(block.partition_point(|line| line < "b"), 1);
        assert_eq!(block.partition_point(|line| line < "d"), 4);
    }
}
