//! Random JSON texts, the same for the same seed: every spelling that JSON allows, with weight on the edges.

/// A small generator of pseudo-random numbers (SplitMix64).
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 up to and without `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// One JSON text without a line feed, valid for `json::read`, `depth` levels deep at most.
pub fn document(dice: &mut Dice, depth: usize) -> String {
    let mut text = blanks(dice);
    let kinds = if depth == 0 { 9 } else { 16 };
    match dice.below(kinds) {
        0 => text += dice.pick(&["null", "true", "false"]),
        1..=3 => text += &double(dice),
        4 | 5 => text += &integer(dice),
        6..=8 => text += &string(dice),
        9..=11 => {
            let items: Vec<_> = (0..dice.below(5)).map(|_| document(dice, depth - 1)).collect();
            text += &format!("[{}]", if items.is_empty() { blanks(dice) } else { items.join(",") });
        }
        _ => {
            let fields: Vec<_> = (0..dice.below(6)).map(|_| field(dice, depth - 1)).collect();
            text += &format!("{{{}}}", if fields.is_empty() { blanks(dice) } else { fields.join(",") });
        }
    }
    text + &blanks(dice)
}

fn field(dice: &mut Dice, depth: usize) -> String {
    // Few short keys, so that some come twice in an object.
    let key = if dice.below(2) == 0 {
        dice.pick(&[
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
        string(dice)
    };
    format!("{}{key}{}:{}", blanks(dice), blanks(dice), document(dice, depth))
}

fn blanks(dice: &mut Dice) -> String {
    dice.pick(&["", "", "", " ", "\t", "\r", "  \r\t "]).to_owned()
}

fn integer(dice: &mut Dice) -> String {
    let sign = dice.pick(&["", "-"]);
    let digits = match dice.below(6) {
        0 => "0".to_owned(),
        1 => dice.below(100).to_string(),
        2 => dice.next().to_string(),
        3 => ((1_u64 << 53) - 2 + dice.below(5)).to_string(),
        4 => (u128::from(u64::MAX) - 2 + u128::from(dice.below(5))).to_string(),
        _ => (0..=dice.below(400)).map(|_| dice.below(9) + 1).map(|digit| digit.to_string()).collect(),
    };
    format!("{sign}{digits}")
}

/// A number with a fraction or an exponent, that a double holds.
fn double(dice: &mut Dice) -> String {
    let text = match dice.below(9) {
        0 => format!("{:e}", any_double(dice)),
        1 => format!("{:?}", f64::from_bits(dice.below(1 << 52))),
        2 => format!("{:e}", near(2_f64.powi(dice.below(2000) as i32 - 1000), dice)),
        3 => format!("{:e}", near(10_f64.powi(dice.below(600) as i32 - 300), dice)),
        4 => format!("{:.1}", near(9_007_199_254_740_992.0, dice)),
        5 => format!("{:e}", near(10_f64.powi(15 + dice.below(3) as i32), dice)),
        6 => format!("{:e}", near(10_f64.powi(-3 - dice.below(3) as i32), dice)),
        7 => format!("{}.{}", dice.below(1000), dice.next()),
        _ => spelled(dice),
    };
    let text = if text.contains(['.', 'e', 'E']) { text } else { text + ".0" };
    if dice.below(2) == 0 { text } else { format!("-{}", text.trim_start_matches('-')) }
}

fn any_double(dice: &mut Dice) -> f64 {
    let double = f64::from_bits(dice.next());
    if double.is_finite() { double } else { 0.1 }
}

/// The double itself or one of its neighbours, up to three away.
fn near(double: f64, dice: &mut Dice) -> f64 {
    f64::from_bits(double.to_bits() + dice.below(7) - 3)
}

fn spelled(dice: &mut Dice) -> String {
    let whole = dice.below(1000);
    let fraction = dice.pick(&["", ".0", ".50", ".000000000000000000000001", ".9999999999999999999999"]);
    let mark = dice.pick(&["e", "E", "e+", "E-", "e-00", "E+0"]);
    format!("{whole}{fraction}{mark}{}", dice.below(290))
}

fn string(dice: &mut Dice) -> String {
    let inner: String = (0..dice.below(8)).map(|_| character(dice)).collect();
    format!("\"{inner}\"")
}

fn character(dice: &mut Dice) -> String {
    let char = match dice.below(7) {
        0 => return dice.pick(&["\\\"", "\\\\", "\\/", "\\b", "\\f", "\\n", "\\r", "\\t"]).to_owned(),
        1 => char::from(dice.below(0x80) as u8),
        2 => char::from(0x70 + dice.below(0x40) as u8),
        3 => char::from_u32(0xFF00 + dice.below(0x200) as u32).unwrap_or('\u{fffd}'),
        _ => char::from_u32(dice.below(0x11_0000) as u32).unwrap_or('\u{d7ff}'),
    };
    if char < ' ' || "\"\\".contains(char) || dice.below(3) == 0 {
        escaped(dice, char)
    } else {
        char.to_string()
    }
}

fn escaped(dice: &mut Dice, char: char) -> String {
    let mut units = [0; 2];
    let units = char.encode_utf16(&mut units).iter();
    if dice.below(2) == 0 {
        units.map(|unit| format!("\\u{unit:04x}")).collect()
    } else {
        units.map(|unit| format!("\\u{unit:04X}")).collect()
    }
}
