//! Tables for a person: aligned columns, with a dash for a missing number.

use std::fmt::Write;

/// Lines of cells, the first left-aligned and the others right-aligned.
pub fn aligned<const N: usize>(lines: &[[String; N]]) -> Vec<String> {
    let widths: [usize; N] = std::array::from_fn(|column| {
        let width = |line: &[String; N]| line[column].chars().count();
        lines.iter().map(width).max().unwrap_or(0)
    });
    let row = |line: &[String; N]| {
        let mut row = format!("{:<width$}", line[0], width = widths[0]);
        for (cell, width) in line.iter().zip(widths).skip(1) {
            let _ = write!(row, "  {cell:>width$}");
        }
        row.trim_end().to_owned()
    };
    lines.iter().map(row).collect()
}

/// The number with `digits` digits after the point, or a dash.
pub fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
}

/// A share in percent, or a dash.
pub fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "–".to_owned(), |share| format!("{:.2} %", share * 100.0))
}
