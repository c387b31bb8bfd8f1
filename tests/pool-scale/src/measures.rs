//! What is measured, in the order in which the pool fills.

use crate::Options;
use crate::client::{Client, Lent};
use crate::floor;
use crate::pool::Pool;
use crate::report::{Figure, Quantiles, Report, Target};
use crate::server::Server;
use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// How long anything may take before it counts as broken.
const LONG: Duration = Duration::from_secs(120);

/// How long the store alone is measured, each time.
const FLOOR_TIME: Duration = Duration::from_secs(2);

/// Clients that watch events.
const WATCHERS: usize = 8;

/// Devices that all clients together take at once.
const AT_ONCE: u32 = 512;

/// One part of this of the hosts' table entries is lost while the manager is away.
const LOST_ONE_IN: usize = 100;

/// A gibibyte, bytes.
const GIB: f64 = 1_073_741_824.0;

struct Bench<'a> {
    options: &'a Options,
    folder: &'a Path,
    runtime: Runtime,
    server: Server,
    pool: Pool,
    report: Report,
}

/// Measures everything.
pub(crate) fn all(options: &Options) -> Result<Report> {
    let (clients, hosts) = (u32::from(options.clients), u32::from(options.hosts));
    let slots = u32::from(options.boxes) * u32::from(options.slots);
    ensure!(
        clients <= hosts.min(slots),
        "{clients} clients are too many for {hosts} hosts and {slots} slots: each has a host of its \
         own and a device at a time; say --clients {} or fewer",
        hosts.min(slots)
    );
    let folder = match &options.folder {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    let server = Server::start(folder.path(), &options.log)?;
    let begun = Instant::now();
    let pool = Pool::start(options, server.control)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let words = format!(
        "{} boxes × {} slots, {} hosts, {} clients",
        options.boxes, options.slots, options.hosts, options.clients
    );
    let report = Report::new(words);
    let mut bench = Bench { options, folder: folder.path(), runtime, server, pool, report };
    let measured = bench.run(begun);
    measured
        .with_context(|| format!("the manager's log ends with\n{}", bench.server.last_lines()))?;
    Ok(bench.report)
}

impl Bench<'_> {
    fn run(&mut self, begun: Instant) -> Result<()> {
        self.connect(begun)?;
        self.at_once()?;
        self.cycles()?;
        self.fill()?;
        self.events()?;
        self.restart()?;
        self.memory()
    }

    fn connect(&mut self, begun: Instant) -> Result<()> {
        self.pool.wait_read(LONG)?;
        self.report.add(Figure::new("all proxies connected and read", seconds(begun), "s"));
        self.wait_quiet()?;
        self.add_memory("memory with all connected, nothing lent")
    }

    /// Waits until what was told is recorded.
    fn wait_quiet(&self) -> Result<()> {
        let begun = Instant::now();
        let mut before = self.server.processor_time()?;
        loop {
            std::thread::sleep(Duration::from_millis(200));
            let now = self.server.processor_time()?;
            if now - before <= Duration::from_millis(20) {
                return Ok(());
            }
            ensure!(begun.elapsed() < LONG, "the manager does not come to rest");
            before = now;
        }
    }

    fn add_memory(&mut self, name: &'static str) -> Result<()> {
        let (now, _) = self.server.memory()?;
        self.report.add(Figure::new(name, now / GIB, "GiB").target(Target::AtMost(1.0)));
        Ok(())
    }

    fn memory(&mut self) -> Result<()> {
        self.add_memory("memory with everything lent, after the restart")?;
        let (_, most) = self.server.memory()?;
        let figure = Figure::new("memory at most since the restart", most / GIB, "GiB");
        self.report.add(figure.target(Target::AtMost(1.0)));
        Ok(())
    }

    /// Slots, and ports: as many devices as can be lent at a time.
    fn capacity(&self) -> u32 {
        let slots = u32::from(self.options.boxes) * u32::from(self.options.slots);
        slots.min(u32::from(self.ports()) * u32::from(self.options.hosts))
    }

    fn ports(&self) -> u8 {
        self.pool.hosts[0].with(|state| state.ports.len() as u8)
    }

    /// Runs `each` in so many clients, each with a connection of its own, until one fails or all
    /// have ended.
    fn clients<F, T>(&self, each: impl Fn(Client, u16) -> F) -> Result<Vec<T>>
    where
        F: Future<Output = Result<T>> + Send + 'static,
        T: Send + 'static,
    {
        let api = self.server.api;
        self.runtime.block_on(async {
            let mut all = JoinSet::new();
            for index in 0..self.options.clients {
                all.spawn(each(Client::connect(api).await?, index));
            }
            let mut results = Vec::new();
            while let Some(ended) = all.join_next().await {
                results.push(ended??);
            }
            Ok(results)
        })
    }

    /// Many devices by all clients at once. There are enough: who is refused is counted.
    fn at_once(&mut self) -> Result<()> {
        let wanted = AT_ONCE.min(self.capacity());
        let next = Arc::new(AtomicU32::new(0));
        let hosts = u32::from(self.options.hosts);
        let begun = Instant::now();
        let taken = self.clients(|mut client, _| {
            let next = next.clone();
            async move {
                let (mut taken, mut refused) = (Vec::new(), Vec::new());
                loop {
                    let turn = next.fetch_add(1, Ordering::Relaxed);
                    if turn >= wanted {
                        return Ok((taken, refused));
                    }
                    match client.lend(&host_name(turn % hosts), 1).await? {
                        Ok(lent) => taken.push(lent),
                        Err(why) => refused.push(why),
                    }
                }
            }
        })?;
        self.report.add(Figure::new(
            "512 devices (or all) by all clients at once",
            seconds(begun),
            "s",
        ));
        let (taken, refused): (Vec<Vec<_>>, Vec<Vec<_>>) = taken.into_iter().unzip();
        let taken: Vec<Lent> = taken.into_iter().flatten().collect();
        let refused: Vec<String> = refused.into_iter().flatten().collect();
        if let Some(first) = refused.first() {
            eprintln!("{} requests are refused, such as {first}", refused.len());
        }
        let (lent, slots) = (taken.len(), taken.iter().flat_map(|(_, slots)| slots));
        let slots: BTreeSet<&String> = slots.collect();
        ensure!(slots.len() == lent, "{} slots for {lent} requests", slots.len());
        let refused = refused.len() as f64;
        self.report.add(
            Figure::new("requests refused among them", refused, "requests")
                .target(Target::AtMost(0.0)),
        );
        self.pool.check_agreement()?;
        let allocations =
            Arc::new(Mutex::new(taken.into_iter().map(|(id, _)| id).collect::<Vec<_>>()));
        self.clients(|mut client, _| {
            let allocations = allocations.clone();
            async move {
                loop {
                    let next = allocations.lock().expect("no one panics while holding it").pop();
                    match next {
                        Some(id) => client.release(&id).await?,
                        None => return Ok(()),
                    }
                }
            }
        })?;
        ensure!(self.pool.bound() == (0, 0), "something is still lent");
        Ok(())
    }

    /// Allocate and release, again and again, between two looks at the store alone.
    fn cycles(&mut self) -> Result<()> {
        let before = floor::commits(self.folder, FLOOR_TIME)?;
        let left = Arc::new(AtomicU32::new(self.options.cycles));
        let hosts = u32::from(self.options.hosts);
        let clients = usize::from(self.options.clients);
        let begun = Instant::now();
        let used = self.server.processor_time()?;
        let times = self.clients(|mut client, index| {
            let left = left.clone();
            async move {
                let mut times = Vec::new();
                // Each client has its own hosts, and they take turns.
                let own: Vec<u32> = (u32::from(index)..hosts).step_by(clients).collect();
                let mut turns = own.iter().cycle();
                let take = |left: u32| left.checked_sub(1);
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                    let host = turns.next().context("a client has no host")?;
                    let begun = Instant::now();
                    let (id, _) = client.allocate(&host_name(*host), 1).await?;
                    client.release(&id).await?;
                    times.push(1000.0 * begun.elapsed().as_secs_f64());
                }
                Ok(times)
            }
        })?;
        let took = begun.elapsed().as_secs_f64();
        let used = self.server.processor_time()? - used;
        let after = floor::commits(self.folder, FLOOR_TIME)?;
        let floor = (before + after) / 2.0;
        let cycles = f64::from(self.options.cycles);
        self.report.add(Figure::new("allocate–release cycles", cycles / took, "/s").floor(floor));
        let share = 100.0 * cycles / took / floor;
        self.report.add(
            Figure::new("of as many commits of the store alone", share, "%")
                .target(Target::AtLeast(50.0)),
        );
        let each = 1000.0 * used.as_secs_f64() / cycles;
        self.report.add(Figure::new("processor time of the manager per cycle", each, "ms"));
        let times = Quantiles::of(times.into_iter().flatten().collect());
        self.report.add(Figure::new("one cycle, p50", times.at(0.5), "ms"));
        self.report.add(Figure::new("one cycle, p99", times.at(0.99), "ms"));
        Ok(())
    }

    /// Lends everything.
    fn fill(&mut self) -> Result<()> {
        let (capacity, ports) = (self.capacity(), u32::from(self.ports()));
        let next = Arc::new(AtomicU32::new(0));
        let begun = Instant::now();
        self.clients(|mut client, _| {
            let next = next.clone();
            async move {
                loop {
                    let host = next.fetch_add(1, Ordering::Relaxed);
                    let there = (host * ports).min(capacity);
                    let count = ports.min(capacity - there);
                    if count == 0 {
                        return Ok(());
                    }
                    client.allocate(&host_name(host), count).await?;
                }
            }
        })?;
        let rate = f64::from(capacity) / begun.elapsed().as_secs_f64();
        self.report.add(Figure::new("devices lent until none was left", rate, "/s"));
        ensure!(self.pool.bound() == (capacity as usize, capacity as usize), "not all is lent");
        self.pool.check_agreement()
    }

    /// From a proxy that tells of something to a client that watches.
    fn events(&mut self) -> Result<()> {
        let sent: Arc<Mutex<BTreeMap<String, Instant>>> = Arc::default();
        let seen: Arc<Mutex<Vec<f64>>> = Arc::default();
        let wanted = self.options.events as usize;
        let api: SocketAddr = self.server.api;
        let hosts = self.pool.hosts.clone();
        let result: Result<()> = self.runtime.block_on(async {
            let mut watchers = JoinSet::new();
            for _ in 0..WATCHERS {
                let (sent, seen) = (sent.clone(), seen.clone());
                let client = Client::connect(api).await?;
                watchers.spawn(client.watch(move |data| {
                    let now = Instant::now();
                    let Ok(event) = serde_json::from_str::<serde_json::Value>(data) else { return };
                    let name = event["node"].as_str().unwrap_or_default();
                    let begun =
                        sent.lock().expect("no one panics while holding it").get(name).copied();
                    if let (Some(begun), "link-up") = (begun, event["kind"].as_str().unwrap_or(""))
                    {
                        let took = 1000.0 * (now - begun).as_secs_f64();
                        seen.lock().expect("no one panics while holding it").push(took);
                    }
                }));
            }
            // So that all of them watch.
            tokio::time::sleep(Duration::from_millis(200)).await;
            for index in 0..wanted {
                let proxy = &hosts[index % hosts.len()];
                let name = proxy.name().to_owned();
                sent.lock().expect("no one panics while holding it").insert(name, Instant::now());
                proxy.nudge.notify_one();
                tokio::time::sleep(Duration::from_millis(4)).await;
            }
            let begun = Instant::now();
            while seen.lock().expect("no one panics while holding it").len() < WATCHERS * wanted {
                if let Some(ended) = watchers.try_join_next() {
                    ended??;
                }
                if begun.elapsed() > LONG {
                    bail!("not every watcher saw every event");
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            Ok(())
        });
        result?;
        let seen = std::mem::take(&mut *seen.lock().expect("no one panics while holding it"));
        let times = Quantiles::of(seen);
        let floor = 1000.0 / floor::commits(self.folder, FLOOR_TIME)?;
        let figure = Figure::new("a proxy's event at a watcher, p50", times.at(0.5), "ms");
        self.report.add(figure.floor(floor).target(Target::AtMost(50.0)));
        let figure = Figure::new("a proxy's event at a watcher, p99", times.at(0.99), "ms");
        self.report.add(figure.floor(floor).target(Target::AtMost(50.0)));
        Ok(())
    }

    /// Kills it, loses some of what the hosts have, and starts it again.
    fn restart(&mut self) -> Result<()> {
        self.server.kill()?;
        self.pool.wait_alone(LONG)?;
        let mut lost = 0_u64;
        for (index, proxy) in self.pool.hosts.iter().enumerate() {
            if index % LOST_ONE_IN == 0 {
                proxy.with(|state| lost += u64::from(state.ports[0].take().is_some()));
            }
        }
        let writes = self.pool.writes();
        let begun = Instant::now();
        let listens = self.server.run()?;
        self.pool.wait_read(LONG)?;
        while self.pool.check_agreement().is_err() {
            ensure!(begun.elapsed() < LONG, "the tables do not come to agree");
            std::thread::sleep(Duration::from_millis(5));
        }
        let took = seconds(begun);
        self.report.add(Figure::new(
            "started again after SIGKILL, until it listens",
            listens.as_secs_f64(),
            "s",
        ));
        let figure = Figure::new("until all tables are read and agree", took, "s");
        self.report.add(figure.target(Target::AtMost(5.0)));
        self.report.add(Figure::new("table entries that had been lost", lost as f64, "entries"));
        self.wait_quiet()?;
        let written = self.pool.writes() - writes;
        self.report.add(Figure::new("table entries written for that", written as f64, "entries"));
        ensure!(written == lost, "{written} entries were written to repair {lost}");
        let capacity = self.capacity() as usize;
        ensure!(self.pool.bound() == (capacity, capacity), "not all is lent any more");
        Ok(())
    }
}

fn host_name(index: u32) -> String {
    format!("host{index:04}")
}

fn seconds(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64()
}
