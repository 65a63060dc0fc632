//! Names of the app and its services: DNS labels.

use document::DocumentNode;
use model::ids::AppName;

use crate::compose_document::{ComposeDocument, Variables};
use crate::interpolate::interpolate;
use crate::report::Report;

pub(crate) const NAME_VARIABLE: &str = "COMPOSE_PROJECT_NAME";

pub(crate) struct NamedApp {
    pub(crate) name: AppName,
    pub(crate) written: String,
}

/// From the command line, the environment, the last file that has one, or the folder.
pub(crate) fn of_app(
    flag: Option<&str>,
    folder: &str,
    documents: &[ComposeDocument],
    variables: &Variables,
    report: &mut Report,
) -> Option<NamedApp> {
    if let Some(name) =
        flag.or(variables.get(NAME_VARIABLE).map(String::as_str)).filter(|name| !name.is_empty())
    {
        return match checked(name) {
            Ok(name) => Some(name),
            Err(problem) => {
                report.mistake_of_file("the name of the app", problem);
                None
            }
        };
    }
    if let Some(node) = documents.iter().rev().find_map(|document| document.root.get("name")) {
        let text = node.scalar().unwrap_or_default();
        let name = interpolate(&text, &|name| variables.get(name).cloned());
        return match name.and_then(|name| checked(&name.text)) {
            Ok(name) => Some(name),
            Err(problem) => {
                report.mistake(node.place(), problem);
                None
            }
        };
    }
    match AppName::new(label(folder)) {
        Ok(name) => Some(NamedApp { written: name.to_string(), name }),
        Err(_) => {
            let detail =
                format!("the folder {folder:?} names no app: write `name:` in the file, or --project-name");
            report.mistake_of_file(documents.first().map_or("", |document| &document.file), detail);
            None
        }
    }
}

fn checked(name: &str) -> Result<NamedApp, String> {
    let is_valid = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_');
    let rule = || {
        format!("{name:?} cannot name an app: a to z, digits, '-' and '_', the first one a to z or a digit")
    };
    if !is_valid {
        return Err(rule());
    }
    let app = AppName::new(label(name)).map_err(|_| rule())?;
    Ok(NamedApp { name: app, written: name.to_owned() })
}

/// `My_App.1` becomes `my-app-1`.
pub(crate) fn label(name: &str) -> String {
    let mut label = String::new();
    for c in name.chars().map(|c| c.to_ascii_lowercase()) {
        match c {
            'a'..='z' | '0'..='9' | '-' => label.push(c),
            '_' | '.' | ' ' => label.push('-'),
            _ => {}
        }
    }
    label.trim_matches('-').to_owned()
}

pub(crate) fn text_at(text: &str, place: Option<document::TextPosition>) -> DocumentNode {
    DocumentNode::null(place).with_text(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn names_become_labels() {
        for (name, expected) in [
            ("shop", "shop"),
            ("My_App.1", "my-app-1"),
            ("--x_", "x"),
            ("käse laden", "kse-laden"),
            ("db_", "db"),
        ] {
            assert_eq!(label(name), expected, "{name}");
        }
    }

    #[test]
    fn the_name_is_that_of_flag_environment_file_or_folder() {
        let app = |flag: Option<&str>, env: &[(&str, &str)], yaml: &str| {
            let variables =
                env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let documents =
                [ComposeDocument { file: "x.yml".to_owned(), root: crate::testing::service_of(yaml) }];
            let mut report = Report::default();
            let name = of_app(flag, "My Folder", &documents, &variables, &mut report);
            name.map(|named| named.name.to_string())
                .ok_or_else(|| report.into_mistakes().remove(0).to_string())
        };
        assert_eq!(app(Some("a"), &[(NAME_VARIABLE, "b")], "name: c").unwrap(), "a");
        assert_eq!(app(None, &[(NAME_VARIABLE, "b")], "name: c").unwrap(), "b");
        assert_eq!(app(None, &[("X", "y")], "name: c_${X}").unwrap(), "c-y");
        assert_eq!(app(None, &[], "services: {}").unwrap(), "my-folder");
        assert!(app(Some("Bad!"), &[], "name: c").unwrap_err().contains("cannot name an app"));
        assert!(app(None, &[], "name: Bad").unwrap_err().contains("cannot name an app"));
    }
}
