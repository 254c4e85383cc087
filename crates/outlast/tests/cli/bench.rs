//! Report of `outlast bench`.

use serde_json::Value;

use crate::support::Server;

#[test]
fn every_workload_is_finished_and_counted() {
    let server = Server::start();
    for line in [
        "bench --json --jobs 500 --concurrency 4",
        "bench --json --jobs 1050 --batch 100 --keys --value-bytes 200",
        "bench --json --jobs 50 --wait --threads 2",
        "bench --json --jobs 20 --executor process",
    ] {
        let report = server.run(line.split(' ')).expect(0).json();
        let members: Vec<&String> = report.as_object().unwrap().keys().collect();
        assert_eq!(members, ["accepted_per_s", "failed", "finished_per_s", "jobs", "latency_ms", "seconds"]);
        assert_eq!(report["failed"], 0, "{line}: {report}");
        let positive = |value: &Value| value.as_f64().unwrap() > 0.0;
        assert!(positive(&report["accepted_per_s"]) && positive(&report["finished_per_s"]), "{report}");
        let latencies = ["p50", "p90", "p99", "p999", "max"].map(|name| report["latency_ms"][name].as_f64().unwrap());
        assert!(latencies.is_sorted() && latencies[0] > 0.0, "{report}");
    }
    let table = server.run(["bench", "--jobs", "10"]).expect(0).stdout;
    assert!(table.contains("finished") && table.contains("/s\n"), "{table}");
    server.run(["bench", "--wait", "--batch", "5"]).expect(2);
}
