//! A file of a run, whole or in part.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use roofgap_runs::runs::RunRef;
use rustix::fs::{Mode, OFlags, openat};
use tokio::io::AsyncReadExt;

use crate::api_error::ApiError;
use crate::hashes::Hashes;

/// Bytes of a part that is read at once.
const CHUNK: usize = 64 << 10;

/// Files that are not given out: hashes of secrets, from which a short secret can be guessed.
const PRIVATE: [&str; 2] = ["secrets.json", "secrets.json.gz"];

/// An open file of a run.
#[derive(Debug)]
pub struct RunFile {
    file: File,
    path: PathBuf,
}

/// A file of a run, its hash and the requested part.
#[derive(Debug)]
pub struct Download {
    file: File,
    bytes: u64,
    etag: String,
    kind: &'static str,
    part: Part,
}

/// Part of a file that a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Whole,
    Bytes(Range<u64>),
    /// The client has it already.
    Nothing,
}

impl RunFile {
    /// Opens a file of a run. No link is followed, so nothing outside of the run is read.
    pub fn open(run: &RunRef, path: &str) -> Result<Self, ApiError> {
        let missing = || ApiError::NoFile { run: run.id.clone(), path: path.chars().take(200).collect() };
        // Without slashes at the end, which would make another name of the same file.
        let below: PathBuf = Path::new(path).components().collect();
        if PRIVATE.iter().any(|name| below.file_name() == Some(name.as_ref())) {
            return Err(missing());
        }
        let file = open_below(&run.path, &below).ok_or_else(missing)?;
        if !file.metadata().map_err(ApiError::Read)?.is_file() {
            return Err(missing());
        }
        Ok(RunFile { file, path: run.path.join(below) })
    }

    /// Hashes the file.
    pub async fn hash(&self, hashes: &Arc<Hashes>) -> Result<String, ApiError> {
        let file = self.file.try_clone().map_err(ApiError::Read)?;
        hashes.get(self.path.clone(), file).await.map_err(ApiError::Read)
    }

    /// Makes the answer to a request, with the hash of the file.
    pub fn download(mut self, hash: &str, headers: &HeaderMap) -> Result<Download, ApiError> {
        let bytes = self.file.metadata().map_err(ApiError::Read)?.len();
        let etag = format!("\"{hash}\"");
        let part = part(headers, &etag, bytes)?;
        if let Part::Bytes(range) = &part {
            self.file.seek(SeekFrom::Start(range.start)).map_err(ApiError::Read)?;
        }
        let kind = content_type(&self.path.to_string_lossy());
        Ok(Download { file: self.file, bytes, etag, kind, part })
    }
}

/// Opens a file below a folder, part by part, without following a link.
fn open_below(folder: &Path, path: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mut at: OwnedFd = File::open(folder).ok()?.into();
    let mut parts = path.components().peekable();
    parts.peek()?;
    while let Some(part) = parts.next() {
        let Component::Normal(name) = part else {
            return None;
        };
        let kind = if parts.peek().is_some() { OFlags::DIRECTORY } else { OFlags::empty() };
        at = openat(&at, name, flags | kind, Mode::empty()).ok()?;
    }
    Some(at.into())
}

/// Reads the requested part from the headers. Several ranges at once are answered with the whole file.
fn part(headers: &HeaderMap, etag: &str, bytes: u64) -> Result<Part, ApiError> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    if let Some(known) = text(header::IF_NONE_MATCH) {
        let mut tags = known.split(',').map(|tag| tag.trim().trim_start_matches("W/"));
        if tags.any(|tag| tag == etag || tag == "*") {
            return Ok(Part::Nothing);
        }
    }
    // A part of another version of the file is of no use.
    if text(header::IF_RANGE).is_some_and(|tag| tag != etag) {
        return Ok(Part::Whole);
    }
    let Some(spec) = text(header::RANGE).and_then(|range| range.strip_prefix("bytes=")) else {
        return Ok(Part::Whole);
    };
    let Some((first, last)) = spec.split_once('-').filter(|_| !spec.contains(',')) else {
        return Ok(Part::Whole);
    };
    let range = match (first.trim().parse::<u64>(), last.trim().parse::<u64>()) {
        (Ok(first), Ok(last)) if first <= last => first..last.saturating_add(1).min(bytes),
        (Ok(first), Err(_)) if last.trim().is_empty() => first..bytes,
        (Err(_), Ok(count)) if first.trim().is_empty() && count > 0 => bytes.saturating_sub(count)..bytes,
        // Not a range: the header is ignored.
        _ => return Ok(Part::Whole),
    };
    if range.start >= bytes {
        return Err(ApiError::Range(bytes));
    }
    Ok(Part::Bytes(range))
}

/// Names the content type of a file.
fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("json") => "application/json",
        Some("html") => "text/html; charset=utf-8",
        Some("md") => "text/markdown; charset=utf-8",
        Some("csv") => "text/csv; charset=utf-8",
        Some("yaml" | "log" | "txt" | "py") => "text/plain; charset=utf-8",
        Some("gz") => "application/gzip",
        _ => "application/octet-stream",
    }
}

impl IntoResponse for Download {
    fn into_response(self) -> Response {
        let (status, length, range) = match self.part {
            Part::Nothing => {
                return (StatusCode::NOT_MODIFIED, [(header::ETAG, self.etag)]).into_response();
            }
            Part::Whole => (StatusCode::OK, self.bytes, None),
            Part::Bytes(range) => {
                let text = format!("bytes {}-{}/{}", range.start, range.end.saturating_sub(1), self.bytes);
                (StatusCode::PARTIAL_CONTENT, range.end - range.start, Some(text))
            }
        };
        let headers = [
            (header::CONTENT_TYPE, self.kind.to_owned()),
            (header::CONTENT_LENGTH, length.to_string()),
            (header::ACCEPT_RANGES, "bytes".to_owned()),
            (header::ETAG, self.etag),
            // Whatever a program wrote into its run runs no script here.
            (header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'".to_owned()),
        ];
        let range = range.map(|range| [(header::CONTENT_RANGE, range)]);
        (status, headers, range, body(self.file, length)).into_response()
    }
}

/// Streams `length` bytes. A file that became shorter ends the connection, so that the client notices.
fn body(file: File, length: u64) -> Body {
    let file = tokio::fs::File::from_std(file);
    Body::from_stream(stream::try_unfold((file, length), |(mut file, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let mut chunk = vec![0; CHUNK.min(usize::try_from(left).unwrap_or(CHUNK))];
        let count = file.read(&mut chunk).await?;
        if count == 0 {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof));
        }
        chunk.truncate(count);
        Ok(Some((Bytes::from(chunk), (file, left - count as u64))))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(range: &str) -> Result<Part, ApiError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, range.parse().unwrap());
        part(&headers, "\"x\"", 100)
    }

    #[test]
    fn ranges_follow_the_standard() {
        assert_eq!(asked("bytes=0-9").unwrap(), Part::Bytes(0..10));
        assert_eq!(asked("bytes=90-").unwrap(), Part::Bytes(90..100));
        assert_eq!(asked("bytes=90-1000").unwrap(), Part::Bytes(90..100));
        assert_eq!(asked("bytes=-7").unwrap(), Part::Bytes(93..100));
        assert_eq!(asked("bytes=-700").unwrap(), Part::Bytes(0..100));
        for ignored in ["bytes=9-0", "bytes=a-b", "bytes=-", "bytes=-0", "bytes=0-1,5-6", "lines=1-2"] {
            assert_eq!(asked(ignored).unwrap(), Part::Whole, "{ignored}");
        }
        assert!(matches!(asked("bytes=100-"), Err(ApiError::Range(100))));
        assert!(matches!(asked("bytes=18446744073709551615-"), Err(ApiError::Range(100))));
    }

    #[test]
    fn a_known_version_is_not_sent_again() {
        let mut headers = HeaderMap::new();
        headers.insert(header::IF_NONE_MATCH, "\"a\", W/\"x\"".parse().unwrap());
        assert_eq!(part(&headers, "\"x\"", 100).unwrap(), Part::Nothing);
        headers.clear();
        headers.insert(header::RANGE, "bytes=0-1".parse().unwrap());
        headers.insert(header::IF_RANGE, "\"old\"".parse().unwrap());
        assert_eq!(part(&headers, "\"x\"", 100).unwrap(), Part::Whole);
    }

    #[test]
    fn only_files_below_the_folder_are_opened() {
        let base = tempfile::tempdir().unwrap();
        let run = base.path().join("run");
        std::fs::create_dir_all(run.join("nsys")).unwrap();
        std::fs::write(run.join("nsys/a"), "a").unwrap();
        std::fs::write(base.path().join("secret"), "s").unwrap();
        std::os::unix::fs::symlink(base.path(), run.join("up")).unwrap();
        std::os::unix::fs::symlink("../secret", run.join("link")).unwrap();
        assert!(open_below(&run, Path::new("nsys/a")).is_some());
        for path in ["", "..", "../secret", "nsys/../../secret", "/etc/passwd", "up/secret", "link", "none"] {
            assert!(open_below(&run, Path::new(path)).is_none(), "{path}");
        }
    }
}
