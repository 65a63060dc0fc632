//! Tables without borders, like kubectl's.

use comfy_table::{ContentArrangement, Table, presets};

use crate::humanize;

/// Nothing is wrapped: a line is a record.
pub fn render(titles: &[&str], rows: Vec<Vec<String>>) -> String {
    render_below(titles, rows, &mut Vec::new())
}

/// Columns are at least as wide as `widths`, which it updates.
pub(crate) fn render_below(titles: &[&str], mut rows: Vec<Vec<String>>, widths: &mut Vec<usize>) -> String {
    for cell in rows.iter_mut().flatten() {
        // On one line.
        *cell = if cell.is_empty() { "-".to_owned() } else { humanize::shorten(cell, usize::MAX) };
    }
    widen(widths, titles.iter().map(|title| title.len()));
    for row in &rows {
        widen(widths, row.iter().map(|cell| cell.chars().count()));
    }
    for row in &mut rows {
        for (cell, width) in row.iter_mut().zip(&*widths) {
            let missing = width.saturating_sub(cell.chars().count());
            cell.push_str(&" ".repeat(missing));
        }
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).force_no_tty();
    if !titles.is_empty() {
        table.set_header(titles.iter().copied());
    }
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    table.trim_fmt()
}

fn widen(widths: &mut Vec<usize>, cells: impl Iterator<Item = usize>) {
    for (column, width) in cells.enumerate() {
        match widths.get_mut(column) {
            Some(widest) => *widest = width.max(*widest),
            None => widths.push(width),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_rows_stand_below_earlier_ones() {
        let row = |name: &str, reason: &str| vec![name.to_owned(), reason.to_owned(), "x".to_owned()];
        let mut widths = Vec::new();
        let first = render_below(&["NAME", "REASON", "ID"], vec![row("database", "")], &mut widths);
        assert_eq!(first, "NAME       REASON   ID\ndatabase   -        x");
        assert_eq!(render_below(&[], vec![row("web", "")], &mut widths), "web        -        x");
    }

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
