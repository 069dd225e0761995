//! Reproducible random numbers, and random JSON texts: every spelling that JSON allows, with weight on the edges.

use std::time::{SystemTime, UNIX_EPOCH};

/// SplitMix64.
pub struct Random(u64);

impl Random {
    /// The same sequence in every run.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Seeded by `TESTS_SEED`, otherwise by the time. Prints the seed, which a failing test shows.
    pub fn seeded(test: &str) -> Self {
        let given = std::env::var("TESTS_SEED").ok().and_then(|text| text.parse().ok());
        let nanos = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
        let seed = given.unwrap_or_else(|| u64::try_from(nanos() % 1_000_000_007).unwrap());
        eprintln!("{test}: TESTS_SEED={seed}");
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// An index of a collection with `length` items.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    pub fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.index(choices.len())]
    }
}

/// A JSON text without a line feed, valid for `json::read`, at most `depth` levels deep.
pub fn random_document(random: &mut Random, depth: usize) -> String {
    let mut text = blanks(random);
    let kinds = if depth == 0 { 9 } else { 16 };
    match random.below(kinds) {
        0 => text += random.pick(&["null", "true", "false"]),
        1..=3 => text += &double(random),
        4 | 5 => text += &integer(random),
        6..=8 => text += &string(random),
        9..=11 => {
            let items: Vec<_> =
                (0..random.below(5)).map(|_| random_document(random, depth - 1)).collect();
            text +=
                &format!("[{}]", if items.is_empty() { blanks(random) } else { items.join(",") });
        }
        _ => {
            let fields: Vec<_> = (0..random.below(6)).map(|_| field(random, depth - 1)).collect();
            text += &format!(
                "{{{}}}",
                if fields.is_empty() { blanks(random) } else { fields.join(",") }
            );
        }
    }
    text + &blanks(random)
}

fn field(random: &mut Random, depth: usize) -> String {
    // A few short keys, so that some objects repeat a key.
    let key = if random.below(2) == 0 {
        random
            .pick(&[
                "\"a\"",
                "\"b\"",
                "\"\\u0061\"",
                "\"A\"",
                "\"\"",
                "\"é\"",
                "\"\u{ffff}\"",
                "\"\u{10000}\"",
            ])
            .to_owned()
    } else {
        string(random)
    };
    format!("{}{key}{}:{}", blanks(random), blanks(random), random_document(random, depth))
}

fn blanks(random: &mut Random) -> String {
    random.pick(&["", "", "", " ", "\t", "\r", "  \r\t "]).to_owned()
}

fn integer(random: &mut Random) -> String {
    let sign = random.pick(&["", "-"]);
    let digits = match random.below(6) {
        0 => "0".to_owned(),
        1 => random.below(100).to_string(),
        2 => random.next().to_string(),
        3 => ((1_u64 << 53) - 2 + random.below(5)).to_string(),
        4 => (u128::from(u64::MAX) - 2 + u128::from(random.below(5))).to_string(),
        _ => (0..=random.below(400))
            .map(|_| random.below(9) + 1)
            .map(|digit| digit.to_string())
            .collect(),
    };
    format!("{sign}{digits}")
}

/// A number with a fraction or an exponent, within the range of a double.
fn double(random: &mut Random) -> String {
    let text = match random.below(9) {
        0 => format!("{:e}", any_double(random)),
        1 => format!("{:?}", f64::from_bits(random.below(1 << 52))),
        2 => format!("{:e}", near(2_f64.powi(random.below(2000) as i32 - 1000), random)),
        3 => format!("{:e}", near(10_f64.powi(random.below(600) as i32 - 300), random)),
        4 => format!("{:.1}", near(9_007_199_254_740_992.0, random)),
        5 => format!("{:e}", near(10_f64.powi(15 + random.below(3) as i32), random)),
        6 => format!("{:e}", near(10_f64.powi(-3 - random.below(3) as i32), random)),
        7 => format!("{}.{}", random.below(1000), random.next()),
        _ => spelled(random),
    };
    let text = if text.contains(['.', 'e', 'E']) { text } else { text + ".0" };
    if random.below(2) == 0 { text } else { format!("-{}", text.trim_start_matches('-')) }
}

fn any_double(random: &mut Random) -> f64 {
    let double = f64::from_bits(random.next());
    if double.is_finite() { double } else { 0.1 }
}

/// The double or a neighbour, at most three away.
fn near(double: f64, random: &mut Random) -> f64 {
    f64::from_bits(double.to_bits() + random.below(7) - 3)
}

fn spelled(random: &mut Random) -> String {
    let whole = random.below(1000);
    let fraction =
        random.pick(&["", ".0", ".50", ".000000000000000000000001", ".9999999999999999999999"]);
    let mark = random.pick(&["e", "E", "e+", "E-", "e-00", "E+0"]);
    format!("{whole}{fraction}{mark}{}", random.below(290))
}

fn string(random: &mut Random) -> String {
    let inner: String = (0..random.below(8)).map(|_| character(random)).collect();
    format!("\"{inner}\"")
}

fn character(random: &mut Random) -> String {
    let char = match random.below(7) {
        0 => {
            return random
                .pick(&["\\\"", "\\\\", "\\/", "\\b", "\\f", "\\n", "\\r", "\\t"])
                .to_owned();
        }
        1 => char::from(random.below(0x80) as u8),
        2 => char::from(0x70 + random.below(0x40) as u8),
        3 => char::from_u32(0xFF00 + random.below(0x200) as u32).unwrap_or('\u{fffd}'),
        _ => char::from_u32(random.below(0x11_0000) as u32).unwrap_or('\u{d7ff}'),
    };
    if char < ' ' || "\"\\".contains(char) || random.below(3) == 0 {
        escaped(random, char)
    } else {
        char.to_string()
    }
}

fn escaped(random: &mut Random, char: char) -> String {
    let mut units = [0; 2];
    let units = char.encode_utf16(&mut units).iter();
    if random.below(2) == 0 {
        units.map(|unit| format!("\\u{unit:04x}")).collect()
    } else {
        units.map(|unit| format!("\\u{unit:04X}")).collect()
    }
}
