//! Objects of responses, written to JSON field by field: no `serde_json::Value` is built first, because lists have
//! hundreds of them.

/// Declares a view: a struct that borrows what it shows, and the fields of its object in their order, each a name and an
/// expression. One with `[optional]` after its name is left out if its expression is `None`.
macro_rules! view {
    ($(#[$attribute:meta])* $visible:vis $View:ident($shown:ident: &$Shown:ty $(, $other:ident: $Other:ty)*) {
        $($name:literal $([$optional:ident])?: $value:expr,)*
    }) => {
        $(#[$attribute])*
        #[derive(Debug)]
        $visible struct $View<'a>(pub &'a $Shown $(, pub $Other)*);

        impl ::serde::Serialize for $View<'_> {
            fn serialize<S: ::serde::Serializer>(&self, to: S) -> ::std::result::Result<S::Ok, S::Error> {
                let Self($shown $(, $other)*) = self;
                let mut object = to.serialize_map(None)?;
                $($crate::api::view::view!(@field object, $name $([$optional])?, $value);)*
                ::serde::ser::SerializeMap::end(object)
            }
        }
    };
    (@field $object:ident, $name:literal, $value:expr) => {
        ::serde::ser::SerializeMap::serialize_entry(&mut $object, $name, &$value)?
    };
    (@field $object:ident, $name:literal [optional], $value:expr) => {
        if let Some(value) = $value {
            ::serde::ser::SerializeMap::serialize_entry(&mut $object, $name, &value)?;
        }
    };
}
pub(crate) use view;
