//! Line-by-line difference of two texts in the form of `diff -u`.

/// Unchanged lines before and after each change.
const CONTEXT: usize = 3;
/// Texts with more pairs of differing lines are shown as removed and added as a whole: the table of pairs
/// would need too much memory.
const MAX_PAIRS: usize = 4_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineChange {
    Kept,
    Removed,
    Added,
}

/// Returns the changed lines with context; empty if the texts are equal. `@@` stands for omitted
/// lines.
pub fn line_diff(before: &str, after: &str) -> String {
    let lines = changes(&before.lines().collect::<Vec<_>>(), &after.lines().collect::<Vec<_>>());
    let is_changed = |(change, _): &(LineChange, &str)| *change != LineChange::Kept;
    let mut text = String::new();
    let mut has_gap = false;
    for (index, (change, line)) in lines.iter().enumerate() {
        let around = index.saturating_sub(CONTEXT)..(index + CONTEXT + 1).min(lines.len());
        if !lines[around].iter().any(is_changed) {
            has_gap = true;
            continue;
        }
        if std::mem::take(&mut has_gap) {
            text.push_str("@@\n");
        }
        let mark = match change {
            LineChange::Kept => ' ',
            LineChange::Removed => '-',
            LineChange::Added => '+',
        };
        text.push_str(&format!("{mark}{line}\n"));
    }
    text
}

fn changes<'a>(before: &[&'a str], after: &[&'a str]) -> Vec<(LineChange, &'a str)> {
    let prefix = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    let (before_rest, after_rest) = (&before[prefix..], &after[prefix..]);
    let suffix = before_rest.iter().rev().zip(after_rest.iter().rev()).take_while(|(a, b)| a == b).count();
    let removed = &before_rest[..before_rest.len() - suffix];
    let added = &after_rest[..after_rest.len() - suffix];
    let mut lines: Vec<_> = before[..prefix].iter().map(|line| (LineChange::Kept, *line)).collect();
    lines.extend(changes_between(removed, added));
    lines.extend(before[before.len() - suffix..].iter().map(|line| (LineChange::Kept, *line)));
    lines
}

fn changes_between<'a>(before: &[&'a str], after: &[&'a str]) -> Vec<(LineChange, &'a str)> {
    let mut lines = Vec::new();
    let (mut i, mut j) = (0, 0);
    if before.len().saturating_mul(after.len()) <= MAX_PAIRS {
        let lengths = common_lengths(before, after);
        while i < before.len() && j < after.len() {
            if before[i] == after[j] {
                lines.push((LineChange::Kept, before[i]));
                (i, j) = (i + 1, j + 1);
            } else if lengths[i + 1][j] >= lengths[i][j + 1] {
                lines.push((LineChange::Removed, before[i]));
                i += 1;
            } else {
                lines.push((LineChange::Added, after[j]));
                j += 1;
            }
        }
    }
    lines.extend(before[i..].iter().map(|line| (LineChange::Removed, *line)));
    lines.extend(after[j..].iter().map(|line| (LineChange::Added, *line)));
    lines
}

/// Returns for each pair of positions the number of common lines from there on.
fn common_lengths(before: &[&str], after: &[&str]) -> Vec<Vec<u32>> {
    let mut lengths = vec![vec![0; after.len() + 1]; before.len() + 1];
    for i in (0..before.len()).rev() {
        for j in (0..after.len()).rev() {
            lengths[i][j] = if before[i] == after[j] {
                lengths[i + 1][j + 1] + 1
            } else {
                lengths[i + 1][j].max(lengths[i][j + 1])
            };
        }
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_the_changed_lines_and_those_around_them() {
        for (before, after, expected) in [
            ("a\nb\nc", "a\nb\nc", ""),
            ("a\nb\nc", "a\nx\nc", " a\n-b\n+x\n c\n"),
            ("", "a\nb", "+a\n+b\n"),
            ("a\nb", "", "-a\n-b\n"),
            ("a\nb\nc\nd", "b\nd\ne", "-a\n b\n-c\n d\n+e\n"),
            ("1\n2\n3\n4\n5\nx", "1\n2\n3\n4\n5\ny", "@@\n 3\n 4\n 5\n-x\n+y\n"),
            (
                "x\n1\n2\n3\n4\n5\n6\n7\nx",
                "y\n1\n2\n3\n4\n5\n6\n7\ny",
                "-x\n+y\n 1\n 2\n 3\n@@\n 5\n 6\n 7\n-x\n+y\n",
            ),
        ] {
            assert_eq!(line_diff(before, after), expected, "{before:?} {after:?}");
        }
    }

    #[test]
    fn long_texts_that_differ_completely_are_replaced_as_a_whole() {
        let text = |word: &str| (0..3000).map(|n| format!("{word}{n}\n")).collect::<String>();
        let diff = line_diff(&text("a"), &text("b"));
        assert_eq!((diff.lines().count(), diff.lines().next()), (6000, Some("-a0")));
    }
}
