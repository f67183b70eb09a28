//! Gives the values of an enum their names in the configuration format.

/// Implements `name` and `parse` for an enum, from the name of each value in the configuration format.
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
