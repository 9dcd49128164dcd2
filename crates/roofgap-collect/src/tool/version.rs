//! Version numbers in the output of tools.

use std::fmt;

/// A version such as 2025.3.1, compared part by part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(Vec<u32>);

impl Version {
    /// Finds the first dotted number in `text` that starts with a year, else the first dotted number.
    ///
    /// ```
    /// use roofgap_collect::tool::Version;
    /// let output = "NVIDIA Nsight Systems version 2023.4.4.54-234433681190v0";
    /// assert_eq!(Version::find(output).unwrap().to_string(), "2023.4.4.54");
    /// assert!(Version::find("2024.1.1.0").unwrap() < Version::find("Version 2025.3").unwrap());
    /// assert_eq!(Version::find("no number"), None);
    /// ```
    pub fn find(text: &str) -> Option<Self> {
        let runs = || {
            text.split(|c: char| !c.is_ascii_digit() && c != '.')
                .map(|run| run.trim_matches('.'))
                .filter(|run| run.contains('.'))
                .filter_map(Self::parse)
        };
        runs().find(Version::starts_with_year).or_else(|| runs().next())
    }

    /// Returns true when the version starts with a year, as those of nsys and ncu do.
    pub(super) fn starts_with_year(&self) -> bool {
        self.0.first().is_some_and(|first| (2018..2100).contains(first))
    }

    /// Returns true for this year and release, or a later one.
    pub fn at_least(&self, year: u32, release: u32) -> bool {
        *self >= Version(vec![year, release])
    }

    fn parse(run: &str) -> Option<Self> {
        run.split('.').map(|part| part.parse().ok()).collect::<Option<Vec<u32>>>().map(Version)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(u32::to_string).collect();
        out.write_str(&parts.join("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_the_tools_use() {
        for (output, version) in [
            ("NVIDIA Nsight Systems version 2022.4.2.1-df9881f\n", "2022.4.2.1"),
            ("NVIDIA Nsight Systems version 2025.3.1.90-253135822126v0", "2025.3.1.90"),
            (
                "NVIDIA (R) Nsight Compute Command Line Profiler\nCopyright (c) 2018-2024 NVIDIA Corporation\n\
                 Version 2024.1.1.0 (build 33998838) (public-release)",
                "2024.1.1.0",
            ),
            ("Python 3.11.7", "3.11.7"),
            ("580.159.04", "580.159.4"),
        ] {
            assert_eq!(Version::find(output).unwrap().to_string(), version);
        }
    }

    #[test]
    fn order_is_by_number() {
        let read = |text| Version::find(text).unwrap();
        assert!(read("2022.10.1") > read("2022.4.2"));
        assert!(read("2025.3.1").at_least(2025, 3));
        assert!(!read("2025.2.9").at_least(2025, 3));
    }
}
