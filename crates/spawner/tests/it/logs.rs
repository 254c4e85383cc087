//! What is kept of an attempt's output.

use spawner::log::Stream;
use spawner::protocol::Profile;

use crate::fixture::{Fixture, exited, launch, pieces};

#[test]
fn pieces_have_their_times_and_tell_how_much_came_before() {
    let mut fixture = Fixture::new();
    let key = fixture.start(launch(Profile::Standard, "echo one; echo two >&2; sleep 0.1; echo three"));
    let exit = fixture.await_exit(key);
    let pieces = pieces(&std::fs::read(fixture.log_path(key)).unwrap());
    let out: Vec<_> = pieces.iter().filter(|(header, _)| header.stream == Stream::Stdout).collect();
    assert_eq!(out.iter().map(|(header, _)| header.before).collect::<Vec<_>>(), [0, 4]);
    assert!(out[1].0.at >= out[0].0.at + 90 && out[1].0.at <= exit.ended_at);
}

#[test]
fn of_a_flood_the_beginning_and_the_end_are_kept_and_the_disk_is_spared() {
    let mut fixture = Fixture::new();
    // Lines of eight bytes: 80 MB.
    let key = fixture.start(launch(Profile::Standard, "seq -f '%07.0f' 0 9999999"));
    let exit = fixture.await_exit(key);
    assert_eq!(exited(&exit), 0);
    assert_eq!(exit.log_errno, None);
    let path = fixture.log_path(key);
    let used = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&path).unwrap()) * 512;
    assert!(used < 4 << 20, "{used} bytes");
    let pieces = pieces(&std::fs::read(&path).unwrap());
    let text = |index: usize| String::from_utf8(pieces[index].1.clone()).unwrap();
    assert!(text(0).starts_with("0000000\n0000001\n"));
    assert!(text(pieces.len() - 1).ends_with("9999998\n9999999\n"));
    // Every piece is where it says it is: no line is damaged by the cut.
    let mut kept = 0;
    for (header, bytes) in &pieces {
        kept += bytes.len();
        for (index, byte) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
            assert_eq!((header.before + index as u64) % 8, 7, "{byte}");
        }
    }
    assert!(kept >= 2 << 20);
    let (last, bytes) = &pieces[pieces.len() - 1];
    assert_eq!(last.before + bytes.len() as u64, 80_000_000);
}

#[test]
fn a_full_disk_under_the_log_is_told_and_the_program_goes_on() {
    let mut fixture = Fixture::new();
    let key = spawner::protocol::Key { job: 77, attempt: 1 };
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let input = spawner::file_with(b"").unwrap();
    let order =
        spawner::protocol::Order::Start { key, launch: Box::new(launch(Profile::Standard, "seq 1 100000; exit 4")) };
    let descriptors = [std::os::fd::AsFd::as_fd(&full), std::os::fd::AsFd::as_fd(&input)];
    fixture.claimed.channel.send(&order, &descriptors).unwrap();
    let exit = fixture.await_exit(key);
    assert_eq!((exited(&exit), exit.log_errno), (4, Some(28)));
}
