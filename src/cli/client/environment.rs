//! Variables of the environment.

/// A variable of the environment; an empty one counts as absent.
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
