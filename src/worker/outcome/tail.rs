//! The end of a command's output, in bounded memory however long the output is.

/// Bytes at the end of the output.
pub const TAIL_BYTES: usize = 4096;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tail {
    /// At most twice [`TAIL_BYTES`], so that bytes are seldom moved.
    bytes: Vec<u8>,
    is_cut: bool,
}

impl Tail {
    pub fn push(&mut self, chunk: &[u8]) {
        let end = &chunk[chunk.len().saturating_sub(TAIL_BYTES)..];
        if self.bytes.len() + end.len() > 2 * TAIL_BYTES {
            let surplus = (self.bytes.len() + end.len()).saturating_sub(TAIL_BYTES).min(self.bytes.len());
            self.bytes.drain(..surplus);
            self.is_cut = true;
        }
        self.is_cut |= end.len() < chunk.len();
        self.bytes.extend_from_slice(end);
    }

    /// The end as a text. Bytes that are no UTF-8 and NULs, which cannot be stored, become replacement characters.
    #[must_use]
    pub fn text(&self) -> String {
        let mut end = &self.bytes[self.bytes.len().saturating_sub(TAIL_BYTES)..];
        if self.is_cut || end.len() < self.bytes.len() {
            // The rest of a character whose beginning is cut off: at most three bytes of the form 10xxxxxx.
            let rest = end.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count();
            end = &end[rest..];
        }
        String::from_utf8_lossy(end).replace('\0', "\u{fffd}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bytes_are_kept_whatever_the_sizes_of_the_chunks() {
        let all: Vec<u8> = (0..100_000_u32).map(|n| b'a' + u8::try_from(n % 26).unwrap()).collect();
        let expected = String::from_utf8(all[all.len() - TAIL_BYTES..].to_vec()).unwrap();
        for size in [1, 7, 4095, 4096, 4097, 8192, 65_536, 100_000] {
            let mut tail = Tail::default();
            for chunk in all.chunks(size) {
                tail.push(chunk);
                assert!(tail.bytes.len() <= 2 * TAIL_BYTES, "{size}");
            }
            assert_eq!(tail.text(), expected, "{size}");
        }
    }

    #[test]
    fn a_cut_character_is_left_out_and_invalid_bytes_are_replaced() {
        let mut tail = Tail::default();
        tail.push("é".repeat(TAIL_BYTES).as_bytes());
        tail.push(b"x");
        assert_eq!(tail.text(), format!("{}x", "é".repeat(TAIL_BYTES / 2 - 1)));
        let mut short = Tail::default();
        short.push(b"\x80a\0b\xff");
        assert_eq!(short.text(), "\u{fffd}a\u{fffd}b\u{fffd}");
    }
}
