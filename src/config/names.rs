//! Enums whose values have names in the format.

/// A name for each value of an enum, as the format writes it.
macro_rules! names {
    ($type:ident { $($variant:ident = $name:literal),+ $(,)? }) => {
        impl $type {
            /// Every name that the format knows.
            pub(super) const NAMES: &[&str] = &[$($name),+];

            /// The value's name in the configuration format.
            pub fn name(self) -> &'static str {
                match self { $($type::$variant => $name),+ }
            }

            pub(super) fn parse(name: &str) -> Option<$type> {
                match name { $($name => Some($type::$variant),)+ _ => None }
            }
        }
    };
}

pub(super) use names;
