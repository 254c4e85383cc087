//! Standalone spawner, for tests and benchmarks of crates whose program does not contain one.

fn main() {
    spawner::run_if_requested();
    eprintln!("outlast-spawner is started by a server, not by hand");
    std::process::exit(2);
}
