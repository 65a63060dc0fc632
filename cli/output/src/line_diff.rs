//! Line-by-line difference of two texts in the form of `diff -u`.

use std::time::{Duration, Instant};

use similar::algorithms::{Capture, Replace, diff_slices_deadline};
use similar::{Algorithm, group_diff_ops};

const CONTEXT: usize = 3;
/// Long texts without a difference by then are shown as removed and added as a whole.
const DEADLINE: Duration = Duration::from_secs(1);

/// Empty if the texts are equal. `@@` stands for omitted lines.
pub fn line_diff(before: &str, after: &str) -> String {
    let (before, after): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let mut changes = Replace::new(Capture::new());
    let deadline = Some(Instant::now() + DEADLINE);
    let Ok(()) = diff_slices_deadline(Algorithm::Lcs, &mut changes, &before, &after, deadline);
    let (mut text, mut shown) = (String::new(), 0);
    for group in group_diff_ops(changes.into_inner().into_ops(), CONTEXT) {
        for operation in group {
            let lines = operation.old_range();
            if lines.start > shown {
                text.push_str("@@\n");
            }
            shown = lines.end;
            for change in operation.iter_changes(&before, &after) {
                text.push_str(&format!("{}{}\n", change.tag(), change.value()));
            }
        }
    }
    text
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
