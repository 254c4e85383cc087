//! Followed output is complete, in order and printed once, across server restarts.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout};
use std::thread::JoinHandle;

use crate::support::{Server, finish};

/// Prints lines to both streams in three parts, the second and third on request ([`allow`]).
const IN_PARTS: &str = "\
say() { i=$1; while [ $i -lt $2 ]; do echo out $i; echo err $i >&2; i=$((i + 1)); done; }
say 0 300
while [ ! -e outputs/second ]; do sleep 0.02; done
say 300 600
printf 'out and '
while [ ! -e outputs/third ]; do sleep 0.02; done
echo more
say 600 900
echo last >&2";

fn expected(name: &str) -> String {
    let mut lines: Vec<String> = (0..900).map(|number| format!("{name} {number}\n")).collect();
    match name {
        "out" => lines.insert(600, "out and more\n".to_owned()),
        _ => lines.push("last\n".to_owned()),
    }
    lines.concat()
}

/// `outputs/` is the only directory a sandboxed job shares with its host.
fn allow(server: &Server, id: &str, part: &str) {
    let outputs = server.directory.path().join(format!("data/scratch/{id}.1/outputs"));
    std::fs::write(outputs.join(part), "").unwrap();
}

fn submit(server: &Server, script: &str) -> String {
    server.run(["submit", "--artifact", "*.none", "--", "sh", "-c", script]).expect(0).line().to_owned()
}

/// A process that follows a log, with its output so far.
struct Follower {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: JoinHandle<String>,
    seen: String,
}

impl Follower {
    fn start(server: &Server, arguments: &[&str]) -> Self {
        let mut child = server.command(arguments).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut errors = child.stderr.take().unwrap();
        // Read on another thread, so that neither stream blocks the other.
        let stderr = std::thread::spawn(move || {
            let mut text = String::new();
            errors.read_to_string(&mut text).unwrap();
            text
        });
        Self { child, stdout, stderr, seen: String::new() }
    }

    fn read_to(&mut self, line: &str) {
        while !self.seen.ends_with(line) {
            assert_ne!(self.stdout.read_line(&mut self.seen).unwrap(), 0, "the output ended after {}", self.seen);
        }
    }

    /// Waits for the exit and returns the output of both streams.
    fn end(mut self, code: i32) -> (String, String) {
        self.stdout.read_to_string(&mut self.seen).unwrap();
        finish(self.child).expect(code);
        (self.seen, self.stderr.join().unwrap())
    }
}

/// Three followers of one job, whose server is stopped by `end` and restarted.
fn follow_across(end: impl Fn(&mut Server)) {
    let mut server = Server::start();
    let mut waiting =
        Follower::start(&server, &["submit", "--wait", "--artifact", "*.none", "--", "sh", "-c", IN_PARTS]);
    waiting.read_to("out 299\n");
    let jobs = server.run(["jobs", "list", "--output", "json"]).expect(0).json();
    let id = jobs["items"][0]["id"].as_str().unwrap().to_owned();
    let mut both = Follower::start(&server, &["logs", "-f", "--both", &id]);
    let mut errors = Follower::start(&server, &["logs", "-f", "--stderr", "--tail", "3", &id]);
    both.read_to("out 299\n");
    errors.read_to("err 299\n");
    end(&mut server);
    // The server is down while the second part is written.
    allow(&server, &id, "second");
    server.start_again();
    both.read_to("out 599\n");
    errors.read_to("err 599\n");
    end(&mut server);
    server.start_again();
    allow(&server, &id, "third");
    assert_eq!(waiting.end(0), (expected("out"), expected("err")));
    assert_eq!(both.end(0), (expected("out"), expected("err")));
    let tail = &expected("err")[expected("err").find("err 297\n").unwrap()..];
    assert_eq!(errors.end(0), (tail.to_owned(), String::new()));
    let job = server.wait_for_state(&id, &["succeeded"]);
    assert_eq!((&job["attempt"], &job["retries"]), (&1.into(), &0.into()), "it continued as the same attempt");
    assert_eq!(server.run(["logs", &id]).expect(0).stdout, expected("out"));
}

// FEATURES: A14
#[test]
fn followed_output_is_complete_and_printed_once_across_sigkill() {
    follow_across(Server::kill);
}

#[test]
fn followed_output_is_complete_and_printed_once_across_a_restart() {
    follow_across(|server| assert_eq!(server.stop(), Some(0)));
}

#[test]
fn an_interrupted_server_stops_its_processes_and_their_jobs_restart() {
    let mut server = Server::start();
    let id = submit(&server, "echo attempt $OUTLAST_ATTEMPT; [ $OUTLAST_ATTEMPT = 2 ] || sleep 600");
    let mut follower = Follower::start(&server, &["logs", "-f", &id]);
    follower.read_to("attempt 1\n");
    assert_eq!(server.interrupt(), Some(0));
    server.start_again();
    assert_eq!(follower.end(0).0, "attempt 1\nattempt 2\n");
    let job = server.wait_for_state(&id, &["succeeded"]);
    assert_eq!((&job["attempt"], &job["retries"]), (&2.into(), &0.into()), "a clean stop uses no retry");
}

#[test]
fn streams_are_separate_and_lines_have_timestamps() {
    let server = Server::start();
    let id = submit(&server, "echo one; printf 'two '; echo oops >&2; sleep 0.1; echo two");
    server.wait_for_state(&id, &["succeeded"]);
    let both = server.run(["logs", "--both", &id]).expect(0);
    assert_eq!((both.stdout.as_str(), both.stderr.as_str()), ("one\ntwo two\n", "oops\n"));
    let stamped = server.run(["logs", "--both", "--timestamps", &id]).expect(0);
    let lines: Vec<&str> = stamped.stdout.lines().chain(stamped.stderr.lines()).collect();
    let texts: Vec<&str> = lines.iter().map(|line| line.split_once(' ').unwrap().1).collect();
    assert_eq!(texts, ["one", "two two", "oops"]);
    let created = server.run(["jobs", "show", &id, "--output", "json"]).expect(0).json();
    let created = created["created_at"].as_str().unwrap().to_owned();
    // Timestamps of this format compare as strings.
    assert!(lines.iter().all(|line| line.starts_with("20") && line[..24] >= created[..]), "{created} {lines:?}");
    server.run(["logs", "--both", "--stderr", &id]).expect(2);
}

#[test]
fn binary_output_is_unchanged() {
    let server = Server::start();
    let script = "head -c 700000 /dev/zero; printf '\\377\\376\\n'; head -c 100 /dev/zero | tr '\\0' '\\377'";
    let id = submit(&server, script);
    server.wait_for_state(&id, &["succeeded"]);
    let output = server.command(["logs", "-f", &id]).output().unwrap();
    let expected = [&vec![0; 700_000][..], b"\xff\xfe\n", &[0xff; 100]].concat();
    assert!(output.stdout == expected, "{} bytes, {:?}", output.stdout.len(), String::from_utf8_lossy(&output.stderr));
    let tail = server.command(["logs", "--tail", "1", &id]).output().unwrap();
    assert_eq!(tail.stdout, [0xff; 100]);
    // The previous line is large, and its JSON escapes take six bytes per byte.
    let tail = server.command(["logs", "--tail", "2", &id]).output().unwrap();
    assert!(tail.stdout == expected, "{} bytes", tail.stdout.len());
}

#[test]
fn dropped_output_is_reported_on_standard_error() {
    let server = Server::start();
    // Numbered lines, more than are stored of one attempt.
    let id = submit(&server, "seq 1 4000000");
    server.wait_for_state(&id, &["succeeded"]);
    let ran = server.run(["logs", &id]).expect(0);
    assert!(
        ran.stdout.starts_with("1\n2\n") && ran.stdout.ends_with("\n4000000\n"),
        "the beginning and the end are stored"
    );
    let whole: u64 = (1..=4_000_000_u64).map(|number| number.to_string().len() as u64 + 1).sum();
    let missing = whole - ran.stdout.len() as u64;
    assert!(missing > 0);
    assert_eq!(ran.stderr, format!("[outlast: {missing} bytes of stdout were dropped]\n"));
}
