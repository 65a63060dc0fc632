//! Columns without borders, as kubectl shows them: easy to read, easy to cut.

use comfy_table::{ContentArrangement, Table, presets};

/// Lines of text, the titles first. Nothing is wrapped: a line is a record.
pub(super) fn render(titles: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).force_no_tty();
    table.set_header(titles.iter().copied());
    for row in rows {
        let cells = row.iter().map(|cell| if cell.is_empty() { "-".to_owned() } else { flat(cell) });
        table.add_row(cells);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    table.trim_fmt()
}

fn flat(cell: &str) -> String {
    super::words::shorten(cell, usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_empty_cells_stay_cuttable() {
        let rows = vec![
            vec!["web".to_owned(), String::new(), "nginx".to_owned()],
            vec!["database".to_owned(), "3/3".to_owned(), "a\nb".to_owned()],
        ];
        let text = render(&["NAME", "READY", "IMAGE"], rows);
        assert_eq!(
            text,
            "NAME       READY   IMAGE\n\
             web        -       nginx\n\
             database   3/3     a b"
        );
    }
}
