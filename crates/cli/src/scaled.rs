//! Numbers for people: three or four digits, and the smallest unit that fits.

/// A rate, such as `12.3 Mbit/s`.
pub fn rate(mbps: f64) -> String {
    scaled(mbps * 1e6, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s"])
}

/// A size, such as `1.20 MB`.
pub fn size(bytes: u64) -> String {
    scaled(bytes as f64, ["B", "kB", "MB", "GB"])
}

fn scaled(mut value: f64, units: [&str; 4]) -> String {
    let mut unit = 0;
    // A value that would be rounded to 1000 gets the next unit.
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1e3;
        unit += 1;
    }
    let digits = match value {
        _ if unit == 0 => 0,
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_follows_the_number() {
        let rates = [
            0.0, 0.0005, 0.0123, 0.9996, 9.994, 12.34, 123.4, 1234.0, 5e6,
        ];
        let texts = rates.map(rate);
        assert_eq!(
            texts,
            [
                "0 bit/s",
                "500 bit/s",
                "12.3 kbit/s",
                "1.00 Mbit/s",
                "9.99 Mbit/s",
                "12.3 Mbit/s",
                "123 Mbit/s",
                "1.23 Gbit/s",
                "5000 Gbit/s"
            ]
        );
        assert_eq!(
            [999, 1000, 1_500_000].map(size),
            ["999 B", "1.00 kB", "1.50 MB"]
        );
    }
}
