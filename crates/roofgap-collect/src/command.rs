//! Command lines as plain values: built in one place; shown, tested and run in others. NVTX range names in the syntax of nsys and ncu.

use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Declares the values of an option: an enum with the words of the tool, which are those of the configuration, too.
#[macro_export]
macro_rules! option_values {
    ($($(#[$doc:meta])* $name:ident { $($(#[$value:meta])* $variant:ident = $word:literal,)* })*) => {
        $($(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$value])* #[serde(rename = $word)] $variant,)*
        }

        impl $name {
            /// Returns the word of the tool and of the configuration.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        })*
    };
}

pub(crate) use option_values;

/// A program with its arguments, environment changes and working folder.
///
/// `Display` quotes it for a POSIX shell.
///
/// ```
/// use roofgap_collect::command::CommandLine;
/// let line = CommandLine::new("nsys").args(["profile", "-o", "my run"]).env("A", "1").env_remove("B");
/// assert_eq!(line.to_string(), "env -u B A=1 nsys profile -o 'my run'");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommandLine {
    /// Path of the program, or a name to look up on the `PATH`.
    pub program: PathBuf,
    /// Arguments, unquoted.
    pub args: Vec<OsString>,
    /// Variables to set (`Some`) or remove (`None`) in the inherited environment.
    pub env: Vec<(String, Option<OsString>)>,
    /// Working folder; the current one if `None`.
    pub cwd: Option<PathBuf>,
}

impl CommandLine {
    /// Creates a command line without arguments.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), ..Self::default() }
    }

    /// Builds the command that starts the program.
    pub fn to_command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args);
        if let Some(folder) = &self.cwd {
            command.current_dir(folder);
        }
        for (name, value) in &self.env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<I, A>(mut self, args: I) -> Self
    where
        I: IntoIterator<Item = A>,
        A: Into<OsString>,
    {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds one argument of the form `--name=value`.
    #[must_use]
    pub fn option(self, name: &str, value: impl AsRef<OsStr>) -> Self {
        let mut joined = OsString::from(name);
        joined.push("=");
        joined.push(value);
        self.arg(joined)
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<OsString>) -> Self {
        self.set_env(name.into(), Some(value.into()));
        self
    }

    /// Removes an inherited variable.
    #[must_use]
    pub fn env_remove(mut self, name: impl Into<String>) -> Self {
        self.set_env(name.into(), None);
        self
    }

    /// Sets the working folder.
    #[must_use]
    pub fn cwd(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cwd = Some(folder.into());
        self
    }

    /// Returns the value this command line gives a variable: `Some(None)` if removed, `None` if unchanged.
    pub fn env_value(&self, name: &str) -> Option<Option<&OsStr>> {
        self.env.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_deref())
    }

    /// Appends `inner` to this tool: `tool args... inner inner-args...`, in the inner folder, with both environments.
    /// Variables of the tool win.
    #[must_use]
    pub fn around(self, inner: &CommandLine) -> Self {
        let mut whole = Self {
            program: self.program,
            args: self.args,
            env: inner.env.clone(),
            cwd: inner.cwd.clone().or(self.cwd),
        };
        whole.args.push(inner.program.clone().into_os_string());
        whole.args.extend(inner.args.iter().cloned());
        for (name, value) in self.env {
            whole.set_env(name, value);
        }
        whole
    }

    /// Returns the file name of the program, for messages.
    pub fn name(&self) -> String {
        self.program.file_name().unwrap_or(self.program.as_os_str()).to_string_lossy().into_owned()
    }

    /// Returns the program and its arguments as text, see [`word_text`].
    pub fn argv(&self) -> Vec<String> {
        std::iter::once(self.program.as_os_str())
            .chain(self.args.iter().map(OsString::as_os_str))
            .map(word_text)
            .collect()
    }

    fn set_env(&mut self, name: String, value: Option<OsString>) {
        self.env.retain(|(key, _)| *key != name);
        self.env.push((name, value));
    }
}

/// A command line, and the requested options it had to leave out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedCommand {
    /// Command line.
    pub command: CommandLine,
    /// Options left out, each with its reason.
    pub left_out: Vec<String>,
}

impl fmt::Display for CommandLine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(folder) = &self.cwd {
            write!(out, "cd {} && ", quote(folder.as_os_str()))?;
        }
        if !self.env.is_empty() {
            out.write_str("env ")?;
            // `env` expects options before assignments.
            for (name, _) in self.env.iter().filter(|(_, value)| value.is_none()) {
                write!(out, "-u {} ", quote(OsStr::new(name)))?;
            }
            for (name, value) in &self.env {
                if let Some(value) = value {
                    write!(out, "{}={} ", name, quote(value))?;
                }
            }
        }
        out.write_str(&quote(self.program.as_os_str()))?;
        for arg in &self.args {
            write!(out, " {}", quote(arg))?;
        }
        Ok(())
    }
}

/// Start of a word that is written by its bytes.
const BYTES: &str = "bytes:";

/// Returns a word of a command line as text. A word that is not UTF-8 is written as `bytes:` and its bytes in URL encoding; so
/// is a word that starts with `bytes:`.
///
/// ```
/// use roofgap_collect::command::{word_of_text, word_text};
/// use std::os::unix::ffi::OsStrExt;
/// let word = std::ffi::OsStr::from_bytes(b"caf\xe9.txt");
/// assert_eq!(word_text(word), "bytes:caf%E9.txt");
/// assert_eq!(word_of_text("bytes:caf%E9.txt"), word);
/// ```
pub fn word_text(word: &OsStr) -> String {
    match word.to_str() {
        Some(text) if !text.starts_with(BYTES) => text.to_owned(),
        _ => {
            let plain = |byte: &u8| byte.is_ascii_graphic() && *byte != b'%';
            let encode = |byte: &u8| {
                if plain(byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") }
            };
            let bytes = word.as_bytes().iter().map(encode);
            format!("{BYTES}{}", bytes.collect::<String>())
        }
    }
}

/// Returns the word of a command line that [`word_text`] wrote as text.
pub fn word_of_text(text: &str) -> OsString {
    let Some(encoded) = text.strip_prefix(BYTES) else {
        return text.into();
    };
    let mut bytes = Vec::new();
    let mut rest = encoded.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let value = after
            .get(..2)
            .filter(|_| *first == b'%')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(value.unwrap_or(*first));
        rest = if value.is_some() { &after[2..] } else { after };
    }
    OsString::from_vec(bytes)
}

/// Quotes one word for a POSIX shell. A word that is not UTF-8 uses the `$'...'` form of bash and zsh.
fn quote(word: &OsStr) -> String {
    let Some(text) = word.to_str() else {
        return quote_bytes(word);
    };
    let plain = |c: char| {
        c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '=' | ':' | ',' | '+' | '@' | '%')
    };
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn quote_bytes(word: &OsStr) -> String {
    let mut quoted = String::from("$'");
    for &byte in word.as_encoded_bytes() {
        match byte {
            b'\'' | b'\\' => {
                quoted.push('\\');
                quoted.push(char::from(byte));
            }
            0x20..=0x7e => quoted.push(char::from(byte)),
            _ => quoted.push_str(&format!("\\x{byte:02x}")),
        }
    }
    quoted.push('\'');
    quoted
}

/// Appends a suffix to a path, without replacing an extension.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Escapes `%`, which nsys and ncu expand in output paths (`%p`, `%h`, `%q{...}`).
pub(crate) fn escape_percent(path: &Path) -> OsString {
    match path.to_str() {
        Some(text) => text.replace('%', "%%").into(),
        None => path.as_os_str().to_owned(),
    }
}

/// Finds a program: a path with a slash as it is, else the first executable with that name on `path`.
pub fn find_on_path(program: &Path, path: &[PathBuf]) -> Option<PathBuf> {
    if program.components().count() > 1 || program.is_absolute() {
        return is_executable(program).then(|| program.to_path_buf());
    }
    path.iter().map(|folder| folder.join(program)).find(|candidate| is_executable(candidate))
}

/// Splits an environment variable such as `PATH` into folders.
pub fn folders_in_variable(name: &str) -> Vec<PathBuf> {
    std::env::var_os(name).map(|value| std::env::split_paths(&value).collect()).unwrap_or_default()
}

/// Returns true when `path` is a file that this user may execute.
pub fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// A range, identified by domain and name. Its text is `[domain@]name`; an `@` that separates nothing is `\@`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct NvtxRange {
    /// Domain; `None` for the default domain.
    pub domain: Option<String>,
    /// Name of the range.
    pub name: String,
}

impl NvtxRange {
    /// Parses `[domain@]name`, the order this project uses.
    ///
    /// ```
    /// use roofgap_collect::command::NvtxRange;
    /// let range = NvtxRange::parse("LLM@prefill").unwrap();
    /// assert_eq!(range.for_nsys(), "prefill@LLM");
    /// assert_eq!(range.for_ncu(), "LLM@prefill/");
    /// // A range of that very name in the default domain.
    /// let literal = NvtxRange::parse(r"LLM\@prefill").unwrap();
    /// assert_eq!(literal.for_ncu(), r"LLM\@prefill/");
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let separates = |(at, _): &(usize, &str)| !text[..*at].ends_with('\\');
        let literal = |part: &str| part.replace(r"\@", "@");
        let (domain, name) = match text.match_indices('@').find(separates) {
            Some((at, _)) => (Some(literal(&text[..at])), text[at + 1..].to_owned()),
            None => (None, literal(text)),
        };
        let filled = !name.is_empty() && domain.as_ref().is_none_or(|domain| !domain.is_empty());
        filled.then_some(Self { domain, name })
    }

    /// Formats as `name@domain` for `nsys --nvtx-capture`; escapes `@` in names.
    pub fn for_nsys(&self) -> String {
        let name = self.name.replace('@', r"\@");
        match &self.domain {
            Some(domain) => format!("{name}@{}", domain.replace('@', r"\@")),
            None => name,
        }
    }

    /// Formats as `domain@name/` for `ncu --nvtx-include`; the slash means a push/pop range.
    pub fn for_ncu(&self) -> String {
        format!("{}/", self.of_process_for_ncu())
    }

    /// Formats as `domain@name` for `ncu --nvtx-exclude`: a start/end range, which encloses the kernels of all threads.
    pub fn of_process_for_ncu(&self) -> String {
        let name = escaped(&self.name, RANGE_SYNTAX);
        match &self.domain {
            Some(domain) => format!("{}@{name}", escaped(domain, RANGE_SYNTAX)),
            None => name,
        }
    }
}

impl fmt::Display for NvtxRange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.domain {
            Some(domain) => write!(out, "{}@{}", domain.replace('@', r"\@"), self.name),
            None => out.write_str(&self.name.replace('@', r"\@")),
        }
    }
}

impl From<NvtxRange> for String {
    fn from(range: NvtxRange) -> Self {
        range.to_string()
    }
}

impl TryFrom<String> for NvtxRange {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or_else(|| format!("{text:?} is no range: expected [domain@]name"))
    }
}

/// Characters that have a meaning in a range expression of ncu.
const RANGE_SYNTAX: &str = r"@/[],*+\";

/// Puts a backslash before each of the characters `special`.
pub(crate) fn escaped(text: &str, special: &str) -> String {
    let escape = |c: char| special.contains(c).then_some('\\').into_iter().chain([c]);
    text.chars().flat_map(escape).collect()
}

/// Tells whether each `*` of a pattern can stand for some text.
pub fn matches_wildcards(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            let mut ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
            ends.any(|at| rest.get(at..).is_some_and(|rest| matches_wildcards(after, rest)))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_shell_reads_back_what_display_writes() {
        let words =
            ["plain", "", "two words", "it's", "$HOME `id` \"x\"", "*?[a]", "a\nb", "~", "#no", "!x", "é"];
        let line = CommandLine::new("printf").arg("%s\\0").args(words);
        let output = Command::new("sh").arg("-c").arg(line.to_string()).output().unwrap();
        let expected: Vec<u8> = words.iter().flat_map(|word| word.bytes().chain([0])).collect();
        assert_eq!(output.stdout, expected);
    }

    #[test]
    fn bytes_that_are_not_utf8_survive_bash() {
        let odd = OsString::from_vec(vec![b'a', 0xff, b'\'', b' ']);
        let line = CommandLine::new("printf").arg("%s").arg(odd.clone());
        let output = Command::new("bash").arg("-c").arg(line.to_string()).output().unwrap();
        assert_eq!(output.stdout, odd.into_vec());
    }

    #[test]
    fn every_word_survives_as_text() {
        for word in [&b"plain"[..], b"", b"a\xff%41 b", b"bytes:x", b"bytes:%41", "é".as_bytes(), b"%zz\x80%"]
        {
            let text = word_text(OsStr::from_bytes(word));
            assert_eq!(word_of_text(&text).as_bytes(), word, "{text}");
        }
        assert_eq!(word_text(OsStr::new("%41 é")), "%41 é");
    }

    #[test]
    fn environment_and_folder_are_part_of_the_repeat_command() {
        let line = CommandLine::new("sh")
            .args(["-c", "echo \"$A|${B-unset}|$PWD\""])
            .env("A", "x y")
            .env_remove("B")
            .cwd("/usr");
        let output = Command::new("sh").arg("-c").arg(line.to_string()).env("B", "set").output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "x y|unset|/usr\n");
    }

    #[test]
    fn a_tool_goes_around_a_program() {
        let inner = CommandLine::new("python3").arg("x.py").env("A", "1").env("B", "1").cwd("/data");
        let whole = CommandLine::new("nsys").args(["profile"]).env("B", "2").around(&inner);
        assert_eq!(whole.argv(), ["nsys", "profile", "python3", "x.py"]);
        assert_eq!(whole.env_value("A"), Some(Some(OsStr::new("1"))));
        assert_eq!(whole.env_value("B"), Some(Some(OsStr::new("2"))));
        assert_eq!(whole.env_value("C"), None);
        assert_eq!(whole.cwd.as_deref(), Some(Path::new("/data")));
    }

    #[test]
    fn a_name_is_looked_up_and_a_path_is_not() {
        let path = [PathBuf::from("/nonexistent"), PathBuf::from("/bin"), PathBuf::from("/usr/bin")];
        assert!(find_on_path(Path::new("sh"), &path).is_some());
        assert_eq!(find_on_path(Path::new("no-such-program"), &path), None);
        assert_eq!(find_on_path(Path::new("/etc/passwd"), &path), None);
    }

    #[test]
    fn both_orders() {
        let plain = NvtxRange::parse("sam").unwrap();
        assert_eq!((plain.for_nsys().as_str(), plain.for_ncu().as_str()), ("sam", "sam/"));
        assert_eq!(plain.of_process_for_ncu(), "sam");
        let odd = NvtxRange::parse("D@step [1/2]@x").unwrap();
        assert_eq!(odd.for_nsys(), r"step [1/2]\@x@D");
        assert_eq!(odd.for_ncu(), r"D@step \[1\/2\]\@x/");
        assert_eq!(odd.to_string(), "D@step [1/2]@x");
    }

    #[test]
    fn a_literal_label_is_not_a_domain() {
        let literal = NvtxRange { domain: None, name: "LLM@decode_all".to_owned() };
        assert_eq!(literal.for_ncu(), r"LLM\@decode_all/");
        assert_eq!(literal.for_nsys(), r"LLM\@decode_all");
        for range in [literal, NvtxRange { domain: Some("a@b".to_owned()), name: "c@d".to_owned() }] {
            assert_eq!(NvtxRange::parse(&range.to_string()), Some(range));
        }
    }

    #[test]
    fn invalid_ranges() {
        for text in ["", "@", "LLM@", "@prefill"] {
            assert_eq!(NvtxRange::parse(text), None, "{text}");
        }
    }
}
