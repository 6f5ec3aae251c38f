//! Names that are nearly right.

/// The few `names` that resemble `text`, nearest first; `None` if none does.
pub(crate) fn near(text: &str, names: impl Iterator<Item = &'static str>) -> Option<String> {
    const SHOWN: usize = 4;
    // A text longer than any name resembles none, and comparing it would take long.
    if text.len() > 64 {
        return None;
    }
    let text = text.to_lowercase();
    let mut near: Vec<_> = names
        .filter_map(|name| {
            let other = name.to_lowercase();
            let contained = text.len() >= 3 && other.contains(&text);
            let distance = if contained {
                0
            } else {
                distance(&text, &other)
            };
            (distance <= text.len() / 3).then_some((distance, name))
        })
        .collect();
    near.sort_unstable();
    near.dedup();
    near.truncate(SHOWN);
    let names: Vec<_> = near.iter().map(|(_, name)| format!("`{name}`")).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Levenshtein's distance: the fewest insertions, deletions and replacements between the two.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, candidate) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *candidate);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}
