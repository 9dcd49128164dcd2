//! The nearest of some names, for errors.

/// The candidate nearest to what was written, if one is near enough to be what was meant.
pub(crate) fn nearest<'a>(written: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    candidates
        .into_iter()
        .map(|candidate| (likeness(written, candidate), candidate))
        .filter(|(likeness, _)| *likeness > 0.6)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate.to_owned())
}

/// Likeness of two dotted keys: of the whole, or of the last names where the rest was left out or is wrong.
fn likeness(written: &str, candidate: &str) -> f64 {
    let last = |key: &str| key.rsplit(['.', '/']).next().unwrap_or(key).to_owned();
    let whole = strsim::normalized_damerau_levenshtein(written, candidate);
    let tail = strsim::normalized_damerau_levenshtein(&last(written), &last(candidate));
    // Whole keys first: the tail only speaks where it is clearly the same name.
    whole.max(if tail > 0.75 { 0.9 * tail } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn names_what_was_meant() {
        let keys = [
            "run.mode",
            "run.top_n_kernels",
            "workload.tokens",
            "workload.prompt_tokens",
        ];
        assert_eq!(nearest("run.mod", keys).as_deref(), Some("run.mode"));
        assert_eq!(
            nearest("run.top_n_kernel", keys).as_deref(),
            Some("run.top_n_kernels")
        );
        assert_eq!(nearest("tokens", keys).as_deref(), Some("workload.tokens"));
        assert_eq!(nearest("mode", keys).as_deref(), Some("run.mode"));
        assert_eq!(nearest("zzz", keys), None);
    }
}
