//! Measures the embedded store against the bare disk, and under a sustained load of short jobs.
//!
//! `cargo run --release -p store --example sustained [jobs]`

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use model::batch::{Batch, Keyspace};
use model::id::{NodeId, ShardId};
use store::{Embedded, Options, Order, Range, ShardOwner, Store};

const SHARD: ShardId = ShardId(0);
const OWNER: ShardOwner = ShardOwner { node: NodeId(1), nonce: 1 };
const ROUNDS: usize = 2_000;
const TRANSITIONS: u64 = 256;
const JOBS_PER_COMMIT: u64 = 1_000;
/// A job finishes this many commits after its creation.
const COMMITS_IN_FLIGHT: u64 = 5;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next();
    if let (Some("open"), Some(path)) = (first.as_deref(), arguments.next()) {
        return reopen(Path::new(&path));
    }
    let jobs = first.map_or(Ok(2_000_000), |jobs| jobs.parse())?;
    let directory = std::env::temp_dir().join(format!("outlast-sustained-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let measured = bare_disk(&directory).and_then(|()| commits(&directory)).and_then(|()| sustained(&directory, jobs));
    std::fs::remove_dir_all(&directory)?;
    measured
}

/// Values with about the compression ratio of records.
fn value(number: u64, len: usize) -> Vec<u8> {
    let mut state = number;
    (0..len)
        .map(|index| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if index % 3 == 0 { (state >> 56) as u8 } else { b'a' }
        })
        .collect()
}

fn transitions(first: u64) -> Batch {
    let mut batch = Batch::new();
    for number in first..first + TRANSITIONS {
        batch.put(Keyspace::Live, &number.to_be_bytes(), &value(number, 250));
    }
    batch
}

fn report(label: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let total: Duration = times.iter().sum();
    let per_second = times.len() as f64 * TRANSITIONS as f64 / total.as_secs_f64();
    println!(
        "{label}: {per_second:.0} transitions/s, p50 {:.2?}, p99 {:.2?}",
        times[times.len() / 2],
        times[times.len() * 99 / 100]
    );
}

fn bare_disk(directory: &Path) -> Outcome {
    let bytes = transitions(0).as_bytes().to_vec();
    let file = OpenOptions::new().create(true).truncate(true).write(true).open(directory.join("bare"))?;
    let size = 64 << 20;
    file.write_all_at(&vec![0; size], 0)?;
    file.sync_all()?;
    let mut offset = 0;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        if offset + bytes.len() > size {
            offset = 0;
        }
        let start = Instant::now();
        file.write_all_at(&bytes, offset as u64)?;
        file.sync_data()?;
        times.push(start.elapsed());
        offset += bytes.len();
    }
    report("bare write + fdatasync", times);
    Ok(())
}

fn commits(directory: &Path) -> Outcome {
    let store = Embedded::open(&directory.join("commits"), Options::default())?;
    let mut token = store.take_over(SHARD, OWNER)?;
    let mut times = Vec::new();
    for round in 0..ROUNDS as u64 {
        // The same records change repeatedly, like those of running jobs.
        let batch = transitions(round % 40 * TRANSITIONS);
        let start = Instant::now();
        store.commit(&mut token, &batch)?;
        times.push(start.elapsed());
    }
    report("commit", times);
    store.close()?;
    Ok(())
}

fn sustained(directory: &Path, jobs: u64) -> Outcome {
    let path = directory.join("sustained");
    let store = Embedded::open(&path, Options::default())?;
    println!("opened, {} MB resident", resident_mb());
    let mut token = store.take_over(SHARD, OWNER)?;
    let start = Instant::now();
    let mut slowest = Duration::ZERO;
    let mut peak = 0;
    let mut building = Duration::ZERO;
    for commit in 0..jobs / JOBS_PER_COMMIT + COMMITS_IN_FLIGHT {
        let begun = Instant::now();
        let batch = job_batch(commit, jobs);
        building += begun.elapsed();
        let begun = Instant::now();
        store.commit(&mut token, &batch)?;
        slowest = slowest.max(begun.elapsed());
        if commit % 50 == 0 {
            peak = peak.max(resident_mb());
        }
    }
    let took = start.elapsed();
    println!(
        "sustained: {:.0} jobs/s over {jobs} jobs, slowest commit {slowest:.2?}, peak {peak} MB resident, building batches took {:.1} s of {:.1} s",
        jobs as f64 / took.as_secs_f64(),
        building.as_secs_f64(),
        took.as_secs_f64()
    );
    let begun = Instant::now();
    store.flush()?;
    println!("final flush: {:.2?}", begun.elapsed());
    for (thread, seconds) in thread_seconds()? {
        println!(
            "  thread {thread}: {seconds:.2} s of CPU time, {:.0} % of one core",
            100.0 * seconds / took.as_secs_f64()
        );
    }
    let begun = Instant::now();
    let done = store.scan(SHARD, Keyspace::Done, Range::all(), Order::Descending, 100)?;
    println!("newest {} finished jobs: {:.2?}", done.len(), begun.elapsed());
    drop(store);
    // In a new process, for the memory use without the preceding load.
    std::process::Command::new(std::env::current_exe()?).arg("open").arg(&path).status()?;
    Ok(())
}

fn reopen(path: &Path) -> Outcome {
    let begun = Instant::now();
    let store = Embedded::open(path, Options::default())?;
    println!("reopened in {:.2?}, {} MB resident", begun.elapsed(), resident_mb());
    let begun = Instant::now();
    let live = store.scan(SHARD, Keyspace::Live, Range::all(), Order::Ascending, usize::MAX)?;
    println!("read {} live jobs in {:.2?}, {} MB resident", live.len(), begun.elapsed(), resident_mb());
    Ok(())
}

/// Creates a thousand jobs, and finishes the thousand created [`COMMITS_IN_FLIGHT`] commits earlier.
fn job_batch(commit: u64, jobs: u64) -> Batch {
    let mut batch = Batch::new();
    let first = commit * JOBS_PER_COMMIT;
    for job in first..(first + JOBS_PER_COMMIT).min(jobs.max(first)) {
        batch.put(Keyspace::Live, &job.to_be_bytes(), &value(job, 300));
    }
    let Some(finished) = first.checked_sub(COMMITS_IN_FLIGHT * JOBS_PER_COMMIT) else {
        return batch;
    };
    for job in finished..(finished + JOBS_PER_COMMIT).min(jobs) {
        batch.delete(Keyspace::Live, &job.to_be_bytes());
        batch.put(Keyspace::Done, &job.to_be_bytes(), &value(job, 350));
        let queue = (job % 997).to_be_bytes();
        batch.put(Keyspace::ByQueue, &[queue, job.to_be_bytes()].concat(), &[]);
        let hash = job.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        let key = [&[0, 1][..], &hash, &hash].concat();
        batch.put(Keyspace::Keys, &key, &value(job, 40));
    }
    batch
}

fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// CPU time of each thread so far, in seconds.
fn thread_seconds() -> Result<Vec<(String, f64)>, std::io::Error> {
    const TICKS_PER_SECOND: f64 = 100.0;
    let mut threads = Vec::new();
    for task in std::fs::read_dir("/proc/self/task")? {
        let text = std::fs::read_to_string(task?.path().join("stat"))?;
        let (Some(open), Some(close)) = (text.find('('), text.rfind(')')) else { continue };
        let fields: Vec<_> = text[close + 1..].split_whitespace().collect();
        let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
        threads.push((text[open + 1..close].to_owned(), (ticks(11) + ticks(12)) / TICKS_PER_SECOND));
    }
    Ok(threads)
}
