//! The table as Rust.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Hook;
use super::headers::Form;

/// The table's source, before rustfmt.
pub(super) fn table(hooks: &[Hook]) -> String {
    let mut out = String::from(
        "//! The hooked functions, in the order of their symbols.\n\
         // Made from NVIDIA's headers by `cargo xtask cuda-hooks`: change that, not this.\n\n\
         use super::{Class::*, Hook, Role::*, hook, p};\n\n\
         /// Every hooked form of a function, in the order of symbols.\n",
    );
    writeln!(out, "pub static HOOKS: [Hook; {}] = [", hooks.len()).expect("a string takes all");
    for Hook { form, symbol, class, parameters } in hooks {
        let parameters: Vec<String> =
            parameters.iter().map(|(role, width)| format!("p({role}, {width})")).collect();
        writeln!(
            out,
            "hook({:?}, {}, {}, {symbol:?}, {class}, &[{}]),",
            form.name,
            form.since,
            !form.per_thread.is_empty(),
            parameters.join(", ")
        )
        .expect("a string takes all");
    }
    out += "];\n\n\
            /// Gives a macro the number and the symbol of every row: `$then! { 0 cuCtxDestroy … }`.\n\
            #[macro_export]\n\
            macro_rules! each_hook {\n($then:ident) => {\n$then! {\n";
    for (number, Hook { symbol, .. }) in hooks.iter().enumerate() {
        writeln!(out, "            {number} {symbol}").expect("a string takes all");
    }
    out + "}\n};\n}\n"
}

/// The source of the stand-in driver's names, before rustfmt: every form of every function.
pub(super) fn names(symbols: &BTreeMap<Form, String>) -> String {
    let mut out = String::from(
        "//! Every form of every function of the driver.\n\
         // Made from NVIDIA's headers by `cargo xtask cuda-hooks`: change that, not this.\n\n\
         use super::{Form, form, missing};\n\n\
         /// Every form of every function, by names and versions.\n",
    );
    writeln!(out, "pub(super) static FORMS: [Form; {}] = [", symbols.len())
        .expect("a string takes all");
    for (index, (form, symbol)) in symbols.iter().enumerate() {
        let per_thread = !form.per_thread.is_empty();
        writeln!(
            out,
            "form({:?}, {}, {per_thread}, {symbol:?}, missing::<{index}>),",
            form.name, form.since
        )
        .expect("a string takes all");
    }
    out + "];\n"
}
