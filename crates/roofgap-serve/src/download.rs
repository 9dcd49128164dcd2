//! A file of a run, whole or in part.
//!
//! SHA-256 of the files of runs: each is computed once, a few at a time, and only while a client waits for it.

use crate::api_error::ApiError;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use roofgap_base::text::{cut, hex};
use roofgap_runs::runs::RunRef;
use rustix::fs::{Mode, OFlags, openat};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;
use tokio::io::AsyncReadExt;
use tokio::sync::{OnceCell, Semaphore};

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
        let missing = || {
            let why = format!("the run {} has no file {:?}", run.id, cut(path, 200));
            ApiError::new(StatusCode::NOT_FOUND, why)
        };
        // Without slashes at the end, which would make another name of the same file.
        let below: PathBuf = Path::new(path).components().collect();
        if PRIVATE.iter().any(|name| below.file_name() == Some(name.as_ref())) {
            return Err(missing());
        }
        let file = open_below(&run.path, &below).ok_or_else(missing)?;
        if !file.metadata().map_err(ApiError::read)?.is_file() {
            return Err(missing());
        }
        Ok(RunFile { file, path: run.path.join(below) })
    }

    /// Hashes the file.
    pub async fn hash(&self, hashes: &Arc<Hashes>) -> Result<String, ApiError> {
        let file = self.file.try_clone().map_err(ApiError::read)?;
        hashes.get(self.path.clone(), file).await.map_err(ApiError::read)
    }

    /// Makes the answer to a request, with the hash of the file.
    pub fn download(mut self, hash: &str, headers: &HeaderMap) -> Result<Response, ApiError> {
        let bytes = self.file.metadata().map_err(ApiError::read)?.len();
        let etag = format!("\"{hash}\"");
        let (status, part, range) = match part(headers, &etag, bytes)? {
            Part::Nothing => {
                return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response());
            }
            Part::Whole => (StatusCode::OK, 0..bytes, None),
            Part::Bytes(range) => {
                let text = format!("bytes {}-{}/{bytes}", range.start, range.end.saturating_sub(1));
                (StatusCode::PARTIAL_CONTENT, range, Some([(header::CONTENT_RANGE, text)]))
            }
        };
        // The hash has read it to its end.
        self.file.seek(SeekFrom::Start(part.start)).map_err(ApiError::read)?;
        let length = part.end - part.start;
        let headers = [
            (header::CONTENT_TYPE, content_type(&self.path.to_string_lossy()).to_owned()),
            (header::CONTENT_LENGTH, length.to_string()),
            (header::ACCEPT_RANGES, "bytes".to_owned()),
            (header::ETAG, etag),
            // Whatever a program wrote into its run runs no script here.
            (header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'".to_owned()),
        ];
        Ok((status, headers, range, body(self.file, length)).into_response())
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
        let why = format!("the range is outside of the file, which has {bytes} bytes");
        let error = ApiError::new(StatusCode::RANGE_NOT_SATISFIABLE, why);
        return Err(error.with_header(header::CONTENT_RANGE, format!("bytes */{bytes}")));
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

/// Files that are hashed at a time.
pub const AT_ONCE: usize = 2;

/// Hashes that are remembered.
const MOST: usize = 10_000;

/// Path, size and time of the last change of a file.
type FileVersion = (PathBuf, u64, Option<SystemTime>);

/// Hashes of files.
#[derive(Debug)]
pub struct Hashes {
    known: Mutex<HashMap<FileVersion, Arc<OnceCell<String>>>>,
    /// Places for files that are hashed at a time; further ones wait.
    pub places: Semaphore,
}

impl Hashes {
    /// Makes a set that knows no hashes.
    pub fn new() -> Arc<Self> {
        Arc::new(Hashes { known: Mutex::default(), places: Semaphore::new(AT_ONCE) })
    }

    /// Hashes an open file, unless it is unchanged since the last time. Requests for one file wait for the same work; it ends with the
    /// request that began it, and the next one begins again.
    pub async fn get(&self, path: PathBuf, file: File) -> io::Result<String> {
        let facts = file.metadata()?;
        let version = (path, facts.len(), facts.modified().ok());
        let cell = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            if known.len() >= MOST {
                known.clear();
            }
            known.entry(version).or_default().clone()
        };
        cell.get_or_try_init(|| self.hash(file)).await.cloned()
    }

    /// Hashes a file as soon as there is a place, part by part, so that it keeps no thread and ends with its request.
    async fn hash(&self, file: File) -> io::Result<String> {
        let _place = self.places.acquire().await.map_err(io::Error::other)?;
        let mut file = tokio::fs::File::from_std(file);
        let (mut hasher, mut chunk) = (Sha256::new(), vec![0; CHUNK]);
        loop {
            match file.read(&mut chunk).await? {
                0 => return Ok(hex(&hasher.finalize())),
                count => hasher.update(chunk.get(..count).unwrap_or_default()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

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
        for outside in ["bytes=100-", "bytes=18446744073709551615-"] {
            assert_eq!(asked(outside).unwrap_err().status, StatusCode::RANGE_NOT_SATISFIABLE);
        }
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

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn a_version_of_a_file_is_hashed_once() {
        let folder = tempfile::tempdir().unwrap();
        let open = |text: &str| {
            let path = folder.path().join(text);
            std::fs::write(&path, text).unwrap();
            let file = File::open(&path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
            file
        };
        let hashes = Hashes::new();
        let get = |text: &str| {
            let (hashes, file) = (hashes.clone(), open(text));
            async move { hashes.get("same".into(), file).await.unwrap() }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            // The second is the same version as far as anybody knows.
            let (first, second) = tokio::join!(get("abc"), get("xyz"));
            assert_eq!((first.as_str(), second.as_str()), (ABC, ABC));
            assert_eq!(get("xyz").await, ABC);
            assert_ne!(get("longer").await, ABC);
        });
    }

    #[test]
    fn a_hash_that_nobody_waits_for_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("large");
        // Sparse: it takes no room and hours to hash.
        File::create(&path).unwrap().set_len(1 << 42).unwrap();
        let hashes = Hashes::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let places = |free: usize| {
            let places = &hashes.places;
            async move {
                let deadline = Instant::now() + Duration::from_secs(300);
                while places.available_permits() != free {
                    assert!(Instant::now() < deadline, "{} places are free", places.available_permits());
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        };
        runtime.block_on(async {
            let clients: Vec<_> = (0..16)
                .map(|_| {
                    let (hashes, path) = (hashes.clone(), path.clone());
                    let file = File::open(&path).unwrap();
                    tokio::spawn(async move { hashes.get(path, file).await })
                })
                .collect();
            places(AT_ONCE - 1).await;
            clients.iter().for_each(tokio::task::JoinHandle::abort);
            places(AT_ONCE).await;
        });
    }
}
