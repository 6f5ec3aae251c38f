//! Near matches for mistyped names.

/// The few `names` that resemble `text`, nearest first; `None` if none does. Of a name of several words the first ones
/// are enough: `city-drivng` resembles `city-driving-lte-down`.
pub fn near<'a>(text: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
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
            let beginnings = other
                .match_indices(['-', '.', '/'])
                .map(|(at, _)| &other[..at]);
            let distance = if contained {
                0
            } else {
                let all = beginnings.chain([&other[..]]);
                all.map(|part| distance(&text, part)).min().unwrap_or(0)
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

/// Damerau's distance: the fewest insertions, deletions, replacements and exchanges of neighbours between the two,
/// no place being changed twice.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    // Row i of the table holds the distances of the first i characters of `one` to the first 0, 1,
    // 2 … of `other`. Three rows are kept: `before`, `above` and the one that is being filled.
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=other.len()).collect();
    for i in 1..=one.len() {
        let mut row = vec![i];
        for j in 1..=other.len() {
            let replaced = above[j - 1] + usize::from(one[i - 1] != other[j - 1]);
            let mut distance = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                distance = distance.min(before[j - 2] + 1);
            }
            row.push(distance);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_fingers_is_near_and_another_word_is_not() {
        let names = || ["verus", "cubic", "newreno", "ratio"].into_iter();
        for (typed, meant) in [
            ("versu", "`verus`"),
            ("Cubci", "`cubic`"),
            ("rato", "`ratio`"),
            ("reno", "`newreno`"),
        ] {
            assert_eq!(near(typed, names()).as_deref(), Some(meant), "{typed}");
        }
        assert_eq!(near("nagle", names()), None);
        assert_eq!(near("", names()), None);
    }

    #[test]
    fn the_first_words_of_a_name_are_enough() {
        let names = [
            "city-driving-lte-up",
            "city-driving-lte-down",
            "city-driving.up",
        ];
        let suggestion = near("city-drivng-lte", names.into_iter()).expect("there is one");
        assert!(
            suggestion.starts_with("`city-driving-lte-down`, `city-driving-lte-up`"),
            "{suggestion}"
        );
        assert_eq!(near("lte-x", ["city-lte-y"].into_iter()), None);
    }

    #[test]
    fn exchanged_neighbours_are_one_mistake() {
        assert_eq!(distance("versu", "verus"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }
}
