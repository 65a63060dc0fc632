//! Syntax mistakes of YAML and JSON in plain words.

use serde_json::error::Category;
use serde_saphyr::Error;

use super::mistake::Mistake;
use super::node::TextPosition;

const YAML_MESSAGES: [(&str, &str); 24] = [
    ("replay", TOO_MANY_ALIASES),
    ("mapping values are not allowed", UNEXPECTED_COLON),
    ("illegal placement of ':'", UNEXPECTED_COLON),
    ("simple key", MISSING_COLON),
    ("mismatched bracket", UNCLOSED_BRACKET),
    ("misplaced bracket", UNCLOSED_BRACKET),
    ("bracket", UNCLOSED_BRACKET),
    ("flow sequence", UNCLOSED_BRACKET),
    ("flow mapping", UNCLOSED_BRACKET),
    ("end of stream", UNCLOSED_QUOTE),
    ("quoted scalar", "a quotation mark is not closed, or text follows the closing one"),
    ("document indicator", UNCLOSED_QUOTE),
    ("eof", UNCLOSED_QUOTE),
    ("block mapping", WRONG_INDENTATION),
    ("block sequence", WRONG_INDENTATION),
    ("'-' indicator", WRONG_INDENTATION),
    ("document start", WRONG_INDENTATION),
    ("indentation", WRONG_INDENTATION),
    ("escape", "a backslash in quotation marks begins something unknown; write \\\\ for a backslash"),
    ("comment", "a comment must follow a space"),
    ("cannot start", QUOTE_IT),
    ("unexpected character", QUOTE_IT),
    (
        "anchor",
        "an anchor (&name) or alias (*name) is incomplete; put the text in quotation marks if it is none",
    ),
    (
        "alias",
        "an anchor (&name) or alias (*name) is incomplete; put the text in quotation marks if it is none",
    ),
];
const UNEXPECTED_COLON: &str =
    "a \":\" is not allowed here; check the indentation, and put text that has \": \" in quotation marks";
const MISSING_COLON: &str = "a \":\" is missing after the name of a field";
const UNCLOSED_BRACKET: &str = "a bracket is not closed, or a comma is missing";
const UNCLOSED_QUOTE: &str = "the text ends too early; is a bracket or quotation mark not closed?";
const WRONG_INDENTATION: &str = "this line does not fit the lines above; check its indentation";
const QUOTE_IT: &str = "this character cannot begin a value; put the text in quotation marks";
const TOO_MANY_ALIASES: &str = "aliases (*name) repeat too many values";
const TAB: &str = "a tab indents this line; write spaces";

const JSON_MESSAGES: [(&str, &str); 12] = [
    ("EOF", "the text ends too early; is a bracket or quotation mark not closed?"),
    ("expected ident", "text must stand in quotation marks"),
    ("expected value", "a value is missing, or text without quotation marks"),
    ("key must be a string", "the name of a field must stand in quotation marks"),
    ("trailing comma", "a comma too many"),
    ("trailing characters", "text follows the end of the JSON value"),
    ("expected `:`", "a \":\" is missing after the name of a field"),
    ("expected `,`", "a comma or a closing bracket is missing"),
    ("control character", "a line break or another control character in quotation marks"),
    ("escape", "a backslash in quotation marks begins something unknown"),
    ("number", "this is not a number"),
    ("recursion limit", "too many brackets inside each other"),
];

pub(super) fn is_repeated_key(error: &Error) -> bool {
    matches!(error.without_snippet(), Error::DuplicateMappingKey { .. })
}

pub(super) fn of_yaml(error: &Error, text: &str) -> Mistake {
    let error = error.without_snippet();
    let at = error.location().as_ref().and_then(place);
    if let Some(tab) = indented_by_tab(text, at) {
        return mistake(Some(tab), TAB);
    }
    let detail = match error {
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            return mistake(at, &format!("{key:?} is set twice; is a line `---` missing above it?"));
        }
        Error::DuplicateMappingKey { key: None, .. } => "a field is set twice",
        Error::AliasError { error, .. } => return Mistake { place: at, ..of_yaml(error, text) },
        Error::Eof { .. } => UNCLOSED_QUOTE,
        Error::InvalidUtf8Input => "the text is not UTF-8",
        Error::UnknownAnchor { .. } => "an alias (*name) names no anchor (&name) above it",
        Error::MergeValueNotMapOrSeqOfMaps { .. } => "\"<<\" takes an alias of a map",
        Error::NonFiniteFloat { .. } => "infinity and NaN cannot be used as numbers",
        Error::InvalidScalar { .. } | Error::TaggedScalarCannotDeserializeIntoString { .. } => {
            "this value does not fit its tag (!!…)"
        }
        Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => TOO_MANY_ALIASES,
        Error::Budget { .. } => "the document has too many parts, or too many inside each other",
        _ => {
            let message = error.to_string();
            let known = YAML_MESSAGES.iter().find(|(part, _)| message.contains(part));
            known.map_or("this is not valid YAML", |(_, detail)| detail)
        }
    };
    mistake(at, detail)
}

pub(super) fn place(location: &serde_saphyr::Location) -> Option<TextPosition> {
    (location.line() > 0).then(|| TextPosition { file: 0, line: location.line(), column: location.column() })
}

/// The parser only reports an unexpected end there.
fn indented_by_tab(text: &str, at: Option<TextPosition>) -> Option<TextPosition> {
    let line = usize::try_from(at?.line).ok()?;
    let lines = text.lines().enumerate().skip(line.saturating_sub(1)).take(2);
    let mut tabs = lines.filter_map(|(index, line)| {
        let indentation = line.len() - line.trim_start().len();
        let column = line[..indentation].find('\t')?;
        Some(TextPosition { file: 0, line: index as u64 + 1, column: column as u64 + 1 })
    });
    tabs.next()
}

pub(super) fn of_json(error: &serde_json::Error) -> Mistake {
    let message = error.to_string();
    let known = JSON_MESSAGES.iter().find(|(part, _)| message.contains(part));
    let detail = match (error.classify(), known) {
        (_, Some((_, detail))) => detail,
        (Category::Eof, None) => JSON_MESSAGES[0].1,
        _ => "this is not valid JSON",
    };
    let line = error.line() as u64;
    mistake((line > 0).then(|| TextPosition { file: 0, line, column: error.column().max(1) as u64 }), detail)
}

fn mistake(place: Option<TextPosition>, detail: &str) -> Mistake {
    Mistake { pointer: String::new(), place, detail: detail.to_owned() }
}
