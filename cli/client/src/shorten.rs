//! Text of other programs in messages.

/// On one line, with at most `max` characters.
pub fn shorten(text: &str, max: usize) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.char_indices().nth(max) {
        None => line,
        Some(_) => line.chars().take(max.saturating_sub(1)).chain(['…']).collect(),
    }
}
