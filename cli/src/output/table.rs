//! Tables without borders, as kubectl prints them: easy to read, and easy to cut into columns.

use comfy_table::{ContentArrangement, Table, presets};

/// Renders the titles, if there are any, and one line per row. Nothing is wrapped: a line is a record.
pub(super) fn render(titles: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).force_no_tty();
    if !titles.is_empty() {
        table.set_header(titles.iter().copied());
    }
    for row in rows {
        let cells = row.iter().map(|cell| if cell.is_empty() { "-".to_owned() } else { on_one_line(cell) });
        table.add_row(cells);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    table.trim_fmt()
}

fn on_one_line(cell: &str) -> String {
    super::humanize::shorten(cell, usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_an_empty_cell_is_a_dash() {
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
