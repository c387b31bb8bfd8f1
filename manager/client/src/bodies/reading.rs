//! How parts of documents are read where serde alone would take too much.

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;

/// Reads an object by the names of its fields. Serde's derived code takes a list, too, with the fields
/// in their order.
pub(super) fn object<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    from: D,
) -> Result<T, D::Error> {
    struct Fields<T>(PhantomData<T>);
    impl<'de, T: DeserializeOwned> Visitor<'de> for Fields<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object, with its fields by their names")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map))
        }
    }
    from.deserialize_map(Fields(PhantomData))
}

/// Any document in which no name stands twice in one object: of two, serde takes the last without a
/// word. What it says is read elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unambiguous;

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Document)
    }
}

struct Document;

impl<'de> Visitor<'de> for Document {
    type Value = Unambiguous;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a document")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    fn visit_str<E>(self, _: &str) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    fn visit_unit<E>(self) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Unambiguous, A::Error> {
        while all.next_element::<Unambiguous>()?.is_some() {}
        Ok(Unambiguous)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Unambiguous, A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(Name(name)) = all.next_key()? {
            all.next_value::<Unambiguous>()?;
            if let Some(name) = seen.replace(name) {
                return Err(A::Error::custom(format_args!("{name:?} stands there twice")));
            }
        }
        Ok(Unambiguous)
    }
}

/// A field's name; YAML has numbers and flags as names, too.
struct Name(String);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Any;
        impl Visitor<'_> for Any {
            type Value = String;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_str<E>(self, name: &str) -> Result<String, E> {
                Ok(name.to_owned())
            }

            fn visit_u64<E>(self, name: u64) -> Result<String, E> {
                Ok(name.to_string())
            }

            fn visit_i64<E>(self, name: i64) -> Result<String, E> {
                Ok(name.to_string())
            }

            fn visit_bool<E>(self, name: bool) -> Result<String, E> {
                Ok(name.to_string())
            }
        }
        from.deserialize_any(Any).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_stands_twice_is_named() {
        let read = serde_json::from_str::<Unambiguous>;
        let whole = r#"{"a": [1, -2, 1.5, null, true, {"a": "x"}], "b": {"a": {}}}"#;
        assert_eq!(read(whole).unwrap(), Unambiguous);
        let twice = read(r#"{"a": {"box1": 1, "box2": 2, "box1": 3}}"#).unwrap_err();
        assert!(twice.to_string().contains("\"box1\" stands there twice at line 1"), "{twice}");
    }

    #[test]
    fn a_list_is_no_object() {
        #[derive(Debug, Default, Deserialize)]
        struct Inner {
            #[serde(default)]
            _a: u8,
        }
        #[derive(Debug, Deserialize)]
        struct Outer {
            #[serde(default, deserialize_with = "object")]
            _inner: Inner,
        }
        let read = serde_json::from_str::<Outer>;
        assert!(read("{}").is_ok() && read(r#"{"_inner": {"_a": 1}}"#).is_ok());
        for wrong in [r#"{"_inner": []}"#, r#"{"_inner": [1]}"#] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains("an object, with its fields by their names"), "{error}");
        }
    }
}
