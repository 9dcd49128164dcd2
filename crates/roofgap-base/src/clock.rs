//! The time of day.

use jiff::Timestamp;
use std::time::{Duration, SystemTime};

/// Returns a duration in nanoseconds.
pub fn ns(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// Returns the time of day; a clock before year -9999 or after year 9999 stands at that end.
pub fn now() -> Timestamp {
    limited(SystemTime::now())
}

fn limited(time: SystemTime) -> Timestamp {
    Timestamp::try_from(time).unwrap_or(if time < SystemTime::UNIX_EPOCH {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_far_off_is_limited() {
        let year_12000 = SystemTime::UNIX_EPOCH + Duration::from_secs(316_000_000_000);
        assert_eq!(limited(year_12000), Timestamp::MAX);
        assert!(limited(year_12000).to_string().starts_with("9999-12-"));
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(400_000_000_000);
        assert_eq!(limited(before), Timestamp::MIN);
        assert_eq!(limited(SystemTime::UNIX_EPOCH), Timestamp::UNIX_EPOCH);
    }
}
