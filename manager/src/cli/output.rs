//! How results are printed, once or whenever they change.

use super::{Failure, next_line, write_line};
use clap::ValueEnum;
use manager_client::views::EventPage;
use manager_client::{Client, ClientError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, IsTerminal};
use std::time::Duration;

/// How often what is watched is asked for, at most.
const PAUSE: Duration = Duration::from_millis(300);

/// How results look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
    /// For both.
    Yaml,
}

/// How results are printed.
pub(crate) struct Output {
    pub(super) form: Form,
    /// Whether what `get` prints is printed again when it has changed.
    pub(super) watch: bool,
}

impl Output {
    /// A result in the form that was asked for; `text` makes a table of it.
    fn text<T: Serialize>(&self, value: &T, text: impl FnOnce(&T) -> String) -> String {
        match self.form {
            Form::Table => text(value).trim_end().to_owned(),
            Form::Json => serde_json::to_string_pretty(value).expect("views are JSON"),
            Form::Yaml => {
                let yaml = yaml_serde::to_string(value).expect("views are YAML");
                yaml.trim_end().to_owned()
            }
        }
    }

    pub(super) fn print<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        write_line(&self.text(value, text))
    }

    /// One of many: a line, but a document of its own in YAML. Says whether anybody still reads them.
    pub(super) fn print_one<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<bool, Failure> {
        match self.form {
            Form::Table => next_line(&text(value)),
            Form::Json => next_line(&serde_json::to_string(value).expect("views are JSON")),
            Form::Yaml => next_line(&format!("---\n{}", self.text(value, text))),
        }
    }

    pub(super) fn get<T: Serialize + DeserializeOwned>(
        &self,
        client: &Client,
        path: &str,
        text: impl Fn(&T) -> String,
    ) -> Result<(), Failure> {
        if !self.watch {
            return self.print(&client.get::<T>(path)?, text);
        }
        let terminal = io::stdout().is_terminal();
        let (mut next, mut shown) = (None, None);
        loop {
            // Before the answer: what happens after it is then news.
            let news = news(client, next);
            let now = news.and_then(|news| Ok((news, client.get::<T>(path)?)));
            match now {
                Ok((news, value)) => {
                    next = Some(news);
                    let text = self.text(&value, &text);
                    if shown.as_ref() != Some(&text) {
                        if !self.show(&text, terminal, shown.is_none())? {
                            return Ok(());
                        }
                        shown = Some(text);
                    }
                }
                // A manager that restarts comes back.
                Err(error) if error.is_away() && shown.is_some() => {
                    let reason = match error {
                        ClientError::Unreachable { reason, .. } => reason,
                        other => other.to_string(),
                    };
                    super::complain!(
                        "dxpu-manager: the manager is away ({reason}); waiting for it"
                    );
                    std::thread::sleep(Duration::from_secs(1));
                }
                Err(error) => return Err(error.into()),
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Shows what is new; says whether anybody still reads it.
    fn show(&self, text: &str, terminal: bool, first: bool) -> Result<bool, Failure> {
        match self.form {
            // Home, and what was there is wiped out: ECMA-48, CUP and ED.
            _ if terminal => next_line(&format!("\x1b[H\x1b[2J{text}")),
            Form::Yaml => next_line(&format!("---\n{text}")),
            Form::Table if !first => next_line(&format!("\n{text}")),
            _ => next_line(text),
        }
    }
}

/// Waits for an event, unless `since` is nothing. Where the next one is.
fn news(client: &Client, since: Option<u64>) -> Result<u64, ClientError> {
    let path = match since {
        None => "/v1/events?limit=1".to_owned(),
        // Not all that is shown has events: it is looked at every few seconds anyway.
        Some(since) => format!("/v1/events?since={since}&limit=1000&wait_ms=2000"),
    };
    Ok(client.get::<EventPage>(&path)?.next)
}
