//! Sizes in bytes in human-readable form, such as `256KiB`. Binary and decimal units are told apart: `1MiB` is
//! 1,048,576 bytes and `1MB` is 1,000,000.

/// Parses `256KiB`, `1MiB`, `1MB`, `512B`, or a plain number of bytes. `None` for anything else and on overflow.
/// Units are read without regard to case, and spaces are allowed before them. Fractions such as `1.5MiB` are not
/// accepted.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let split = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let factor: u64 = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// Formats a size as its shortest exact form in binary units: `256KiB`, `1MiB`, `1000B`.
/// [`parse_size`] reads the result back to the same number.
pub fn format_size(bytes: u64) -> String {
    match bytes {
        0 => "0B".to_owned(),
        _ if bytes.is_multiple_of(1 << 30) => format!("{}GiB", bytes >> 30),
        _ if bytes.is_multiple_of(1 << 20) => format!("{}MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{}KiB", bytes >> 10),
        _ => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_with_units_are_parsed() {
        for (text, bytes) in
            [("256KiB", 262_144), ("1MiB", 1_048_576), ("1MB", 1_000_000), ("2 kb", 2_000), ("17", 17), ("5B", 5)]
        {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for text in ["", "KiB", "1.5MiB", "-1", "1TiB", "big", "99999999999999999999", "18446744073709551615KiB"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }

    #[test]
    fn formatted_sizes_parse_back() {
        for text in ["256KiB", "1MiB", "3GiB", "1000B", "0B"] {
            assert_eq!(format_size(parse_size(text).unwrap()), text);
        }
    }
}
