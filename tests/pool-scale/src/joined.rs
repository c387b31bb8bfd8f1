//! A pool beside a manager that somebody else looks at.

use crate::Options;
use crate::client::Client;
use crate::pool::Pool;
use anyhow::Result;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the proxies may take until all are read.
const BOUND: Duration = Duration::from_secs(60);

/// Between two looks at how much is lent.
const PAUSE: Duration = Duration::from_millis(200);

/// Lets the proxies dial in and keeps devices lent, until standard input ends.
///
/// # Errors
///
/// When the proxies are not let in, or the first devices cannot be lent.
pub(crate) fn keep(options: &Options, control: SocketAddr, api: SocketAddr) -> Result<()> {
    let pool = Arc::new(Pool::start(options, control)?);
    pool.wait_read(BOUND)?;
    let names: Vec<String> = pool.hosts.iter().map(|host| host.name().to_owned()).collect();
    let wanted = options.lent as usize;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut hosts = names.iter().cycle();
    let begun = Instant::now();
    runtime.block_on(async {
        let mut client = Client::connect(api).await?;
        while pool.bound().0 < wanted {
            let host = hosts.next().expect("there is a host");
            // A proxy that was read is let into the pool a moment later.
            match client.allocate(host, 1).await {
                Err(error) if begun.elapsed() > BOUND => return Err(error),
                Err(_) => tokio::time::sleep(PAUSE).await,
                Ok(_) => {}
            }
        }
        anyhow::Ok(())
    })?;
    let mut out = std::io::stdout();
    writeln!(out, "{} proxies, {} devices lent", pool.count(), pool.bound().0)?;
    out.flush()?;
    let next = (0..names.len()).cycle();
    let keeper = runtime.spawn(lend_on(api, pool.clone(), wanted, names, next));
    // What is written is of no meaning; that it ends is.
    std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink())?;
    keeper.abort();
    // The pool has a runtime, which must not end inside another one.
    let _ = runtime.block_on(keeper);
    Ok(())
}

/// Lends whenever too little is lent. What refuses it passes, such as a hold or a manager that is
/// busy.
async fn lend_on(
    api: SocketAddr,
    pool: Arc<Pool>,
    wanted: usize,
    names: Vec<String>,
    next: impl Iterator<Item = usize>,
) {
    for index in next {
        tokio::time::sleep(PAUSE).await;
        if pool.bound().0 >= wanted {
            continue;
        }
        if let Ok(mut client) = Client::connect(api).await {
            let _ = client.allocate(&names[index], 1).await;
        }
    }
}
