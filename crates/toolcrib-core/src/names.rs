//! Names of enum variants, for configuration, REST and stored events.

/// Gives the variants of an enum their names: `ALL` in the order of the list, `as_str` and `parse`.
///
/// ```
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// pub enum Mode {
///     Auto,
///     Full,
/// }
/// toolcrib_core::name_variants!(Mode { Auto => "auto", Full => "full" });
///
/// assert_eq!(Mode::parse("full"), Some(Mode::Full));
/// assert_eq!(Mode::ALL.map(Mode::as_str), ["auto", "full"]);
/// ```
#[macro_export]
macro_rules! name_variants {
    ($kind:ident { $($variant:ident => $name:literal),+ $(,)? }) => {
        impl $kind {
            /// All variants, in the order in which messages list them.
            pub const ALL: [$kind; [$($name),+].len()] = [$($kind::$variant),+];

            /// Returns the name of the variant.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($kind::$variant => $name),+
                }
            }

            /// Returns the variant with this name.
            pub fn parse(name: &str) -> Option<$kind> {
                $kind::ALL.into_iter().find(|variant| variant.as_str() == name)
            }
        }
    };
}
