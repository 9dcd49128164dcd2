//! CUPTI, loaded at run time: [`sys`] is the raw interface, [`Surroundings`] finds the library that the program has loaded, else the one
//! nearest to its CUDA, and [`Api`] has the functions of the one that was opened. What a version lacks is `None`; only a handful are
//! required.

pub mod sys;

use std::ffi::{CStr, CString, c_char, c_void};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

/// Why CUPTI could not be used.
#[derive(Debug, Clone)]
pub enum Failure {
    /// The loader would not open the file.
    Open(String),
    /// A function that is needed is not in it.
    Lacks(&'static str),
    /// A function answered with an error.
    Refused {
        /// The function.
        call: &'static str,
        /// Result code.
        code: u32,
        /// The answer in words.
        text: String,
    },
}

impl std::fmt::Display for Failure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Open(text) => write!(out, "{text}"),
            Self::Lacks(name) => write!(out, "{name} is not in it"),
            Self::Refused { call, code, text } => write!(out, "{call} answered {code} ({text})"),
        }
    }
}

/// Subscriber handle of CUPTI.
pub struct Subscriber(*mut c_void);

// SAFETY: a number to CUPTI, which takes it from any thread.
unsafe impl Send for Subscriber {}
// SAFETY: as above.
unsafe impl Sync for Subscriber {}

/// Looks up one function; the type is the caller's word for what the library declares.
macro_rules! symbol {
    ($handle:expr, $name:literal, $type:ty) => {{
        // SAFETY: the handle is open, the name ends in NUL, and a function pointer is as wide as an object pointer
        // on every system CUPTI runs on.
        unsafe {
            let function = libc::dlsym($handle, concat!($name, "\0").as_ptr().cast::<c_char>());
            if function.is_null() { None } else { Some(std::mem::transmute::<*mut c_void, $type>(function)) }
        }
    }};
}

pub mod pm;

/// Declares the functions of CUPTI, with their names and parameters: required ones, and those that a version may lack. All return a code.
macro_rules! functions {
    (required { $($need:ident = $need_name:literal($($need_type:ty),*),)* } optional { $($may:ident = $may_name:literal($($may_type:ty),*),)* }) => {
        /// An opened CUPTI.
        pub struct Api {
            /// Path of the library.
            pub path: PathBuf,
            /// Version that the library reports.
            pub version: u32,
            $($need: unsafe extern "C" fn($($need_type),*) -> u32,)*
            $($may: Option<unsafe extern "C" fn($($may_type),*) -> u32>,)*
        }

        impl Api {
            /// Finds the functions of an open library.
            fn find(handle: *mut c_void, path: &Path) -> Result<Self, Failure> {
                Ok(Self {
                    path: path.to_path_buf(),
                    version: 0,
                    $($need: symbol!(handle, $need_name, unsafe extern "C" fn($($need_type),*) -> u32)
                        .ok_or(Failure::Lacks($need_name))?,)*
                    $($may: symbol!(handle, $may_name, unsafe extern "C" fn($($may_type),*) -> u32),)*
                })
            }
        }
    };
}

functions! {
    required {
        get_version = "cuptiGetVersion"(*mut u32),
        subscribe = "cuptiSubscribe"(*mut *mut c_void, sys::Callback, *mut c_void),
        register = "cuptiActivityRegisterCallbacks"(sys::BufferRequested, sys::BufferCompleted),
        enable = "cuptiActivityEnable"(u32),
        flush_all = "cuptiActivityFlushAll"(u32),
        next_record = "cuptiActivityGetNextRecord"(*mut u8, usize, *mut *mut u8),
    }
    optional {
        disable = "cuptiActivityDisable"(u32),
        subscribe_named = "cuptiSubscribe_v2"(*mut *mut c_void, sys::Callback, *mut c_void, *mut sys::SubscriberParams),
        unsubscribe = "cuptiUnsubscribe"(*mut c_void),
        timestamp = "cuptiGetTimestamp"(*mut u64),
        dropped = "cuptiActivityGetNumDroppedRecords"(*mut c_void, u32, *mut usize),
        set_attribute = "cuptiActivitySetAttribute"(u32, *mut usize, *mut c_void),
        enable_runtime = "cuptiActivityEnableRuntimeApi"(u32, u8),
        enable_driver = "cuptiActivityEnableDriverApi"(u32, u8),
        enable_callback = "cuptiEnableCallback"(u32, *mut c_void, u32, u32),
        hardware = "cuptiActivityEnableHWTrace"(u8),
        callback_name = "cuptiGetCallbackName"(u32, u32, *mut *const c_char),
        graph_node_id = "cuptiGetGraphNodeId"(*mut c_void, *mut u64),
        stream_id = "cuptiGetStreamIdEx"(*mut c_void, *mut c_void, u8, *mut u32),
        result_string = "cuptiGetResultString"(u32, *mut *const c_char),
    }
}

impl Api {
    /// Opens the CUPTI at `path`.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let mut api = Self::find(load_path(path)?, path)?;
        // SAFETY: the function writes one u32.
        let code = unsafe { (api.get_version)(&raw mut api.version) };
        api.check("cuptiGetVersion", code)?;
        if let Some(loaded) = loaded_path(api.get_version as *const c_void) {
            api.path = loaded;
        }
        Ok(api)
    }

    fn check(&self, call: &'static str, code: u32) -> Result<(), Failure> {
        if code == sys::SUCCESS {
            return Ok(());
        }
        Err(Failure::Refused { call, code, text: words(self.result_string, code) })
    }

    /// Becomes the one subscriber, so that two profilers never share buffers unknowingly.
    pub fn subscribe(&self, callback: sys::Callback) -> Result<Subscriber, Failure> {
        let mut subscriber = ptr::null_mut();
        // SAFETY: the callback lives as long as the library, which is never unloaded.
        let code = unsafe { (self.subscribe)(&raw mut subscriber, callback, ptr::null_mut()) };
        self.check("cuptiSubscribe", code).map(|()| Subscriber(subscriber))
    }

    /// Returns the name of the subscriber that keeps us out, where this version gives it.
    pub fn other_subscriber(&self, callback: sys::Callback) -> Option<String> {
        let mut name = [0 as c_char; 256];
        let mut subscriber = ptr::null_mut();
        let mut params = sys::SubscriberParams {
            size: size_of::<sys::SubscriberParams>(),
            name: c"roofgap".as_ptr(),
            other_name: name.as_mut_ptr(),
            other_length: name.len() - 1,
        };
        // SAFETY: the parameters live across the call; CUPTI writes at most the given length of the name.
        let code = unsafe {
            (self.subscribe_named?)(&raw mut subscriber, callback, ptr::null_mut(), &raw mut params)
        };
        if code == sys::SUCCESS
            && let Some(unsubscribe) = self.unsubscribe
        {
            // SAFETY: the subscriber that CUPTI has just given us.
            unsafe { unsubscribe(subscriber) };
        }
        // SAFETY: the last byte is never written, so the text ends.
        let text = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy();
        Some(text.trim().to_owned()).filter(|name| code != sys::SUCCESS && !name.is_empty())
    }

    /// Says where buffers come from and go to.
    pub fn register(
        &self,
        requested: sys::BufferRequested,
        completed: sys::BufferCompleted,
    ) -> Result<(), Failure> {
        // SAFETY: both functions live as long as the library, which is never unloaded.
        let code = unsafe { (self.register)(requested, completed) };
        self.check("cuptiActivityRegisterCallbacks", code)
    }

    /// Starts recording one kind of activity.
    pub fn enable(&self, kind: u32) -> Result<(), Failure> {
        // SAFETY: takes a number.
        self.check("cuptiActivityEnable", unsafe { (self.enable)(kind) })
    }

    /// Stops recording one kind of activity. Records of work that was launched before are still delivered.
    pub fn disable(&self, kind: u32) -> Result<(), Failure> {
        let disable = self.disable.ok_or(Failure::Lacks("cuptiActivityDisable"))?;
        // SAFETY: takes a number.
        self.check("cuptiActivityDisable", unsafe { disable(kind) })
    }

    /// Returns true if calls can be selected for activity records.
    pub fn can_choose_calls(&self) -> bool {
        self.enable_runtime.is_some() && self.enable_driver.is_some() && self.callback_name.is_some()
    }

    /// Returns true if calls can be selected for callbacks.
    pub fn can_call_back(&self) -> bool {
        self.enable_callback.is_some() && self.callback_name.is_some()
    }

    /// Starts or stops calling back about one call.
    pub fn set_callback(&self, subscriber: &Subscriber, domain: u32, number: u32, on: bool) -> bool {
        // SAFETY: the subscriber is the one CUPTI gave us.
        self.enable_callback
            .is_some_and(|set| unsafe { set(u32::from(on), subscriber.0, domain, number) } == sys::SUCCESS)
    }

    /// Returns true if the nodes of graphs can be told apart.
    pub fn can_name_graph_nodes(&self) -> bool {
        self.enable_callback.is_some() && self.graph_node_id.is_some()
    }

    /// Returns the id of a graph node, which kernel records carry too.
    ///
    /// # Safety
    /// `node` must be a node that CUPTI passed to the current callback.
    pub unsafe fn graph_node_id(&self, node: *mut c_void) -> Option<u64> {
        let mut id = 0;
        // SAFETY: as the caller promises; writes one u64.
        let code = unsafe { (self.graph_node_id?)(node, &raw mut id) };
        (code == sys::SUCCESS).then_some(id)
    }

    /// Returns true if the streams in the arguments of calls can be told apart.
    pub fn can_name_streams(&self) -> bool {
        self.stream_id.is_some() && self.can_call_back()
    }

    /// Returns the id of a stream, which records of work carry too. `per_thread`: the default stream is that of the thread.
    ///
    /// # Safety
    /// The context must be that of the current callback, and the stream one of the arguments of its call.
    pub unsafe fn stream_id(&self, context: *mut c_void, stream: usize, per_thread: bool) -> Option<u32> {
        let mut id = 0;
        // SAFETY: as the caller promises; writes one u32.
        let code =
            unsafe { (self.stream_id?)(context, stream as *mut c_void, u8::from(per_thread), &raw mut id) };
        (code == sys::SUCCESS).then_some(id)
    }

    /// Starts or stops recording one call.
    pub fn set_call(&self, domain: u32, number: u32, on: bool) -> bool {
        let function = if domain == sys::DOMAIN_DRIVER { self.enable_driver } else { self.enable_runtime };
        // SAFETY: takes two numbers.
        function.is_some_and(|enable| unsafe { enable(number, u8::from(on)) } == sys::SUCCESS)
    }

    /// Sets an attribute of one byte, where the version has it.
    pub fn set_flag(&self, attribute: u32, on: bool) {
        let (mut size, mut value) = (1, u8::from(on));
        if let Some(set) = self.set_attribute {
            // SAFETY: size and value live across the call, and the value is `size` bytes long; an error changes nothing.
            unsafe { set(attribute, &raw mut size, (&raw mut value).cast()) };
        }
    }

    /// Has the GPU time its kernels, which costs launches less. Only before the program has a context, and for good.
    pub fn time_by_hardware(&self) -> Result<(), Failure> {
        let set = self.hardware.ok_or(Failure::Lacks("cuptiActivityEnableHWTrace"))?;
        // SAFETY: takes a flag.
        self.check("cuptiActivityEnableHWTrace", unsafe { set(1) })
    }

    /// Delivers buffers: those whose records are finished, or all of them.
    pub fn flush(&self, all: bool) -> Result<(), Failure> {
        // SAFETY: takes a flag. Buffers come back through the callback given to `register`.
        self.check("cuptiActivityFlushAll", unsafe { (self.flush_all)(u32::from(all)) })
    }

    /// Reads CUPTI's clock.
    pub fn timestamp(&self) -> Option<u64> {
        let mut now = 0;
        // SAFETY: writes one u64.
        (unsafe { (self.timestamp?)(&raw mut now) } == sys::SUCCESS).then_some(now)
    }

    /// Records CUPTI dropped since the last time it was asked.
    pub fn dropped(&self) -> u64 {
        let mut count = 0;
        let Some(ask) = self.dropped else { return 0 };
        // SAFETY: no context and no stream means the global buffers; writes one size_t.
        let code = unsafe { ask(ptr::null_mut(), 0, &raw mut count) };
        if code == sys::SUCCESS { count as u64 } else { 0 }
    }

    /// Returns the name of a call, as in the header.
    pub fn call_name(&self, domain: u32, number: u32) -> Option<&'static [u8]> {
        let mut name = ptr::null();
        // SAFETY: writes one pointer, to a string that lives as long as the library.
        let code = unsafe { (self.callback_name?)(domain, number, &raw mut name) };
        if code != sys::SUCCESS || name.is_null() {
            return None;
        }
        // SAFETY: CUPTI's names are C strings of its own.
        Some(unsafe { CStr::from_ptr(name) }.to_bytes())
    }

    /// Returns the record after `last` in a buffer, or the first one if it is null; null at the end.
    ///
    /// # Safety
    /// `buffer` must be one CUPTI completed with `valid` bytes, and `last` null or a record of it.
    pub unsafe fn next_record(&self, buffer: *mut u8, valid: usize, last: *mut u8) -> *mut u8 {
        let mut record = last;
        // SAFETY: as the caller promises; CUPTI moves `record` through the buffer.
        match unsafe { (self.next_record)(buffer, valid, &raw mut record) } {
            sys::SUCCESS => record,
            _ => ptr::null_mut(),
        }
    }
}

/// Returns CUPTI's description of a result code.
fn words(ask: Option<sys::GetResultString>, code: u32) -> String {
    let mut text = ptr::null();
    match ask {
        // SAFETY: writes a pointer to a constant string.
        Some(ask) if unsafe { ask(code, &raw mut text) } == sys::SUCCESS && !text.is_null() => {
            // SAFETY: as above.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        }
        _ => format!("error {code}"),
    }
}

/// Opens a library, which stays open for the life of the process.
pub fn load(name: &CStr) -> Result<*mut c_void, Failure> {
    // SAFETY: the name is a C string. The initialisers of the library run as they would anyway.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    if handle.is_null() { Err(Failure::Open(loader_error())) } else { Ok(handle) }
}

fn load_path(path: &Path) -> Result<*mut c_void, Failure> {
    let name = CString::new(path.as_os_str().as_bytes());
    load(&name.map_err(|_| Failure::Open("a NUL in its path".into()))?)
}

/// Returns the last error of the loader.
fn loader_error() -> String {
    // SAFETY: the string belongs to the loader and is copied at once.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the loader gave no reason".into();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Returns the file that contains `address`.
fn loaded_path(address: *const c_void) -> Option<PathBuf> {
    // SAFETY: dladdr fills the struct or answers 0.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(address, &raw mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        let bytes = CStr::from_ptr(info.dli_fname).to_bytes();
        Some(PathBuf::from(std::ffi::OsStr::from_bytes(bytes)))
    }
}

/// Names in the loader's search path, newest first.
const BY_NAME: [&str; 4] = ["libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8", "libcupti.so"];

/// Inputs of the search.
#[derive(Debug, Default)]
pub struct Surroundings {
    /// `CUPTI_LIBRARY`: path set by the user.
    pub named: Option<PathBuf>,
    /// `/proc/self/maps`.
    pub maps: String,
    /// `CUDA_HOME`, `CUDA_PATH`.
    pub toolkits: Vec<PathBuf>,
}

impl Surroundings {
    /// Collects the inputs of this process.
    pub fn here() -> Self {
        let path = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self {
            named: path("CUPTI_LIBRARY"),
            maps: fs::read_to_string("/proc/self/maps").unwrap_or_default(),
            toolkits: ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(path).collect(),
        }
    }

    /// Files to try, best first, none twice.
    pub fn candidates(&self) -> Vec<PathBuf> {
        if let Some(named) = &self.named {
            return vec![named.clone()];
        }
        let loaded = loaded_files(&self.maps);
        let mut candidates: Vec<PathBuf> = loaded.iter().filter(|path| is_cupti(path)).cloned().collect();
        if candidates.is_empty() {
            for folder in near(&loaded) {
                candidates.extend(cupti_in(&folder));
            }
            for root in &self.toolkits {
                candidates.extend(in_toolkit(root));
            }
            candidates.extend(BY_NAME.iter().map(PathBuf::from));
            for root in installed_toolkits() {
                candidates.extend(in_toolkit(&root));
            }
        }
        let mut seen = Vec::new();
        candidates.retain(|path| {
            let real = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
            let new = !seen.contains(&real);
            seen.push(real);
            new
        });
        candidates
    }
}

/// Returns the files mapped into the process.
fn loaded_files(maps: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = Vec::new();
    for line in maps.lines() {
        let Some(at) = line.find('/') else { continue };
        let path = Path::new(line.get(at..).unwrap_or_default());
        if files.last().is_none_or(|last| last != path) && !files.iter().any(|file| file == path) {
            files.push(path.to_path_buf());
        }
    }
    files
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

fn is_cupti(path: &Path) -> bool {
    name_of(path).starts_with("libcupti.so")
}

/// Returns true if a loaded file is part of CUDA or of a framework that ships it.
fn is_cuda(path: &Path) -> bool {
    const PARTS: [&str; 9] = [
        "libcudart.so",
        "libcublas",
        "libcudnn",
        "libnvrtc",
        "libcufft",
        "libcusparse",
        "libtorch",
        "libc10_cuda",
        "libnccl",
    ];
    let name = name_of(path);
    PARTS.iter().any(|part| name.starts_with(part))
}

/// Folders near the program's CUDA that may hold CUPTI.
fn near(loaded: &[PathBuf]) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let mut add = |folder: PathBuf| {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    };
    for file in loaded.iter().filter(|file| is_cuda(file)) {
        let Some(folder) = file.parent() else { continue };
        add(folder.to_path_buf());
        if let Some(root) = folder.parent() {
            add(root.join("extras/CUPTI/lib64"));
            add(root.join("../../extras/CUPTI/lib64"));
        }
        for above in folder.ancestors().skip(1).take(4) {
            // Python packages: site-packages/nvidia/<part>/lib beside site-packages/torch/lib.
            for package in subfolders(&above.join("nvidia")) {
                add(package.join("lib"));
            }
        }
    }
    folders
}

fn subfolders(folder: &Path) -> Vec<PathBuf> {
    listed(folder, Path::is_dir)
}

/// Returns the CUPTI files of a folder, newest name first.
fn cupti_in(folder: &Path) -> Vec<PathBuf> {
    listed(folder, is_cupti)
}

/// Returns the entries of a folder to keep, last name first.
fn listed(folder: &Path, keep: fn(&Path) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| keep(path)).collect();
    paths.sort();
    paths.reverse();
    paths
}

fn in_toolkit(root: &Path) -> Vec<PathBuf> {
    ["extras/CUPTI/lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib", "lib64"]
        .iter()
        .flat_map(|folder| cupti_in(&root.join(folder)))
        .collect()
}

/// Toolkits in the usual place, the default one first, then the newest.
fn installed_toolkits() -> Vec<PathBuf> {
    let local = Path::new("/usr/local");
    let mut roots = vec![local.join("cuda")];
    roots.extend(subfolders(local).into_iter().filter(|path| name_of(path).starts_with("cuda-")));
    roots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loaded_cupti_is_the_only_candidate() {
        let maps = "7f00-7f01 r-xp 00000000 08:01 5 /usr/lib/libc.so.6\n\
                    7f02-7f03 r-xp 00000000 08:01 6 /venv/nvidia/cu13/lib/libcupti.so.13\n\
                    7f03-7f04 rw-p 00000000 08:01 6 /venv/nvidia/cu13/lib/libcupti.so.13\n\
                    7f05-7f06 rw-p 00000000 00:00 0 [heap]\n";
        let around = Surroundings { maps: maps.into(), ..Surroundings::default() };
        assert_eq!(around.candidates(), [PathBuf::from("/venv/nvidia/cu13/lib/libcupti.so.13")]);
    }

    #[test]
    fn the_users_word_comes_first() {
        let maps = "7f02-7f03 r-xp 00000000 08:01 6 /x/libcupti.so.13\n".to_string();
        let around = Surroundings { named: Some("/mine/libcupti.so".into()), maps, toolkits: vec![] };
        assert_eq!(around.candidates(), [PathBuf::from("/mine/libcupti.so")]);
    }

    #[test]
    fn python_packages_beside_the_programs_cuda_are_found() {
        let root = tempfile::tempdir().unwrap();
        let site = root.path().join("lib/python3.12/site-packages");
        let cupti = site.join("nvidia/cuda_cupti/lib/libcupti.so.12");
        for file in [
            &cupti,
            &site.join("torch/lib/libtorch_cuda.so"),
            &site.join("nvidia/cublas/lib/libcublas.so.12"),
        ] {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        let maps =
            format!("7f02-7f03 r-xp 0 08:01 6 {}\n", site.join("torch/lib/libtorch_cuda.so").display());
        let around = Surroundings { maps, ..Surroundings::default() };
        assert_eq!(around.candidates().first(), Some(&cupti));
    }

    #[test]
    fn a_toolkit_is_searched() {
        let root = tempfile::tempdir().unwrap();
        let cupti = root.path().join("extras/CUPTI/lib64/libcupti.so.13");
        fs::create_dir_all(cupti.parent().unwrap()).unwrap();
        fs::write(&cupti, "").unwrap();
        let around = Surroundings { toolkits: vec![root.path().into()], ..Surroundings::default() };
        assert_eq!(around.candidates().first(), Some(&cupti));
    }
}
