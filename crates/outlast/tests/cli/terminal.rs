//! Output on a terminal: a tree that is redrawn in place.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::support::Server;

const ROWS: u16 = 10;
const COLUMNS: u16 = 60;

/// Both ends of a small pseudo-terminal.
pub fn terminal() -> (File, OwnedFd) {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap();
    let path = std::ffi::OsStr::from_bytes(name.as_bytes());
    let terminal_end: OwnedFd = OpenOptions::new().read(true).write(true).open(path).unwrap().into();
    tcsetwinsize(terminal_end.as_fd(), Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    (File::from(controller), terminal_end)
}

/// Reads until the other end is closed, which a pseudo-terminal reports as an error.
pub fn read_all(mut controller: File) -> String {
    let mut drawn = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = controller.read(&mut buffer) {
        drawn.extend_from_slice(&buffer[..count]);
    }
    String::from_utf8(drawn).unwrap()
}

#[test]
fn a_tree_is_drawn_in_place_and_never_higher_than_the_terminal() {
    let server = Server::start();
    let tasks: String = (0..30).map(|number| format!("  task-{number}: {{run: {{echo: {{}}}}}}\n")).collect();
    let text = format!("name: wide\ntasks:\n{tasks}  slow: {{run: {{echo: {{delay_ms: 900}}}}}}\noutputs: 42\n");
    fs::write(server.directory.path().join("flow.yaml"), text).unwrap();
    let (controller, terminal_end) = terminal();
    let mut command = server.command(["run", "flow.yaml", "--wait"]);
    let mut child = command.env("TERM", "xterm").env("NO_COLOR", "1").stdout(terminal_end).spawn().unwrap();
    // The command holds a copy of the terminal, which would keep it open.
    drop(command);
    let drawn = read_all(controller);
    assert_eq!(child.wait().unwrap().code(), Some(0), "{drawn}");
    let frames: Vec<&str> = drawn.split("\x1b[J").collect();
    let (last, frames) = frames.split_last().unwrap();
    assert!(frames.len() > 2, "it is redrawn while it runs: {drawn:?}");
    for frame in frames {
        let lines: Vec<&str> = frame.split_terminator("\x1b[K\r\n").collect();
        assert!(lines.len() < usize::from(ROWS), "{frame:?}");
        assert!(lines.iter().all(|line| line.trim_start_matches("\x1b[9A\r").chars().count() <= usize::from(COLUMNS)));
        assert!(frame.contains(" more: "), "hidden tasks are counted: {frame:?}");
    }
    assert!(frames[1..].iter().all(|frame| frame.starts_with("\x1b[9A\r")), "in the same place: {drawn:?}");
    assert!(last.starts_with("wide succeeded in ") && last.ends_with("cpu\r\n42\r\n"), "{last:?}");
}
