//! Conditions that selectors cannot say, as expressions of the Common Expression Language
//! (<https://cel.dev>), through the `cel` crate.
//!
//! Nobody waits for an expression without a bound: its text is short, it nests to a small depth,
//! and it has no macros that go through lists, so that what it costs grows with its length.

use crate::types::topology::AttributeValue;
use crate::types::wishes::MAX_EXPRESSION;
use cel::common::ast::operators::{CONDITIONAL, LOGICAL_AND, LOGICAL_NOT, LOGICAL_OR};
use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use cel::objects::{Key, Map};
use cel::parser::Parser;
use cel::{Context, Env, ExecutionError, Value};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// Deepest nesting of an expression.
const MAX_DEPTH: u16 = 24;

/// Stack of the thread that reads an expression: the parser descends through a dozen functions for
/// each level of nesting, and each may have a frame of tens of KiB where nothing is optimized.
const PARSER_STACK: usize = 64 << 20;

/// What is the same for every expression.
static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// What an expression goes by, and so how often it has to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// By what devices of one profile have in common.
    Profile,
    /// By the box, too.
    Box,
    /// By the slot, too.
    Slot,
}

/// The variables, and what each goes by.
pub(super) const VARIABLES: [(&str, Level); 14] = [
    ("attributes", Level::Profile),
    ("box", Level::Box),
    ("class", Level::Profile),
    ("device", Level::Profile),
    ("firmware", Level::Profile),
    ("functions", Level::Profile),
    ("kind", Level::Box),
    ("memory", Level::Profile),
    ("model", Level::Profile),
    ("rack", Level::Box),
    ("serial", Level::Slot),
    ("site", Level::Box),
    ("slot", Level::Slot),
    ("vendor", Level::Profile),
];

/// An expression that was read.
#[derive(Debug)]
pub(super) struct Parsed {
    root: IdedExpr,
    variables: Vec<(&'static str, Level)>,
}

/// An expression that can be asked.
pub(super) struct Expression {
    parsed: Arc<Parsed>,
    /// Used again for every device: only the values change.
    context: RefCell<Context<'static, 'static>>,
}

impl Parsed {
    /// Reads an expression, which takes a thread of its own: nobody else is to wait meanwhile.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and where, for a person.
    pub(super) fn read(text: &str) -> Result<Arc<Self>, String> {
        if text.len() > MAX_EXPRESSION {
            return Err(format!("an expression has at most {MAX_EXPRESSION} bytes"));
        }
        let source = text.to_owned();
        let parser = std::thread::Builder::new().name("cel".into()).stack_size(PARSER_STACK);
        let read = parser
            .spawn(move || Parser::new().max_recursion_depth(MAX_DEPTH).parse(&source))
            .map_err(|error| format!("no thread to read it: {error}"))?
            .join();
        // The parser's own panics are as good as its errors: the text is nothing it can read.
        let root = read.map_err(|_| "the parser cannot read it".to_owned())?.map_err(|errors| {
            let first = errors.errors.first();
            first.map_or_else(
                || "it does not read".to_owned(),
                |e| match e.msg.contains("Recursion limit") {
                    true => format!("it nests deeper than {MAX_DEPTH}"),
                    false => format!("{}, at line {}, character {}", e.msg, e.pos.0, e.pos.1 + 1),
                },
            )
        })?;
        check(&root)?;
        let mut variables = Vec::new();
        for name in root.references().variables() {
            match VARIABLES.iter().find(|(known, _)| *known == name) {
                Some(known) => variables.push(*known),
                None => {
                    let all: Vec<&str> = VARIABLES.iter().map(|(known, _)| *known).collect();
                    let at = text.find(name).map_or(1, |at| text[..at].chars().count() + 1);
                    return Err(format!(
                        "there is no {name:?}, at character {at}; there are {}",
                        all.join(", ")
                    ));
                }
            }
        }
        let parsed = Arc::new(Self { root, variables });
        Expression::new(parsed.clone()).try_sample()?;
        Ok(parsed)
    }

    /// What it goes by.
    pub(super) fn level(&self) -> Level {
        let levels = self.variables.iter().map(|(_, level)| *level);
        levels.max().unwrap_or(Level::Profile)
    }
}

impl Expression {
    /// Makes one ready to be asked.
    pub(super) fn new(parsed: Arc<Parsed>) -> Self {
        let context = RefCell::new(Context::with_env(ENVIRONMENT.clone()));
        Self { parsed, context }
    }

    /// What it goes by.
    pub(super) fn level(&self) -> Level {
        self.parsed.level()
    }

    /// Whether it says true of a device. One that it says nothing of, as that lacks what it asks for,
    /// is none that is meant.
    pub(super) fn holds(&self, variable: impl Fn(&str) -> Value) -> bool {
        matches!(self.ask(variable), Ok(Value::Bool(true)))
    }

    fn ask(&self, variable: impl Fn(&str) -> Value) -> Result<Value, ExecutionError> {
        self.set(variable);
        self.context.borrow().resolve(&self.parsed.root)
    }

    fn set(&self, variable: impl Fn(&str) -> Value) {
        let mut context = self.context.borrow_mut();
        for (name, _) in &self.parsed.variables {
            context.add_variable_from_value(*name, variable(name));
        }
    }

    /// Asks it of a device that has everything, so that what could never say true or false of any
    /// is an error and not a pool where nothing fits. Each of its conditions by itself: whether one is
    /// come to depends on those before it.
    fn try_sample(&self) -> Result<(), String> {
        self.set(sample);
        self.try_condition(&self.parsed.root)
    }

    fn try_condition(&self, condition: &IdedExpr) -> Result<(), String> {
        if let Expr::Call(call) = &condition.expr
            && [LOGICAL_AND, LOGICAL_OR, LOGICAL_NOT, CONDITIONAL]
                .contains(&call.func_name.as_str())
        {
            return call.args.iter().try_for_each(|part| self.try_condition(part));
        }
        // What it is about then depends on the device.
        let by_attributes = condition.references().variables().contains(&"attributes");
        match self.context.borrow().resolve(condition) {
            Err(ExecutionError::UndeclaredReference(name)) => {
                Err(format!("there is no function {name:?}"))
            }
            Ok(Value::Bool(_)) => Ok(()),
            _ if by_attributes => Ok(()),
            Ok(other) => Err(format!("it is {:?}, not true or false", other.type_of())),
            Err(error) if goes_by_values(&error) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Whether an expression that ended so may say something of other devices of the same kinds of values.
fn goes_by_values(error: &ExecutionError) -> bool {
    use ExecutionError::*;
    matches!(
        error,
        NoSuchKey(_)
            | FunctionError { .. }
            | DivisionByZero(_)
            | RemainderByZero(_)
            | Overflow(..)
            | IndexOutOfBounds(_)
    )
}

/// A value of the kind that devices have under a name, if they have one.
fn sample(name: &str) -> Value {
    match name {
        "attributes" => attributes([]),
        "class" | "device" | "functions" | "memory" | "slot" | "vendor" => Value::Int(1),
        _ => Value::String(Arc::new("1".into())),
    }
}

/// Refuses what costs more than its length.
fn check(expression: &IdedExpr) -> Result<(), String> {
    let all = |parts: &[IdedExpr]| parts.iter().try_for_each(check);
    match &expression.expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Ok(()),
        Expr::Call(call) => {
            call.target.iter().try_for_each(|target| check(target))?;
            all(&call.args)
        }
        Expr::Comprehension(_) => {
            Err("all, exists, exists_one, map and filter are not allowed".into())
        }
        Expr::List(list) => all(&list.elements),
        Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => check(&entry.key).and_then(|()| check(&entry.value)),
            EntryExpr::StructField(field) => check(&field.value),
        }),
        Expr::Select(select) => check(&select.operand),
        Expr::Struct(_) => Err("structures are not allowed".into()),
    }
}

/// Extra attributes as CEL sees them.
pub(super) fn attributes<'a>(
    all: impl IntoIterator<Item = (&'a String, &'a AttributeValue)>,
) -> Value {
    let entries = all.into_iter().map(|(name, value)| {
        let value = match value {
            AttributeValue::Flag(flag) => Value::Bool(*flag),
            AttributeValue::Number(number) => Value::Int(*number),
            AttributeValue::Text(text) => Value::String(Arc::new(text.clone())),
        };
        (Key::String(Arc::new(name.clone())), value)
    });
    Value::Map(Map { map: Arc::new(entries.collect::<HashMap<_, _>>()) })
}
