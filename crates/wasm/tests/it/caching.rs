//! Caching of compiled components in memory and on disk.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use model::blob::BlobId;
use wasm::{Executor, GuestExit, Metering, Options, PrepareError, Program, Stop};

use crate::guests::{noop, standalone, wat};
use crate::support::{Fixture, spec};

/// Counts reads of a component's content, which equal its compilations.
#[derive(Clone, Default)]
struct CompileCounter(Arc<AtomicUsize>);

impl CompileCounter {
    async fn prepare(&self, fixture: &Fixture, component: &Bytes) -> Result<Arc<Program>, PrepareError> {
        let (compiles, content) = (self.0.clone(), component.clone());
        let content = async move {
            compiles.fetch_add(1, Ordering::Relaxed);
            Ok(content)
        };
        fixture.executor.prepare(BlobId::of(component), Metering::Off, content).await
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Fixture {
    /// Simulates a restart: empty memory cache, same disk cache.
    fn restart(&mut self) {
        self.executor = Executor::new(Options::new(self.cache())).unwrap();
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = fs::read_dir(self.cache()).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }
}

/// Distinct valid components.
fn numbered(number: u32) -> Bytes {
    standalone(&format!("(func (export \"run\") (result i32) (drop (i32.const {number})) i32.const 0)"))
}

#[tokio::test]
async fn concurrent_calls_compile_a_component_once() {
    let fixture = Arc::new(Fixture::new());
    let compiles = CompileCounter::default();
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let (fixture, compiles) = (fixture.clone(), compiles.clone());
            tokio::spawn(async move { compiles.prepare(&fixture, &noop()).await.unwrap() })
        })
        .collect();
    let mut programs = Vec::new();
    for call in calls {
        programs.push(call.await.unwrap());
    }
    assert_eq!(compiles.count(), 1);
    assert!(programs.iter().all(|program| Arc::ptr_eq(program, &programs[0])));
    let known = fixture.executor.prepared(BlobId::of(&noop()), Metering::Off).unwrap().unwrap();
    assert!(Arc::ptr_eq(&known, &programs[0]));
    assert!(fixture.executor.prepared(BlobId::of(&noop()), Metering::Fuel).is_none());
}

#[tokio::test]
async fn a_component_is_not_compiled_again_after_a_restart() {
    let mut fixture = Fixture::new();
    let compiles = CompileCounter::default();
    compiles.prepare(&fixture, &noop()).await.unwrap();
    fixture.restart();
    let program = compiles.prepare(&fixture, &noop()).await.unwrap();
    assert_eq!(compiles.count(), 1);
    assert_eq!(fixture.begin(program, spec(), Stop::new()).await.exit, GuestExit::Succeeded);
}

#[tokio::test]
async fn a_permanent_error_is_cached_in_memory_only() {
    let fixture = Fixture::new();
    let compiles = CompileCounter::default();
    let useless = wat("(component)");
    for _ in 0..3 {
        assert_eq!(compiles.prepare(&fixture, &useless).await.unwrap_err(), PrepareError::NoEntry);
    }
    assert_eq!(compiles.count(), 1);
    assert!(fixture.files().is_empty());
}

#[tokio::test]
async fn a_damaged_file_is_detected_and_its_component_compiled_again() {
    let mut fixture = Fixture::new();
    let compiles = CompileCounter::default();
    compiles.prepare(&fixture, &noop()).await.unwrap();
    let [file] = &fixture.files()[..] else { panic!() };
    let whole = fs::read(file).unwrap();
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    };
    let mut longer = whole.clone();
    longer.push(0);
    let damages = [
        flipped(0),
        flipped(8),
        flipped(40),
        flipped(whole.len() / 2),
        flipped(whole.len() - 1),
        whole[..whole.len() - 1].to_vec(),
        whole[..20].to_vec(),
        Vec::new(),
        longer,
    ];
    for (number, damaged) in damages.into_iter().enumerate() {
        let [file] = &fixture.files()[..] else { panic!() };
        fs::write(file, damaged).unwrap();
        fixture.restart();
        let program = compiles.prepare(&fixture, &noop()).await.unwrap();
        assert_eq!(compiles.count(), number + 2);
        assert_eq!(fixture.begin(program, spec(), Stop::new()).await.exit, GuestExit::Succeeded);
        let [file] = &fixture.files()[..] else { panic!() };
        assert_eq!(fs::read(file).unwrap(), whole);
    }
}

#[tokio::test]
async fn code_for_another_engine_or_component_is_not_loaded() {
    let mut fixture = Fixture::new();
    let compiles = CompileCounter::default();
    compiles.prepare(&fixture, &noop()).await.unwrap();
    let [plain] = fixture.files().try_into().unwrap();
    fixture.prepare(&noop(), Metering::Fuel).await.unwrap();
    let metered = fixture.files().into_iter().find(|file| *file != plain).unwrap();
    // Intact, but compiled for another engine configuration; another engine version is the same case.
    fs::copy(&metered, &plain).unwrap();
    fixture.restart();
    let program = compiles.prepare(&fixture, &noop()).await.unwrap();
    assert_eq!(compiles.count(), 2);
    assert_eq!(fixture.begin(program, spec(), Stop::new()).await.exit, GuestExit::Succeeded);

    compiles.prepare(&fixture, &numbered(1)).await.unwrap();
    let other = fixture.files().into_iter().find(|file| *file != plain && *file != metered).unwrap();
    fs::copy(&other, &plain).unwrap();
    fixture.restart();
    compiles.prepare(&fixture, &noop()).await.unwrap();
    assert_eq!(compiles.count(), 4);
}

#[tokio::test]
async fn the_cache_directory_is_private_to_its_owner() {
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("cache");
    let mode = || fs::metadata(&cache).unwrap().permissions().mode() & 0o777;
    Executor::new(Options::new(&cache)).unwrap();
    assert_eq!(mode(), 0o700);
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(cache.join("1-1.part"), "left by a crash").unwrap();
    fs::write(cache.join("planted.code"), "planted by another user").unwrap();
    Executor::new(Options::new(&cache)).unwrap();
    assert_eq!(mode(), 0o700);
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 0);
}

#[tokio::test]
async fn the_disk_cache_evicts_the_oldest_file_beyond_its_limit() {
    let probe = Fixture::new();
    probe.prepare(&numbered(0), Metering::Off).await.unwrap();
    let size = fs::metadata(&probe.files()[0]).unwrap().len();

    let fixture = Fixture::with(|options| options.cache_bytes_max = 3 * size);
    for number in 0..3 {
        fixture.prepare(&numbered(number), Metering::Off).await.unwrap();
    }
    assert_eq!(fixture.files().len(), 3);
    let oldest = fixture.files().into_iter().min_by_key(|file| fs::metadata(file).unwrap().modified().unwrap());
    fixture.prepare(&numbered(3), Metering::Off).await.unwrap();
    assert_eq!(fixture.files().len(), 3);
    assert!(!oldest.unwrap().exists());
}

#[tokio::test]
async fn programs_evicted_from_memory_are_loaded_from_disk() {
    let fixture = Fixture::with(|options| options.programs_max = 2);
    let compiles = CompileCounter::default();
    for number in [0, 1, 2, 0] {
        compiles.prepare(&fixture, &numbered(number)).await.unwrap();
    }
    assert_eq!(compiles.count(), 3);
    assert!(fixture.executor.prepared(BlobId::of(&numbered(1)), Metering::Off).is_none());
    assert!(fixture.executor.prepared(BlobId::of(&numbered(0)), Metering::Off).is_some());
}

#[tokio::test]
async fn a_cache_write_failure_does_not_fail_the_run() {
    let fixture = Fixture::new();
    fs::remove_dir(fixture.cache()).unwrap();
    let program = fixture.prepare(&noop(), Metering::Off).await.unwrap();
    assert_eq!(fixture.begin(program, spec(), Stop::new()).await.exit, GuestExit::Succeeded);
}

#[test]
fn an_executor_needs_a_tokio_runtime() {
    let directory = tempfile::tempdir().unwrap();
    assert!(matches!(Executor::new(Options::new(directory.path())), Err(wasm::Error::NoRuntime)));
}
