//! SHA-256 of the files of runs: each is computed once, a few at a time, on threads of their own, and only while a client waits for it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::SystemTime;

use roofgap_base::file::copy_hashed;
use tokio::sync::{Semaphore, watch};

/// Files that are hashed at a time.
pub const AT_ONCE: usize = 2;

/// Hashes that are remembered.
const MOST: usize = 10_000;

/// Path, size and time of the last change of a file.
type FileVersion = (PathBuf, u64, Option<SystemTime>);

/// Hash of a file, or the error; `None` until it is known.
type Answer = Option<Result<String, String>>;

/// Hashes of files.
#[derive(Debug)]
pub struct Hashes {
    known: Mutex<HashMap<FileVersion, Known>>,
    /// Places for files that are hashed at a time; further ones wait.
    pub places: Arc<Semaphore>,
}

#[derive(Debug)]
enum Known {
    Done(String),
    UnderWay(Weak<Wish>),
}

/// A hash that clients wait for. The work ends when the last of them has left.
#[derive(Debug)]
struct Wish(watch::Receiver<Answer>);

impl Hashes {
    /// Makes a set that knows no hashes.
    pub fn new() -> Arc<Self> {
        Arc::new(Hashes { known: Mutex::default(), places: Arc::new(Semaphore::new(AT_ONCE)) })
    }

    /// Hashes an open file, unless it is unchanged since the last time. The work is dropped with the last request for it.
    pub async fn get(self: &Arc<Self>, path: PathBuf, file: File) -> io::Result<String> {
        let facts = file.metadata()?;
        let version = (path, facts.len(), facts.modified().ok());
        let wish = {
            let mut known = self.lock();
            let wish = match known.get(&version) {
                Some(Known::Done(hash)) => return Ok(hash.clone()),
                Some(Known::UnderWay(wish)) => wish.upgrade(),
                None => None,
            };
            wish.unwrap_or_else(|| self.begin(&mut known, version, file))
        };
        let mut answer = wish.0.clone();
        let answer = answer.wait_for(Option::is_some).await.map_err(io::Error::other)?;
        match answer.as_ref() {
            Some(Ok(hash)) => Ok(hash.clone()),
            Some(Err(why)) => Err(io::Error::other(why.clone())),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Begins to hash a file as soon as there is a place.
    fn begin(
        self: &Arc<Self>,
        known: &mut HashMap<FileVersion, Known>,
        version: FileVersion,
        file: File,
    ) -> Arc<Wish> {
        let (answer, received) = watch::channel(None);
        let wish = Arc::new(Wish(received));
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(version.clone(), Known::UnderWay(Arc::downgrade(&wish)));
        let (this, wanted) = (self.clone(), Arc::downgrade(&wish));
        tokio::spawn(async move {
            let place = this.places.clone().acquire_owned().await;
            if wanted.strong_count() == 0 {
                return;
            }
            // Not one of the threads for requests, which a large file would keep for minutes. Without a thread the clients get an
            // error, because `answer` is gone.
            let _ = std::thread::Builder::new().name("hash".to_owned()).spawn(move || {
                let _place = place;
                let hash = copy_hashed(&mut WhileWanted { file, at: 0, wanted }, &mut io::sink());
                if let Ok(hash) = &hash {
                    this.lock().insert(version, Known::Done(hash.sha256.clone()));
                }
                answer.send_replace(Some(hash.map(|hash| hash.sha256).map_err(|error| error.to_string())));
            });
        });
        wish
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<FileVersion, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file that ends with an error once nobody waits for it.
struct WhileWanted {
    file: File,
    at: u64,
    wanted: Weak<Wish>,
}

impl Read for WhileWanted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.wanted.strong_count() == 0 {
            return Err(io::Error::other("no client waits for it"));
        }
        // The position of the file belongs to the client that sends it.
        let count = self.file.read_at(buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

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
