//! Splits a command like Compose: by shell rules, but without comments, variables and patterns.

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SplitCommand {
    pub(crate) words: Vec<String>,
    /// A shell operator, such as `;`. Compose drops it and the rest.
    pub(crate) ends_at: Option<char>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quote {
    None,
    Single,
    Double,
    /// Kept unchanged.
    Backtick,
    /// Kept unchanged.
    Parenthesis,
}

/// # Errors
/// A quotation is not closed, or only a shell could run the command.
pub(crate) fn split(text: &str) -> Result<SplitCommand, &'static str> {
    let mut split = SplitCommand::default();
    // `None` between two words.
    let mut word: Option<String> = None;
    let (mut quote, mut is_escaped) = (Quote::None, false);
    for c in text.chars() {
        if is_escaped {
            word.get_or_insert_default().push(c);
            is_escaped = false;
            continue;
        }
        match (c, quote) {
            ('\\', Quote::None | Quote::Double | Quote::Backtick | Quote::Parenthesis) => is_escaped = true,
            (' ' | '\t' | '\r' | '\n', Quote::None) => split.words.extend(word.take()),
            ('"', Quote::None) => (quote, word) = (Quote::Double, Some(word.unwrap_or_default())),
            ('\'', Quote::None) => (quote, word) = (Quote::Single, Some(word.unwrap_or_default())),
            ('"', Quote::Double) | ('\'', Quote::Single) => quote = Quote::None,
            (';' | '&' | '|' | '<' | '>', Quote::None) => {
                // The number in `2>` belongs to the redirection.
                let is_number = |word: &String| word.starts_with(|c: char| c.is_ascii_digit());
                split.words.extend(word.take().filter(|word| c != '>' || !is_number(word)));
                split.ends_at = Some(c);
                return Ok(split);
            }
            ('(' | ')', Quote::None) => {
                let follows_dollar = c == '(' && word.as_ref().is_some_and(|word| word.ends_with('$'));
                if !follows_dollar {
                    return Err("a parenthesis is for a shell: write [\"sh\", \"-c\", \"…\"]");
                }
                quote = Quote::Parenthesis;
                word.get_or_insert_default().push(c);
            }
            (c, _) => {
                quote = match (c, quote) {
                    ('`', Quote::None) => Quote::Backtick,
                    ('`', Quote::Backtick) | (')', Quote::Parenthesis) => Quote::None,
                    _ => quote,
                };
                word.get_or_insert_default().push(c);
            }
        }
    }
    split.words.extend(word);
    match (quote, is_escaped) {
        (_, true) => Err("a backslash at its end escapes nothing"),
        (Quote::None, false) => Ok(split),
        (Quote::Single | Quote::Double, false) => Err("a quotation mark is not closed"),
        (Quote::Backtick | Quote::Parenthesis, false) => Err("a ` or $( is not closed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_split_as_compose_does() {
        let table: [(&str, &[&str], Option<char>); 16] = [
            (
                "redis-server --requirepass #pass --port 1",
                &["redis-server", "--requirepass", "#pass", "--port", "1"],
                None,
            ),
            ("a  b\tc\nd ", &["a", "b", "c", "d"], None),
            ("a '' \"\" b", &["a", "", "", "b"], None),
            ("a'b'c\"d\"e f\\ g", &["abcde", "f g"], None),
            ("\"a\\n\\\"b\" '\\n' \\\\ \\'", &["an\"b", "\\n", "\\", "'"], None),
            ("a\\\nb c", &["a\nb", "c"], None),
            ("a `b c` $(date x) y", &["a", "`b c`", "$(date x)", "y"], None),
            ("a*b ~ {x} [y] !z ?q", &["a*b", "~", "{x}", "[y]", "!z", "?q"], None),
            ("  ", &[], None),
            ("", &[], None),
            ("a && b", &["a"], Some('&')),
            ("a b;c", &["a", "b"], Some(';')),
            ("a 22>x", &["a"], Some('>')),
            ("a x2>y z", &["a", "x2"], Some('>')),
            ("; a", &[], Some(';')),
            ("a ';' \\| b", &["a", ";", "|", "b"], None),
        ];
        for (text, words, ends_at) in table {
            let words = words.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(split(text), Ok(SplitCommand { words, ends_at }), "{text}");
        }
    }

    #[test]
    fn what_is_not_closed_is_refused() {
        for (text, part) in [
            ("a 'b", "quotation mark"),
            ("a \"b", "quotation mark"),
            ("a b\\", "backslash"),
            ("a `b", "not closed"),
            ("a $(b c", "not closed"),
            ("a (b)", "parenthesis"),
            ("a b)", "parenthesis"),
        ] {
            assert!(split(text).is_err_and(|why| why.contains(part)), "{text}");
        }
    }
}
