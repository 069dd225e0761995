//! The known names that a mistyped one resembles.

const MAX_SUGGESTIONS: usize = 3;

/// As clap for commands and flags.
const MIN_SIMILARITY: f64 = 0.8;

/// The known names most similar to `name`, the nearest first, else those with a word like it. Upper and lower case are
/// alike.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let (wanted, known): (_, Vec<&str>) = (name.to_lowercase(), known.into_iter().collect());
    let similarity = |one: &str| strsim::jaro_winkler(&wanted, one);
    let whole = most_similar(&known, &|known| similarity(known));
    if whole.is_empty() {
        most_similar(&known, &|known| known.split([' ', '-']).map(similarity).fold(0.0, f64::max))
    } else {
        whole
    }
}

fn most_similar<'a>(known: &[&'a str], similarity: &dyn Fn(&str) -> f64) -> Vec<&'a str> {
    let with_similarity = |known: &&'a str| (similarity(&known.to_lowercase()), *known);
    let mut similar: Vec<(f64, &str)> = known.iter().map(with_similarity).collect();
    similar.retain(|(similarity, _)| *similarity >= MIN_SIMILARITY);
    similar.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(other.1)));
    similar.dedup_by_key(|(_, known)| *known);
    similar.into_iter().take(MAX_SUGGESTIONS).map(|(_, known)| known).collect()
}

/// `did you mean "a", "b" or "c"?`, or `otherwise` if no known name is near.
pub fn did_you_mean<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
    otherwise: impl Into<String>,
) -> String {
    question(&nearest(name, known)).unwrap_or_else(|| otherwise.into())
}

/// `did you mean "a", "b" or "c"?` `None` without a name.
pub fn question(names: &[&str]) -> Option<String> {
    let quoted: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    match quoted.split_last()? {
        (last, []) => Some(format!("did you mean {last}?")),
        (last, others) => Some(format!("did you mean {} or {last}?", others.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_names_find_the_nearest_three() {
        let known = [
            "heartbeat",
            "heartbeat-2",
            "nightly",
            "Nightly backup",
            "report",
            "heartbeats",
            "heartbeat",
        ];
        let advice = |name: &str| did_you_mean(name, known, "none");
        assert_eq!(
            advice("hertbeat"),
            r#"did you mean "heartbeat", "heartbeats" or "heartbeat-2"?"#
        );
        assert_eq!(advice("NIGHTLY"), r#"did you mean "nightly" or "Nightly backup"?"#);
        assert_eq!(advice("reprot"), r#"did you mean "report"?"#);
        assert_eq!(advice("bakup"), r#"did you mean "Nightly backup"?"#);
        assert_eq!(advice("weekly"), "none");
        assert_eq!(advice(""), "none");
    }
}
