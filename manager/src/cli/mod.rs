//! The command line: what was said ([`args`]) is done here, with text made by `render`.

pub mod args;
mod backup;
pub mod erasures;
pub mod failure;
mod firmware;
mod lender;
mod operations;
mod output;
mod papers;
mod placement;
mod problems;
mod progress;
mod record;
mod render;
mod store;

pub use failure::Failure;
pub use output::Form;

use output::Output;

use crate::config::{Config, LogFormat};
use crate::types::{
    AllocationId, AuditRecord, BindingId, OperationId, OperationRecord, Role, SlotAddress,
};
use args::{Args, Command};
use manager_client::Client;
use manager_client::bodies::{LogLevelBody, LogLevelName, SamplingBody};
use manager_client::views::{
    AllocationView, BindingView, BoxView, HostView, List, NodeView, RecordingView, SlotView,
};
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Does what was said.
///
/// # Errors
///
/// Why it could not be done.
pub fn run(args: Args) -> Result<(), Failure> {
    let out = Output { form: args.form(), watch: args.command.watches() };
    let client = Client::new(&args.server).acting_as(&actor());
    match args.command {
        Command::Serve(serve) => {
            let config = Config::from_said(serve.into())?;
            start_log(&config)?;
            Ok(crate::serve::run_until_signal(config)?)
        }
        Command::Allocate(allocate) => operations::allocate(&client, &out, allocate),
        Command::Release(release) => operations::release(&client, &out, release),
        Command::Lender(command) => lender::lender(&client, &out, command),
        Command::List(list) => pool(&client, &out, &list),
        Command::Show { what, .. } => show(&client, &out, &what),
        Command::Allocations(_) => {
            out.get::<List<AllocationView>>(&client, "/v1/allocations", render::allocations)
        }
        Command::Nodes(_) => out.get::<List<NodeView>>(&client, "/v1/nodes", render::nodes),
        Command::Tables(which) => tables(&client, &out, &which),
        Command::Operations { running, .. } => {
            let path = format!("/v1/operations?running={running}");
            out.get::<List<OperationRecord>>(&client, &path, render::operations)
        }
        Command::Cancel { operation, no_wait } => {
            operations::cancel(&client, &out, operation, no_wait)
        }
        Command::Story { operation } => operations::story(&client, &out, operation),
        Command::Events(which) => events(&client, &out, &which),
        Command::Counters { node } => {
            out.get(&client, &format!("/v1/nodes/{node}/counters"), render::counters)
        }
        Command::LogLevel { node, level } => {
            let body = LogLevelBody { level };
            client.put(&format!("/v1/nodes/{node}/log-level"), &body)?;
            out.print(&serde_json::json!({ "node": node, "level": level }), |_| {
                let of_card = match level {
                    LogLevelName::Trace => {
                        "; where it is a card, to debug: cards have no lines below that"
                    }
                    _ => "",
                };
                format!("{node}: log level set{of_card}")
            })
        }
        Command::Stamps(which) => stamps(&client, &out, &which),
        Command::Record(which) => record::record(&client, &out, which),
        Command::Recordings => {
            out.get::<List<RecordingView>>(&client, "/v1/recordings", render::recordings)
        }
        Command::Fetch(which) => record::fetch(&client, &out, &which),
        Command::Latency(which) => latency(&client, &out, &which),
        Command::Inventory(which) => placement::inventory(&client, &out, &which),
        Command::Firmware(which) => firmware::firmware(&client, &out, which),
        Command::Erasures => erasures::list(&client, &out),
        Command::Erase(erase) => erasures::erase(&client, &out, erase),
        Command::Recover { slot } => {
            let path = format!("/v1/boxes/{}/slots/{}/recover", slot.box_name(), slot.slot());
            let slot: SlotView = client.post(&path, &serde_json::json!({}), None)?;
            out.print(&slot, render::slot)
        }
        Command::Audit(which) => audit(&client, &out, &which),
        Command::Backup { out: to } => backup::backup(&client, &out, &to),
        Command::Completions { shell } => papers::completions(shell),
        Command::Man { out: folder } => papers::man(&folder),
        Command::Restore { from, store } => backup::restore(&out, &from, &store),
        Command::Store(args::StoreFile::Check { repair, store }) => {
            store::check(&out, &store, repair)
        }
        Command::Problems { code } => problems::problems(&out, code),
        Command::Openapi => {
            let description = crate::api::description();
            let text = description.to_pretty_json().expect("it is JSON");
            write_line(&text)
        }
    }
}

/// Who we say that we are, for the manager's audit log: user and machine.
fn actor() -> String {
    let user = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
    let user = user.filter(|user| !user.is_empty()).unwrap_or_else(|| "somebody".into());
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let machine = if machine.trim().is_empty() { "somewhere" } else { machine.trim() };
    let whole = format!("{user}@{machine}");
    whole.chars().filter(|c| c.is_ascii_graphic()).take(128).collect()
}

fn audit(client: &Client, out: &Output, which: &args::Audit) -> Result<(), Failure> {
    let query = query(&[
        ("limit", Some(which.limit.to_string())),
        ("actor", which.actor.clone()),
        ("path", which.path.clone()),
        ("operation", which.operation.map(|id| id.to_string())),
        ("refused", which.refused.then(|| "true".to_owned())),
    ]);
    out.get::<List<AuditRecord>>(client, &format!("/v1/audit{query}"), render::audit)
}

/// Prints a line to standard error. That nobody reads it is no reason to end otherwise.
macro_rules! complain {
    ($($what:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($what)*);
    }};
}
use complain;

/// Prints a line. A reader that has seen enough (`| head`) is no error.
fn write_line(text: &str) -> Result<(), Failure> {
    next_line(text).map(|_| ())
}

/// Prints one of many lines; says whether anybody still reads them.
fn next_line(text: &str) -> Result<bool, Failure> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        result => Ok(result.map(|()| true)?),
    }
}

/// A word of a log filter that is no level would be taken for the name of a part of the program, and
/// nothing else would be logged.
fn check_log(filter: &str) -> Result<(), Failure> {
    let is_level = |word: &str| word.parse::<tracing::level_filters::LevelFilter>().is_ok();
    let mut words = filter.split(',').map(str::trim).filter(|word| !word.contains(['=', '[', ':']));
    match words.find(|word| !is_level(word)) {
        None => Ok(()),
        Some(word) => Err(Failure::Argument(format!(
            "log filter {filter:?}: {word:?} is no level; it is one of off, error, warn, info, debug and \
             trace, or levels of parts, such as info,manager::control=debug"
        ))),
    }
}

/// Whether what is logged is JSON: then the line that says why the manager ended is, too.
static LOG_IS_JSON: AtomicBool = AtomicBool::new(false);

fn start_log(config: &Config) -> Result<(), Failure> {
    LOG_IS_JSON.store(config.log_format == LogFormat::Json, Ordering::Relaxed);
    check_log(&config.log)?;
    let filter = tracing_subscriber::EnvFilter::try_new(&config.log).map_err(|error| {
        Failure::Argument(format!("log filter {:?} is not valid: {error}", config.log))
    })?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        // A standard error that cannot be written (full disk, reader gone) is no reason to end.
        .log_internal_errors(false)
        .with_writer(io::stderr);
    match config.log_format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}

/// One piece of a query; values are percent-encoded.
fn query(parts: &[(&str, Option<String>)]) -> String {
    let mut text = String::new();
    for (key, value) in parts {
        let Some(value) = value else { continue };
        text.push(if text.is_empty() { '?' } else { '&' });
        text.push_str(key);
        text.push('=');
        for byte in value.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    text.push(byte.into());
                }
                other => text.push_str(&format!("%{other:02X}")),
            }
        }
    }
    text
}

fn pool(client: &Client, out: &Output, list: &args::List) -> Result<(), Failure> {
    let status = list.free.then_some("free").or(list.used.then_some("used"));
    let query = query(&[
        ("status", status.map(str::to_owned)),
        // What is in a box that is away cannot be lent.
        ("connected", list.free.then(|| "true".to_owned())),
        ("model", list.model.clone()),
        ("box", list.box_name.as_ref().map(ToString::to_string)),
        ("host", list.host.as_ref().map(ToString::to_string)),
    ]);
    out.get::<List<SlotView>>(client, &format!("/v1/slots{query}"), render::slots)
}

fn show(client: &Client, out: &Output, what: &str) -> Result<(), Failure> {
    if let Ok(slot) = what.parse::<SlotAddress>() {
        let path = format!("/v1/boxes/{}/slots/{}", slot.box_name(), slot.slot());
        return out.get::<SlotView>(client, &path, render::slot);
    }
    if let Ok(id) = what.parse::<AllocationId>() {
        return out.get::<AllocationView>(
            client,
            &format!("/v1/allocations/{id}"),
            render::allocation,
        );
    }
    if let Ok(id) = what.parse::<BindingId>() {
        return out.get::<BindingView>(client, &format!("/v1/bindings/{id}"), render::binding);
    }
    if let Ok(id) = what.parse::<OperationId>() {
        return out.get::<OperationRecord>(
            client,
            &format!("/v1/operations/{id}"),
            render::operation,
        );
    }
    let name: crate::types::NodeName = what.parse().map_err(|error| {
        Failure::Argument(format!("{error}; show takes a name, BOX/SLOT, alloc-N, bind-N or op-N"))
    })?;
    let node: NodeView = client.get(&format!("/v1/nodes/{name}"))?;
    match node.role {
        Role::Box => out.get::<BoxView>(client, &format!("/v1/boxes/{name}"), render::one_box),
        Role::Host => out.get::<HostView>(client, &format!("/v1/hosts/{name}"), render::host),
    }
}

fn tables(client: &Client, out: &Output, which: &args::Tables) -> Result<(), Failure> {
    match (&which.host, &which.box_name) {
        (Some(name), _) => out.get(client, &format!("/v1/hosts/{name}/table"), render::host_table),
        (_, Some(name)) => out.get(client, &format!("/v1/boxes/{name}/table"), render::box_table),
        (None, None) => out.get(client, "/v1/tables", render::tables),
    }
}

fn events(client: &Client, out: &Output, which: &args::Events) -> Result<(), Failure> {
    let ask = |since: Option<u64>, limit: u32, wait: u32| {
        let query = query(&[
            ("since", since.map(|n| n.to_string())),
            ("limit", Some(limit.to_string())),
            ("wait_ms", Some(wait.to_string())),
        ]);
        client.get::<manager_client::views::EventPage>(&format!("/v1/events{query}"))
    };
    let mut page = ask(which.since, which.limit, 0)?;
    loop {
        if page.lost {
            complain!(
                "dxpu-manager: events are not there any more that should come here; look at \
                 everything anew"
            );
        }
        for event in &page.items {
            if !out.print_one(event, render::event)? {
                return Ok(());
            }
        }
        if !which.follow {
            return Ok(());
        }
        page = match ask(Some(page.next), 1000, 30_000) {
            Ok(page) => page,
            // A manager that restarts comes back with the events that were missed.
            Err(error) if error.is_away() => {
                std::thread::sleep(Duration::from_secs(1));
                manager_client::views::EventPage { items: Vec::new(), lost: false, ..page }
            }
            Err(error) => return Err(error.into()),
        };
    }
}

fn latency(client: &Client, out: &Output, which: &args::Latency) -> Result<(), Failure> {
    let query = query(&[
        ("window_ms", Some(which.window.as_millis().to_string())),
        ("one_in", Some(which.one_in.to_string())),
        ("slowest", Some(which.slowest.to_string())),
        ("node", which.node.as_ref().map(ToString::to_string)),
    ]);
    out.get(client, &format!("/v1/latency{query}"), render::latency)
}

fn stamps(client: &Client, out: &Output, which: &args::Stamps) -> Result<(), Failure> {
    let Some(sampling) = &which.sampling else {
        return out.get(client, &format!("/v1/nodes/{}/stamps", which.node), render::stamps);
    };
    let body = match (sampling.as_str(), sampling.parse::<u32>()) {
        ("off", _) => SamplingBody::Off,
        ("all", _) => SamplingBody::All,
        (_, Ok(n)) => SamplingBody::OneIn { n },
        _ => {
            let text = format!("sampling {sampling:?}: off, all, or a number for one in so many");
            return Err(Failure::Argument(text));
        }
    };
    client.put(&format!("/v1/nodes/{}/sampling", which.node), &body)?;
    let text = format!("{}: sampling is {sampling}", which.node);
    out.print(&serde_json::json!({ "node": which.node, "sampling": body }), |_| text)
}
