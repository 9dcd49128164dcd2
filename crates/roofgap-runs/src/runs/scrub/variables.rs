//! Environment variables whose values are secret.

use roofgap_collect::provenance::variables;

/// Suffixes of variables that hold a path, which is not a secret.
const PATH_SUFFIXES: [&str; 5] = ["PATH", "_FILE", "_DIR", "_SOCK", "_HOME"];

/// Returns true where the value of a variable must be removed everywhere. Short and common values such as "1" or "bfloat16"
/// are kept.
pub fn is_secret(name: &str, value: &str) -> bool {
    let harmless = variables::allowed([(name.to_owned(), value.to_owned())]).contains_key(name);
    let upper = name.to_ascii_uppercase();
    if harmless || PATH_SUFFIXES.iter().any(|ending| upper.ends_with(ending)) {
        return false;
    }
    if variables::names_a_secret(name) {
        return value.len() >= 6;
    }
    if value.starts_with('/') {
        return false;
    }
    let with_login = value.contains("://") && value.contains('@');
    let mixed = value.chars().any(|c| c.is_ascii_digit()) && value.chars().any(|c| c.is_ascii_alphabetic());
    with_login || (value.len() >= 12 && mixed && !value.contains(char::is_whitespace))
}
