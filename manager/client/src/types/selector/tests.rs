use super::*;
use proptest::prelude::*;

fn read(text: &str) -> Selector {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn holds(text: &str, held: Option<Held<'_>>) -> bool {
    read(text).conditions()[0].holds(held)
}

#[test]
fn a_text_has_conditions_with_commas_between_them() {
    let selector = read(" model = h200|\"RTX 6000\" , memory>=80G,rack!=r3,arch,!faulty ");
    assert_eq!(selector.to_string(), "model=h200|\"RTX 6000\",memory>=80G,rack!=r3,arch,!faulty");
    assert_eq!(selector.conditions().len(), 5);
    assert_eq!(selector.conditions()[0].values, ["h200", "RTX 6000"]);
    assert!(read("").is_empty());
    assert_eq!(read("vendor==10de"), read("vendor=10de"));
}

#[test]
fn errors_say_what_is_wrong_and_where() {
    for (text, why) in [
        (
            "model=",
            "a value should be here (with other characters than letters, digits and . _ - : / + in \"quotes\"), not the end, at character 7",
        ),
        ("model=a,", "the name of an attribute should be here, not the end, at character 9"),
        ("model=a b=c", "a comma or the end should be here, not 'b', at character 9"),
        ("=a", "the name of an attribute should be here, not '=', at character 1"),
        ("model=\"a", "the quote is not closed, at character 7"),
        ("!model=a", "a condition with ! in front has no value, not '=', at character 7"),
        ("model>3", "model has no order; use = or !=, at character 1"),
        ("a=1,memory>=much", "memory: \"much\" is no number of bytes, such as 80G, at character 5"),
        ("vendor=nvidia", "vendor: \"nvidia\" is no hexadecimal number, at character 1"),
        ("slot=x", "slot: \"x\" is no whole number, at character 1"),
        ("lot>=x", "lot: \"x\" is no number, and only numbers have an order, at character 1"),
        ("lot>=1|2", "lot: one value, not 2, at character 1"),
        (
            "1lot=2",
            "\"1lot\" is no attribute: small letters, digits, _ and -, a letter first, at character 1",
        ),
        ("model=\"\"", "model: a value has 1 to 128 bytes in one line, at character 1"),
    ] {
        assert_eq!(text.parse::<Selector>().unwrap_err().to_string(), why, "{text}");
    }
    let long = format!("model={}", "x".repeat(MAX_SELECTOR));
    assert!(long.parse::<Selector>().is_err());
    assert!(vec!["a"; MAX_CONDITIONS + 1].join(",").parse::<Selector>().is_err());
}

#[test]
fn json_has_a_text_or_a_list() {
    let list =
        r#"[{"attribute":"memory","is":">=","values":["80G"]},{"attribute":"arch","is":"has"}]"#;
    let selector: Selector = serde_json::from_str(list).unwrap();
    assert_eq!(selector, read("memory>=80G,arch"));
    assert_eq!(serde_json::to_string(&selector).unwrap(), "\"memory>=80G,arch\"");
    for wrong in [
        r#"[{"attribute":"memory","is":">="}]"#,
        r#"[{"attribute":"model","is":"=","values":[]}]"#,
        r#"[{"attribute":"a","is":"has","values":["1"]}]"#,
        r#"[{"attribute":"a","is":"~","values":["1"]}]"#,
        "\"model=\"",
        "7",
    ] {
        assert!(serde_json::from_str::<Selector>(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn values_are_compared_by_their_kind() {
    let text = |text| Some(Held::Text(text));
    let number = |number| Some(Held::Number(number));
    assert!(holds("model=H200", text("h200")) && !holds("model!=H200", text("h200")));
    assert!(holds("model=a|b", text("b")) && holds("model!=a|b", text("c")));
    assert!(holds("vendor=0x10de", number(0x10de)) && holds("vendor=10DE", number(0x10de)));
    assert!(holds("memory>=80G", number(80_000_000_000)));
    assert!(!holds("memory>80G", number(80_000_000_000)));
    assert!(holds("memory<=80G", number(80_000_000_000)));
    assert!(!holds("memory<80G", number(80_000_000_000)));
    let flag = AttributeValue::Flag(true);
    assert!(holds("ecc=true", Some(Held::Extra(&flag))));
    assert!(holds("ecc=True", Some(Held::Extra(&flag))));
    assert!(!holds("ecc!=TRUE", Some(Held::Extra(&flag))));
    assert!(
        !holds("ecc=false", Some(Held::Extra(&flag))) && !holds("ecc>0", Some(Held::Extra(&flag)))
    );
    let seven = AttributeValue::Number(7);
    assert!(
        holds("lot>=7", Some(Held::Extra(&seven))) && holds("lot=7", Some(Held::Extra(&seven)))
    );
    assert!(holds("lot>-1", Some(Held::Extra(&seven))));
    let speed = AttributeValue::Text("3G".into());
    assert!(holds("speed>=2500M", Some(Held::Extra(&speed))));
    assert!(holds("speed=3000M", Some(Held::Extra(&speed))));
}

#[test]
fn what_a_device_lacks_meets_only_a_no() {
    for (text, met) in [
        ("firmware=1", false),
        ("firmware!=1", true),
        ("memory>=1", false),
        ("memory<1", false),
        ("firmware", false),
        ("!firmware", true),
    ] {
        assert_eq!(holds(text, None), met, "{text}");
    }
}

fn any_condition() -> impl Strategy<Value = Condition> {
    let value = prop_oneof!["[a-zA-Z0-9._:/+-]{1,10}", "[^\\p{C}]{1,12}"];
    let name = prop_oneof![Just("model".to_owned()), "x[a-z0-9_-]{0,8}"];
    prop_oneof![
        (name.clone(), prop::collection::vec(value, 1..4), any::<bool>()).prop_map(
            |(attribute, values, is)| {
                let is = if is { Comparison::Is } else { Comparison::IsNot };
                Condition { attribute, is, values }
            }
        ),
        (name, any::<bool>()).prop_map(|(attribute, has)| {
            let is = if has { Comparison::Has } else { Comparison::Lacks };
            Condition { attribute, is, values: Vec::new() }
        }),
        (0..1_000_000_u64, 0..4_u8).prop_map(|(number, is)| {
            let all =
                [Comparison::AtLeast, Comparison::Above, Comparison::AtMost, Comparison::Below];
            let values = vec![number.to_string()];
            Condition { attribute: "memory".into(), is: all[usize::from(is)], values }
        }),
    ]
}

proptest! {
    /// What is written reads as the same.
    #[test]
    fn selectors_survive_their_text(conditions in prop::collection::vec(any_condition(), 0..6)) {
        let selector = Selector::new(conditions).unwrap();
        let text = selector.to_string();
        prop_assume!(text.len() <= MAX_SELECTOR);
        prop_assert_eq!(text.parse::<Selector>(), Ok(selector));
    }

    /// No text makes the parser panic, and where it says that an error is, there is a character
    /// or the end.
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,60}") {
        if let Err(error) = text.parse::<Selector>() {
            prop_assert!((1..=text.chars().count() + 1).contains(&error.at), "{}", error);
        }
    }

    /// The same, of texts that are nearly selectors.
    #[test]
    fn nearly_selectors_are_read_or_refused(text in "[a-c!=<>|,\" \\\\G0-9]{0,24}") {
        if let Err(error) = text.parse::<Selector>() {
            prop_assert!((1..=text.chars().count() + 1).contains(&error.at), "{}", error);
        }
    }
}
