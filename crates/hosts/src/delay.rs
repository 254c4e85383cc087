//! A link that takes its time: two TAP devices, and threads that carry frames from one to the other.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// An Ethernet frame of an ordinary interface.
const FRAME_BYTES_MAX: usize = 2_048;
/// Frames on their way in one direction. More are dropped, as by a router.
const FRAMES_MAX: usize = 4_096;
/// A link that is removed is noticed within this time.
const STOP_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// The time that a frame takes in one direction: `least`, and up to `jitter` more. Frames stay in order.
#[derive(Debug, Clone, Copy)]
pub struct Delay {
    pub least: Duration,
    pub jitter: Duration,
}

/// Carries frames until it is dropped.
pub(crate) struct DelayedLink {
    stop: Arc<AtomicBool>,
}

impl DelayedLink {
    pub(crate) fn new(near: File, far: File, delay: Delay) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        carry(near.try_clone().unwrap(), far.try_clone().unwrap(), delay, stop.clone());
        carry(far, near, delay, stop.clone());
        Self { stop }
    }
}

impl Drop for DelayedLink {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn carry(from: File, to: File, delay: Delay, stop: Arc<AtomicBool>) {
    let (sender, receiver) = sync_channel(FRAMES_MAX);
    std::thread::spawn(move || receive(from, delay, &stop, &sender));
    std::thread::spawn(move || deliver(to, &receiver));
}

fn receive(mut from: File, delay: Delay, stop: &AtomicBool, frames: &SyncSender<(Instant, Vec<u8>)>) {
    let (mut buffer, mut seed) = (vec![0; FRAME_BYTES_MAX], u64::from(from.as_raw_fd().unsigned_abs()));
    while !stop.load(Ordering::Relaxed) {
        let ready = poll(&mut [PollFd::new(&from, PollFlags::IN)], Some(&STOP_INTERVAL));
        if !matches!(ready, Ok(1..)) {
            continue;
        }
        let Ok(bytes) = from.read(&mut buffer) else { return };
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let fraction = (seed >> 33) as f64 / f64::from(1u32 << 31);
        let due = Instant::now() + delay.least + delay.jitter.mul_f64(fraction);
        // A full queue drops the frame.
        let _ = frames.try_send((due, buffer[..bytes].to_vec()));
    }
}

fn deliver(mut to: File, frames: &Receiver<(Instant, Vec<u8>)>) {
    for (due, frame) in frames {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        // The interface may be down or gone.
        let _ = to.write_all(&frame);
    }
}

/// A new TAP device in the network namespace of this thread.
#[expect(unsafe_code, reason = "there is no other way to attach to a TAP device; the request outlives the call")]
pub(crate) fn tap(name: &str) -> File {
    let file = File::options().read(true).write(true).open("/dev/net/tun").unwrap();
    // SAFETY: all zeros are a valid request, which has numbers and arrays of numbers only.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    assert!(name.len() < request.ifr_name.len());
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the kernel reads and writes the request, which lives until the call has returned.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    assert_eq!(done, 0, "cannot attach to {name}: {}", std::io::Error::last_os_error());
    file
}
