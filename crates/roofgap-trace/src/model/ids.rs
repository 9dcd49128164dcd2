//! Small ids that stand for things in rows.

/// Nanoseconds on the trace's one time base, or a length of time in nanoseconds.
pub type Ns = i64;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $repr:ty) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $repr);

        impl $name {
            /// The position in the table that this id points into.
            #[inline]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}
pub(crate) use id;

id!(
    /// A string in [`super::Names`].
    NameId, u32
);
id!(
    /// A position in `Trace::processes`.
    ProcessId, u32
);
id!(
    /// A position in `Trace::threads`.
    ThreadId, u32
);
id!(
    /// A position in `Trace::devices`.
    DeviceId, u16
);
