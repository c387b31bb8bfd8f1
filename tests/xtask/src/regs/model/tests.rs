use super::*;

fn field(changes: &str) -> String {
    format!(
        r#"{{"name": "f", "description": "D.", "low": 0, "high": 0, "software": "rw",
            "hardware": "r"{changes}}}"#
    )
}

fn read(fields: &[String]) -> Result<Model> {
    Model::read(&format!(
        r#"{{"maps": [], "enums": [], "registers": [], "types": [{{
            "name": "t", "description": "D.", "size": 4, "items": [{{
                "name": "r", "description": "D.", "offset": 0, "width": 32,
                "fields": [{}]}}]}}]}}"#,
        fields.join(",")
    ))
}

fn register(model: &Model) -> &Register {
    match &model.types[0].items[0].content {
        Content::Register(register) => register,
        Content::Block { .. } => panic!("it is a register"),
    }
}

#[test]
fn access_follows_from_the_fields() {
    for (changes, access) in [
        (r#", "reset": 0"#, Access::ReadWrite),
        (r#", "reset": 0, "swmod": true"#, Access::ReadWriteEffect),
        (r#", "reset": 0, "onwrite": "woclr""#, Access::ReadWriteEffect),
    ] {
        let model = read(&[field(changes)]).unwrap();
        assert_eq!(register(&model).access(), access, "{changes}");
    }
    let only = |software: &str| {
        let text = field(r#", "reset": 0"#).replace(r#""rw""#, &format!(r#""{software}""#));
        register(&read(&[text]).unwrap()).access()
    };
    assert_eq!(only("r"), Access::ReadOnly);
    assert_eq!(only("w"), Access::WriteOnly);
}

#[test]
fn broken_rules_are_named() {
    let plain = field(r#", "reset": 0"#);
    for (fields, says) in [
        (vec![field("")], "t.r.f needs a reset value"),
        (vec![field(r#", "reset": 0, "from_board": true"#)], "needs a reset value"),
        (vec![field(r#", "reset": 2"#)], "does not fit"),
        (vec![plain.replace("D.", "")], "t.r.f needs a description"),
        (vec![plain.clone(), field(r#", "reset": 0, "onwrite": "woclr""#)], "mixes bits"),
        (vec![plain.clone(), plain.replace(r#""rw""#, r#""w""#)], "mixes write-only"),
    ] {
        let error = read(&fields).err().expect("a rule is broken").to_string();
        assert!(error.contains(says), "{error}");
    }
    assert!(read(&[plain]).is_ok());
}

#[test]
fn masks_and_reset_values() {
    let wide = field(r#", "reset": 5"#).replace(r#""low": 0, "high": 0"#, r#""low": 4, "high": 7"#);
    let all = field(r#", "reset": 4294967295"#).replace(r#""high": 0"#, r#""high": 31"#);
    let model = read(&[wide]).unwrap();
    let register = register(&model);
    assert_eq!((register.fields[0].mask(), register.reset()), (0xf0, 0x50));
    let model = read(&[all]).unwrap();
    assert_eq!(self::register(&model).fields[0].mask(), u32::MAX);
}

#[test]
fn addresses_that_are_not_the_compilers_are_found() {
    let json = |address: u32, more: &str| {
        format!(
            r#"{{"enums": [], "maps": [{{"name": "m", "description": "D.", "size": 32, "items": [
                {{"name": "b", "description": "D.", "offset": 8, "type": "t",
                  "array": {{"count": 2, "stride": 12}}}}]}}],
              "types": [{{"name": "t", "description": "D.", "size": 4, "items": [
                {{"name": "r", "description": "D.", "offset": 4, "width": 32, "fields": []}}]}}],
              "registers": [
                {{"map": "m", "path": "b[0].r", "address": 12}},{more}
                {{"map": "m", "path": "b[1].r", "address": {address}}}]}}"#
        )
    };
    assert!(Model::read(&json(24, "")).is_ok());
    let error = Model::read(&json(28, "")).err().expect("wrong").to_string();
    assert!(error.contains("m.b[1].r comes to 0x18"), "{error}");
    let more = r#"{"map": "m", "path": "c", "address": 0},"#;
    let error = Model::read(&json(24, more)).err().expect("wrong").to_string();
    assert!(error.contains("m.c is in no block"), "{error}");
}
