//! The explanation of a finding: one for each id, beside its rule.

/// The explanation of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explanation {
    /// Id of the finding. A last `*` stands for any ending.
    pub id: &'static str,
    /// Remedy in a few words, as the subject of a sentence.
    pub remedy: &'static str,
    /// Meaning of the finding.
    pub meaning: &'static str,
    /// Rule, inputs and bound.
    pub computed: &'static str,
    /// Ways to fix it.
    pub fix: &'static str,
    /// Documentation.
    pub links: &'static [&'static str],
}

impl Explanation {
    /// Tells whether the explanation is about a finding.
    pub fn is_about(&self, id: &str) -> bool {
        match self.id.strip_suffix('*') {
            Some(start) => id.starts_with(start),
            None => id == self.id,
        }
    }
}
