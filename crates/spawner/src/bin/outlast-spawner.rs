//! A spawner on its own, for tests and benchmarks of crates that have no program with one in it.

fn main() {
    spawner::become_spawner_if_asked();
    eprintln!("a spawner is started by its server, not by hand");
    std::process::exit(2);
}
