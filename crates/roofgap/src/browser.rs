//! Opens a page in the user's browser.

use roofgap_base::error::Error;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Program that opens a file in the application the user has chosen for it.
const OPENER: &str = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };

/// Variables of which one is set where a browser can show a page.
const DISPLAYS: [&str; 4] = ["DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME", "BROWSER"];

/// Time in which the opener reports an error. Some openers end with the browser only.
const PATIENCE: Duration = Duration::from_secs(2);

/// Opens a page. The browser outlives this process.
pub fn open(page: &Path) -> Result<(), Error> {
    let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if !cfg!(target_os = "macos") && !DISPLAYS.iter().any(is_set) {
        let why = "no browser was opened, because this session has no display; open the page yourself";
        return Err(Error::new(why));
    }
    let start = |error: std::io::Error| {
        let why = format!("because {OPENER} cannot be started: {error}");
        Error::new(format!("no browser was opened, {why}; open the page yourself"))
    };
    let page: PathBuf = page.canonicalize().map_err(start)?;
    let mut opener = Command::new(OPENER)
        .arg(page)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Ctrl-C in this terminal does not reach the browser.
        .process_group(0)
        .spawn()
        .map_err(start)?;
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        match opener.try_wait().map_err(start)? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => {
                let why = format!("{OPENER} ended with {status}");
                return Err(Error::new(format!("no browser was opened: {why}; open the page yourself")));
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    Ok(())
}
