//! The answers of a sink: one step per delivery.

use std::str::FromStr;

/// Statuses that end an exchange.
const STATUSES: std::ops::RangeInclusive<u16> = 200..=599;

/// The treatment of one delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Answer {
        status: u16,
        /// Seconds of a `Retry-After`.
        retry_after: Option<u32>,
    },
    /// No answer, until the sender gives up.
    Timeout,
}

/// The steps in their order; the last one repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    first: Vec<Step>,
    last: Step,
}

impl Script {
    /// The step of a delivery, counted from 0.
    pub fn step(&self, index: u64) -> Step {
        usize::try_from(index).ok().and_then(|index| self.first.get(index)).copied().unwrap_or(self.last)
    }
}

impl FromStr for Script {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = |word: &str| {
            step(word.trim()).ok_or_else(|| {
                format!(
                    "{word:?} is no step; a step is a status from 200 to 599, a status with the seconds of \
                     Retry-After such as 429:5, or timeout, and a script is steps such as 500,timeout,429:5,200"
                )
            })
        };
        let mut first = text.split(',').map(read).collect::<Result<Vec<Step>, String>>()?;
        // A split text has at least one part.
        let last = first.pop().ok_or_else(|| "there is no step".to_owned())?;
        Ok(Self { first, last })
    }
}

fn step(word: &str) -> Option<Step> {
    if word == "timeout" {
        return Some(Step::Timeout);
    }
    // A number may begin with a plus sign.
    if word.contains('+') {
        return None;
    }
    let (status, seconds) = word.split_once(':').map_or((word, None), |(status, it)| (status, Some(it)));
    let status = status.parse().ok().filter(|status| STATUSES.contains(status))?;
    Some(Step::Answer { status, retry_after: seconds.map(str::parse).transpose().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn answer(status: u16, retry_after: Option<u32>) -> Step {
        Step::Answer { status, retry_after }
    }

    #[test]
    fn the_last_step_repeats() {
        let script: Script = "500, timeout,429:5,200".parse().unwrap();
        let steps = [0, 1, 2, 3, 4, u64::MAX].map(|index| script.step(index));
        let end = answer(200, None);
        assert_eq!(steps, [answer(500, None), Step::Timeout, answer(429, Some(5)), end, end, end]);
        assert_eq!("410".parse::<Script>().unwrap().step(7), answer(410, None));
    }

    #[test]
    fn a_text_that_is_no_script_is_refused_with_an_example() {
        for bad in
            ["", "200,", "OK", "20", "199", "600", "+200", "200:", "200:x", "timeout:5", "429:99999999999"]
        {
            let error = bad.parse::<Script>().unwrap_err();
            assert!(error.contains("500,timeout,429:5,200"), "{bad}: {error}");
        }
    }
}
