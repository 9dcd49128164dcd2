//! Texts that the program passes: read in place, cut where they are absurdly long.

use std::ffi::c_char;

use libc::wchar_t;

/// The longest text that is kept.
pub const LONGEST: usize = 4096;

/// Returns the bytes of a C string.
///
/// # Safety
/// `text` must be null or end in NUL and live through `'a`.
pub unsafe fn narrow<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return b"";
    }
    // SAFETY: as the caller promises; nothing beyond the NUL is looked at.
    unsafe {
        let length = libc::strnlen(text, LONGEST);
        std::slice::from_raw_parts(text.cast(), length)
    }
}

/// A wide text as UTF-8, without allocating.
pub struct Wide {
    bytes: [u8; 512],
    length: usize,
}

impl Wide {
    /// # Safety
    /// `text` must be null or end in a wide NUL.
    pub unsafe fn new(text: *const wchar_t) -> Self {
        let mut wide = Self { bytes: [0; 512], length: 0 };
        if text.is_null() {
            return wide;
        }
        for at in 0.. {
            // SAFETY: stops at the NUL.
            let unit = unsafe { *text.add(at) };
            if unit == 0 {
                break;
            }
            let letter = char::from_u32(unit as u32).unwrap_or(char::REPLACEMENT_CHARACTER);
            let Some(place) = wide.bytes.get_mut(wide.length..wide.length + letter.len_utf8()) else {
                break;
            };
            letter.encode_utf8(place);
            wide.length += letter.len_utf8();
        }
        wide
    }

    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_texts_become_utf8() {
        let text: Vec<wchar_t> = "d\u{e9}code \u{1f680}\0".chars().map(|letter| letter as wchar_t).collect();
        // SAFETY: it ends in NUL.
        let wide = unsafe { Wide::new(text.as_ptr()) };
        assert_eq!(wide.as_bytes(), "d\u{e9}code \u{1f680}".as_bytes());
    }

    #[test]
    fn long_and_missing_texts_are_no_trouble() {
        let mut text: Vec<wchar_t> = vec!['\u{e9}' as wchar_t; 2000];
        text.push(0);
        // SAFETY: it ends in NUL.
        let wide = unsafe { Wide::new(text.as_ptr()) };
        assert!(std::str::from_utf8(wide.as_bytes()).is_ok());
        let mut text = vec![b'a'; 2 * LONGEST];
        text.push(0);
        // SAFETY: null is allowed, and the other ends in NUL.
        unsafe {
            assert!(Wide::new(std::ptr::null()).as_bytes().is_empty());
            assert!(narrow(std::ptr::null()).is_empty());
            assert_eq!(narrow(text.as_ptr().cast()).len(), LONGEST);
        }
    }
}
