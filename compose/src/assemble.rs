//! Assembles the files: follows `extends` and `include`, and merges them.

use document::DocumentNode;

use crate::compose_document::{ComposeDocument, Surroundings};
use crate::extends;
use crate::loader::Loader;
use crate::merge::{is_same, merge};
use crate::source::{folder_of, join};

const GROUPS: [&str; 6] = ["services", "networks", "volumes", "secrets", "configs", "models"];

/// Counts repeats: a few lines can ask for billions.
const MAX_INCLUDES: usize = 500;

impl Loader<'_> {
    pub(crate) fn assemble(
        &mut self,
        documents: Vec<ComposeDocument>,
        around: Surroundings<'_>,
        including: &[String],
    ) -> DocumentNode {
        let mut including = including.to_vec();
        let mut root = DocumentNode::empty_map(None);
        for ComposeDocument { file, root: mut document } in documents {
            if !document.is_map() {
                let detail = format!("a Compose file is a map of fields, not {}", document.kind());
                self.report.mistake(document.place(), detail);
                continue;
            }
            self.prepare(&mut document, around);
            extends::resolve(self, &mut document, &file, around);
            including.push(file);
            // Included content belongs to the including file, so a later file overrides it too.
            let document = self.add_included(document, around, &including);
            root = merge(root, &document, "");
        }
        root
    }

    fn add_included(
        &mut self,
        mut root: DocumentNode,
        around: Surroundings<'_>,
        including: &[String],
    ) -> DocumentNode {
        let entries: Vec<DocumentNode> = match root.get("include") {
            None => return root,
            Some(list) => list.items().map_or_else(|| vec![list.clone()], <[DocumentNode]>::to_vec),
        };
        for entry in entries {
            self.includes += 1;
            if self.includes > MAX_INCLUDES {
                let detail = format!("more than {MAX_INCLUDES} files are included, one through another");
                self.report.mistake(entry.place(), detail);
                break;
            }
            let paths = texts(entry.get("path").unwrap_or(&entry));
            let files: Vec<String> = paths.iter().map(|path| join(around.folder, path)).collect();
            let Some(first) = files.first() else {
                self.report.mistake(entry.place(), "include: write the path of a Compose file");
                continue;
            };
            if let Some(again) = files.iter().find(|file| including.contains(file)) {
                let path = including.join(" -> ");
                self.report.mistake(entry.place(), format!("include goes in a circle: {path} -> {again}"));
                continue;
            }
            let folder = match entry.get("project_directory").and_then(DocumentNode::scalar) {
                Some(folder) => join(around.folder, &folder),
                None => folder_of(first).to_owned(),
            };
            let named: Vec<String> = entry.get("env_file").map(texts).unwrap_or_default();
            let named: Vec<String> = named.iter().map(|path| join(around.folder, path)).collect();
            let variables = self.variables(&named, &folder, around.variables);
            let documents: Vec<_> =
                files.iter().flat_map(|file| self.parse_one(file, entry.place())).collect();
            let inner = Surroundings { folder: &folder, variables: &variables };
            let included = self.assemble(documents, inner, including);
            self.add(&mut root, &included, first);
        }
        root
    }

    /// Identical definitions may repeat: two files may include a third one.
    fn add(&mut self, root: &mut DocumentNode, included: &DocumentNode, file: &str) {
        for group in GROUPS {
            let Some(theirs) = included.get(group) else { continue };
            if !root.has_value(group) {
                root.set(group, theirs.place(), DocumentNode::empty_map(theirs.place()));
            }
            let Some(ours) = root.get_mut(group) else { continue };
            for field in theirs.fields() {
                match ours.field(field.name) {
                    None => ours.set(field.name, field.place, field.value.clone()),
                    Some(own) if is_same(&whole(own.value, group), field.value) => {}
                    Some(own) => {
                        let name = match group {
                            "services" => field.name.to_owned(),
                            group => format!("{group}.{}", field.name),
                        };
                        let detail = format!("{name} is defined here and in {file}, which is included");
                        self.report.mistake(own.place, detail);
                    }
                }
            }
        }
    }
}

/// Merges a file's definitions as if it overrides no other one.
fn whole(own: &DocumentNode, group: &str) -> DocumentNode {
    merge(DocumentNode::null(own.place()), own, &format!("{group}.*"))
}

fn texts(node: &DocumentNode) -> Vec<String> {
    let text = |node: &DocumentNode| node.scalar().map(|text| text.into_owned());
    match node.items() {
        Some(items) => items.iter().filter_map(text).collect(),
        None => text(node).into_iter().collect(),
    }
}
