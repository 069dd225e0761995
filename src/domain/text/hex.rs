//! Hexadecimal text of bytes.

/// Two lower-case digits per byte.
pub fn encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = |byte: &u8| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 0xF)]];
    bytes.iter().flat_map(digits).map(char::from).collect()
}

/// The bytes of digits in either case; `None` for an odd number of digits or any other character.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |pair: &[u8]| match pair {
        [high, low] => u8::try_from(digit(*high)? << 4 | digit(*low)?).ok(),
        _ => None,
    };
    text.as_bytes().chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_encoded_as_two_lower_case_digits() {
        assert_eq!(encode(&[0x00, 0x0A, 0xF0, 0xFF]), "000af0ff");
    }

    #[test]
    fn pairs_of_digits_in_either_case_are_decoded() {
        assert_eq!(decode("000Af0fF"), Some(vec![0x00, 0x0A, 0xF0, 0xFF]));
        assert_eq!(decode(""), Some(Vec::new()));
        for text in ["0", "000", "0g", "é", "+1", " 1"] {
            assert_eq!(decode(text), None, "{text:?}");
        }
    }
}
