//! `explain` and `schema`: the fields of a service's file, from the schema of the API; and where a pod could
//! run.

use clap::Args;
use model::schema;
use model::spec::ServiceInput;
use output::objects::placements;
use output::{Output, table};
use serde_json::Value;

use crate::commands::context::Context;
use crate::commands::error::{CommandError, CommandResult};
use crate::commands::objects::find_pod;
use crate::exit::Exit;

const SERVICE: &str = "service";

/// Their fields have their own table.
const COMPOSE: &str = "compose";

const LINE_WIDTH: usize = 110;

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The object or the field: service, service.memory, service.containers.image; or `pod`.
    #[arg(value_name = "FIELD")]
    path: String,
    /// With `pod`: the pod whose nodes are explained, by uuid, the beginning of one, or a name such as web-0.
    #[arg(value_name = "POD")]
    pub(crate) pod: Option<String>,
    /// Print the reference of all fields as Markdown.
    #[arg(long, hide = true)]
    markdown: bool,
}

/// How each node looks for the pod.
pub(crate) async fn pod(args: &ExplainArgs, context: &mut Context<'_>) -> CommandResult {
    let name = args.pod.as_deref().unwrap_or_default();
    if !["pod", "pods", "po"].contains(&args.path.as_str()) {
        let detail =
            format!("{} {name} is neither a field, such as `service.memory`, nor `pod POD`", args.path);
        return Err(CommandError::Usage(detail));
    }
    let found = find_pod::pod(&context.client, name).await?;
    let placement = context.client.explain_pod(found.uuid.as_str()).await?;
    context.output.print_document(&placement, || placements::describe(&placement))?;
    Ok(Exit::Ok)
}

pub(crate) fn run(args: &ExplainArgs, mut output: Output) -> CommandResult {
    let text = match args.path.as_str() {
        COMPOSE => compose::markdown(),
        _ if args.markdown => markdown(),
        path => explain(path)?,
    };
    output.print_bytes(text.as_bytes())?;
    Ok(Exit::Ok)
}

pub(crate) fn schema(mut output: Output) -> CommandResult {
    let text = serde_json::to_string_pretty(&schema::of_service())
        .map_err(|error| CommandError::Other(format!("cannot write the schema: {error}")))?;
    output.print_bytes(format!("{text}\n").as_bytes())?;
    Ok(Exit::Ok)
}

fn explain(path: &str) -> CommandResult<String> {
    let schema = Schema(schema::of_service());
    let mut steps = path.split('.').map(|step| step.split('[').next().unwrap_or_default()).peekable();
    let object = steps.peek().copied().unwrap_or_default();
    if [SERVICE, "services", "svc"].contains(&object) {
        steps.next();
    } else if !schema.fields(&schema.0).iter().any(|(name, _)| name == object) {
        let detail = format!(
            "{object:?} is no object that files describe, and no field of a service: try `kubeleet explain {SERVICE}`"
        );
        return Err(CommandError::NotFound(detail));
    }
    let mut part = schema.0.clone();
    let mut known = vec![SERVICE.to_owned()];
    for step in steps {
        let Some(next) = schema.fields(&part).into_iter().find(|(name, _)| name == step) else {
            let known = known.join(".");
            let detail = format!("{known} has no field {step:?}: `kubeleet explain {known}` lists them");
            return Err(CommandError::NotFound(detail));
        };
        known.push(next.0);
        part = next.1;
    }
    let mut text =
        format!("{}   {}\n\n{}\n", known.join("."), schema.type_of(&part), description(&schema.whole(&part)));
    if let Some(example) = schema.whole(&part).get("example") {
        text.push_str(&format!("\nExample: {example}\n"));
    }
    let mut fields = schema.fields(&part);
    if known.len() == 1 {
        fields = in_order(&fields);
    }
    if !fields.is_empty() {
        let rows = fields.iter().map(|(name, field)| {
            vec![name.clone(), schema.type_of(field), first_sentence(&description(&schema.whole(field)))]
        });
        text.push_str(&format!("\n{}\n", table::render(&["FIELD", "VALUE", "MEANING"], rows.collect())));
    }
    Ok(text)
}

fn markdown() -> String {
    let schema = Schema(schema::of_service());
    let introduction = "Written by `kubeleet explain service --markdown`. `kubeleet explain service.FIELD` shows one of \
        them, and `kubeleet schema` prints the JSON Schema for editors. Each document of a YAML file is one service; \
        JSON is read as well. All fields but `name` and `image` can be left out, and unknown fields are mistakes.";
    let mut text = format!("# The fields of a service\n\n{}", lines(introduction));
    let fields = in_order(&schema.fields(&schema.0));
    for (title, names) in ServiceInput::field_groups() {
        text.push_str(&format!("\n## {title}\n"));
        for (name, field) in fields.iter().filter(|(name, _)| names.contains(&name.as_str())) {
            text.push_str(&schema.entry(name, field));
        }
    }
    text.push_str("\n## A container in `containers`, beside the fields above\n");
    let containers = schema.0["properties"]["containers"].clone();
    let of_list = schema.fields(&containers).into_iter();
    let among_others =
        of_list.filter(|(name, _)| ServiceInput::fields_among_others().contains(&name.as_str()));
    among_others.for_each(|(name, field)| text.push_str(&schema.entry(&name, &field)));
    text
}

fn lines(paragraph: &str) -> String {
    let (mut text, mut width) = (String::new(), 0);
    for word in paragraph.split_whitespace() {
        let length = word.chars().count();
        match width {
            0 => {}
            _ if width + 1 + length > LINE_WIDTH => {
                text.push('\n');
                width = 0;
            }
            _ => {
                text.push(' ');
                width += 1;
            }
        }
        text.push_str(word);
        width += length;
    }
    text.push('\n');
    text
}

fn in_order(fields: &[(String, Value)]) -> Vec<(String, Value)> {
    let names = ServiceInput::field_groups().into_iter().flat_map(|(_, names)| names);
    names.filter_map(|name| fields.iter().find(|(known, _)| known == name).cloned()).collect()
}

fn first_sentence(text: &str) -> String {
    let end = text.find(". ").or_else(|| text.find(": ")).unwrap_or(text.len());
    text[..end].trim_end_matches('.').to_owned()
}

fn description(part: &Value) -> String {
    part["description"].as_str().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

const LIST: &str = "list of ";

fn list_of(items: &str) -> String {
    if items.contains(" or ") { format!("{LIST}({items})") } else { format!("{LIST}{items}") }
}

struct Schema(Value);

impl Schema {
    fn entry(&self, name: &str, field: &Value) -> String {
        let whole = self.whole(field);
        let example = whole.get("example").map(|example| format!(" Example: `{example}`."));
        let mut meaning = description(&whole);
        if !meaning.ends_with('.') {
            meaning.push('.');
        }
        let body = format!("{meaning} Value: {}.{}", self.type_of(field), example.unwrap_or_default());
        format!("\n### `{name}`\n\n{}", lines(&body))
    }

    /// Attributes beside a reference take precedence over its definition.
    fn resolved(&self, part: &Value) -> Value {
        let Some(name) = part["$ref"].as_str().and_then(|target| target.strip_prefix("#/$defs/")) else {
            return part.clone();
        };
        let mut whole = self.0["$defs"][name].clone();
        for (key, value) in part.as_object().into_iter().flatten().filter(|(key, _)| *key != "$ref") {
            whole[key] = value.clone();
        }
        whole
    }

    fn whole(&self, part: &Value) -> Value {
        let mut whole = self.resolved(part);
        let choices = ["anyOf", "oneOf", "allOf"].into_iter().find_map(|key| whole[key].as_array().cloned());
        for choice in choices.into_iter().flatten() {
            let Value::Object(fields) = self.whole(&choice) else { continue };
            for (key, value) in fields {
                if whole.get(&key).is_none() {
                    whole[key] = value;
                }
            }
        }
        whole
    }

    fn choices(&self, part: &Value) -> Vec<Value> {
        let part = &self.resolved(part);
        let choices = ["anyOf", "oneOf", "allOf"].into_iter().find_map(|key| part[key].as_array());
        match choices {
            Some(choices) => choices.iter().flat_map(|choice| self.choices(choice)).collect(),
            None if part["type"] == "null" => Vec::new(),
            None => vec![part.clone()],
        }
    }

    /// The fields of a map, or of the maps in a list. A field of several forms appears once.
    fn fields(&self, part: &Value) -> Vec<(String, Value)> {
        let of_choice = |choice: Value| match choice["properties"].as_object() {
            Some(fields) => fields.iter().map(|(name, field)| (name.clone(), field.clone())).collect(),
            None if choice["items"].is_object() => self.fields(&choice["items"]),
            None => Vec::new(),
        };
        let mut fields: Vec<(String, Value)> = Vec::new();
        for (name, field) in self.choices(part).into_iter().flat_map(of_choice) {
            if !fields.iter().any(|(known, _)| *known == name) {
                fields.push((name, field));
            }
        }
        fields
    }

    fn type_of(&self, part: &Value) -> String {
        let mut words: Vec<String> = Vec::new();
        for choice in self.choices(part) {
            for word in self.type_words(&choice) {
                if !words.contains(&word) {
                    words.push(word);
                }
            }
        }
        words.sort_by_key(|word| word.starts_with(LIST));
        words.join(" or ")
    }

    fn type_words(&self, choice: &Value) -> Vec<String> {
        if let Some(values) = choice["enum"].as_array() {
            return values.iter().filter_map(Value::as_str).map(|value| format!("`{value}`")).collect();
        }
        let types = match &choice["type"] {
            Value::Array(types) => types.clone(),
            one => vec![one.clone()],
        };
        let word = |name: &str| match name {
            "integer" => Some("whole number".to_owned()),
            "string" => Some("text".to_owned()),
            "boolean" => Some("true or false".to_owned()),
            "array" => Some(list_of(&self.type_of(&choice["items"]))),
            "object" => Some("map".to_owned()),
            "null" => None,
            other => Some(other.to_owned()),
        };
        types.iter().filter_map(Value::as_str).filter_map(word).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn fields_are_explained_at_any_depth() {
        let memory = explain("service.memory").unwrap();
        assert!(memory.starts_with("service.memory   whole number or text\n\nMemory limit"), "{memory}");
        assert!(memory.contains("Example: \"64MiB\""), "{memory}");
        assert_eq!(explain("svc.containers[0].image").unwrap(), explain("service.containers.image").unwrap());
        let all = explain("service").unwrap();
        for (_, names) in ServiceInput::field_groups() {
            for name in names {
                assert!(all.contains(&format!("\n{name} ")), "{name} is missing in {all}");
            }
        }
        assert_eq!(explain("job").unwrap(), explain("service.job").unwrap());
        assert_eq!(explain("job.completions").unwrap(), explain("service.job.completions").unwrap());
        assert!(explain("service.restart").unwrap().contains("`always` or `on-failure` or `never`"));
    }

    #[test]
    fn every_field_at_any_depth_has_a_meaning_and_is_listed_once() {
        fn check(schema: &Schema, path: &str, part: &Value) {
            let text = explain(path).unwrap();
            assert!(text.ends_with('\n') && !text.ends_with("\n\n"), "{text:?}");
            let fields = schema.fields(part);
            for (name, field) in &fields {
                assert_eq!(fields.iter().filter(|(other, _)| other == name).count(), 1, "{path}.{name}");
                assert_ne!(description(&schema.whole(field)), "", "{path}.{name}");
                check(schema, &format!("{path}.{name}"), field);
            }
        }
        let schema = Schema(schema::of_service());
        check(&schema, "service", &schema.0);
    }

    #[test]
    fn what_does_not_exist_is_not_found() {
        for (path, part) in [
            ("pod", "explain service"),
            ("service.imgae", "imgae"),
            ("service.image.x", "image"),
            ("jbo", "jbo"),
        ] {
            let error = explain(path).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
            assert_eq!(error.exit(), Exit::NotFound);
        }
    }

    #[test]
    fn the_reference_is_what_this_program_writes() {
        let written = include_str!("../../../../docs/reference/service.md");
        assert_eq!(
            written,
            markdown(),
            "run `kubeleet explain service --markdown > docs/reference/service.md`"
        );
    }

    #[test]
    fn the_table_of_compose_fields_is_what_this_program_writes() {
        let written = include_str!("../../../../docs/reference/compose.md");
        assert_eq!(
            written,
            compose::markdown(),
            "run `kubeleet explain compose > docs/reference/compose.md`"
        );
    }

    #[test]
    fn the_schema_refers_only_to_what_it_defines() {
        let schema = schema::of_service();
        let text = schema.to_string();
        for reference in text.split("\"$ref\":\"").skip(1) {
            let target = reference.split('"').next().unwrap();
            let name = target.strip_prefix("#/$defs/").unwrap_or_else(|| panic!("{target}"));
            assert!(schema["$defs"][name].is_object(), "{target}");
        }
    }
}
