//! Storage of an attempt's output.

use spawner::log::{HEADER_BYTES, Stream};
use spawner::protocol::Profile;

use crate::support::{Fixture, chunks, exited, launch};

#[test]
fn chunks_have_times_and_stream_offsets() {
    let mut fixture = Fixture::new();
    let key = fixture.start(launch(Profile::Standard, "echo one; echo two >&2; sleep 0.1; echo three"));
    let exit = fixture.await_exit(key);
    let chunks = chunks(&std::fs::read(fixture.log_path(key)).unwrap());
    let out: Vec<_> = chunks.iter().filter(|(header, _)| header.stream == Stream::Stdout).collect();
    assert_eq!(out.iter().map(|(header, _)| header.before).collect::<Vec<_>>(), [0, 4]);
    assert!(out[1].0.at >= out[0].0.at + 90 && out[1].0.at <= exit.ended_at);
}

#[test]
fn beginning_and_end_of_large_output_are_stored() {
    let mut fixture = Fixture::new();
    // Lines of eight bytes: 80 MB.
    let key = fixture.start(launch(Profile::Standard, "seq -f '%07.0f' 0 9999999"));
    let exit = fixture.await_exit(key);
    assert_eq!(exited(&exit), 0);
    assert_eq!(exit.log_errno, None);
    let path = fixture.log_path(key);
    let used = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&path).unwrap()) * 512;
    assert!(used < 4 << 20, "{used} bytes");
    let chunks = chunks(&std::fs::read(&path).unwrap());
    let text = |index: usize| String::from_utf8(chunks[index].1.clone()).unwrap();
    assert!(text(0).starts_with("0000000\n0000001\n"));
    assert!(text(chunks.len() - 1).ends_with("9999998\n9999999\n"));
    // Every chunk is at its stated offset: the hole damages no line.
    let mut stored = 0;
    for (header, bytes) in &chunks {
        // The limits are of the file: many small chunks leave less room for output.
        stored += HEADER_BYTES + bytes.len();
        for (index, byte) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
            assert_eq!((header.before + index as u64) % 8, 7, "{byte}");
        }
    }
    assert!(stored >= 2 << 20);
    let (last, bytes) = &chunks[chunks.len() - 1];
    assert_eq!(last.before + bytes.len() as u64, 80_000_000);
}

#[test]
fn a_full_log_disk_is_reported_and_the_program_continues() {
    let mut fixture = Fixture::new();
    let key = spawner::protocol::AttemptKey { job: 77, attempt: 1 };
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let input = spawner::memfd_with(b"").unwrap();
    let command =
        spawner::protocol::Command::Start { key, launch: Box::new(launch(Profile::Standard, "seq 1 100000; exit 4")) };
    let descriptors = [std::os::fd::AsFd::as_fd(&full), std::os::fd::AsFd::as_fd(&input)];
    fixture.claimed.channel.send(&command, &descriptors).unwrap();
    let exit = fixture.await_exit(key);
    assert_eq!((exited(&exit), exit.log_errno), (4, Some(28)));
}
