//! System calls without a safe wrapper, or whose wrapper does more than is allowed between clone and exec.
//!
//! Raw calls on purpose: libc's `setresuid` and similar functions synchronise with threads that a cloned process does
//! not have.

#![expect(unsafe_code, reason = "system calls; each wrapper says why its call is sound")]

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use libc::{c_int, c_long, c_ulong};

fn check(result: c_long) -> io::Result<c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The two sides of a fork.
pub enum Cloned {
    Child,
    Parent { pid: i32, pidfd: OwnedFd },
}

/// Forks the calling process into new namespaces (`flags` are `CLONE_NEW…`).
///
/// The caller has one thread, so the child may call any function.
pub fn fork_into(flags: c_int) -> io::Result<Cloned> {
    let mut pidfd: c_int = -1;
    // SAFETY: an all-zero clone_args is valid; the kernel reads it and writes `pidfd` before the call returns. Without
    // CLONE_VM the child has its own copy of everything.
    let pid = unsafe {
        let mut args: libc::clone_args = std::mem::zeroed();
        args.flags = flags as u64 | libc::CLONE_PIDFD as u64;
        args.pidfd = &raw mut pidfd as u64;
        args.exit_signal = libc::SIGCHLD as u64;
        check(libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<libc::clone_args>()))?
    };
    if pid == 0 {
        return Ok(Cloned::Child);
    }
    // SAFETY: the kernel has just created this descriptor; nothing else owns it.
    Ok(Cloned::Parent { pid: pid as i32, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } })
}

/// Runs `child` in a new process that shares this process's memory until its exec or exit; this process is suspended
/// until then. Returns the child's pid.
pub fn vfork_with<T>(stack: &mut [MaybeUninit<u8>], argument: &mut T, child: fn(&mut T) -> !) -> io::Result<i32> {
    struct Call<'a, T> {
        argument: &'a mut T,
        child: fn(&mut T) -> !,
    }
    extern "C" fn enter<T>(call: *mut libc::c_void) -> c_int {
        // SAFETY: `call` is the Call below, which outlives the child's use: the parent is suspended.
        let call = unsafe { &mut *call.cast::<Call<'_, T>>() };
        (call.child)(call.argument)
    }
    let mut call = Call { argument, child };
    let top = stack.as_mut_ptr_range().end;
    // SAFETY: the stack is exclusively borrowed and large enough; with CLONE_VFORK nothing else runs on this memory.
    let pid = unsafe {
        libc::clone(
            enter::<T>,
            // Aligned to 16 bytes, as the ABI requires.
            top.map_addr(|address| address & !15).cast(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            (&raw mut call).cast(),
        )
    };
    check(c_long::from(pid)).map(|pid| pid as i32)
}

pub fn exit(code: i32) -> ! {
    // SAFETY: ends this process without running destructors or exit handlers.
    unsafe { libc::_exit(code) }
}

pub fn unshare(flags: c_int) -> io::Result<()> {
    // SAFETY: no memory is involved.
    check(c_long::from(unsafe { libc::unshare(flags) })).map(drop)
}

pub fn setns(namespace: BorrowedFd<'_>, kind: c_int) -> io::Result<()> {
    // SAFETY: no memory is involved.
    check(c_long::from(unsafe { libc::setns(namespace.as_raw_fd(), kind) })).map(drop)
}

fn pointer(text: Option<&CStr>) -> *const libc::c_char {
    text.map_or(std::ptr::null(), CStr::as_ptr)
}

pub fn mount(
    source: Option<&CStr>,
    target: &CStr,
    kind: Option<&CStr>,
    flags: c_ulong,
    data: Option<&CStr>,
) -> io::Result<()> {
    // SAFETY: all texts are terminated and outlive the call.
    let done = unsafe { libc::mount(pointer(source), target.as_ptr(), pointer(kind), flags, pointer(data).cast()) };
    check(c_long::from(done)).map(drop)
}

pub fn unmount_lazily(target: &CStr) -> io::Result<()> {
    // SAFETY: the text is terminated and outlives the call.
    check(c_long::from(unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) })).map(drop)
}

pub fn pivot_root(new: &CStr, old: &CStr) -> io::Result<()> {
    // SAFETY: both texts are terminated and outlive the call.
    check(unsafe { libc::syscall(libc::SYS_pivot_root, new.as_ptr(), old.as_ptr()) }).map(drop)
}

/// Adds attributes (`MOUNT_ATTR_…`) to a mount and everything below it.
pub fn restrict_mount(target: &CStr, attributes: u64) -> io::Result<()> {
    let settings = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: text and settings outlive the call, and the size is that of the settings.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            target.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const settings,
            size_of::<libc::mount_attr>(),
        )
    };
    check(done).map(drop)
}

pub fn set_host_name(name: &[u8]) -> io::Result<()> {
    // SAFETY: pointer and length are those of one slice.
    check(c_long::from(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) })).map(drop)
}

/// Switches to another user and group, without supplementary groups.
pub fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: no memory is involved (an empty list of groups).
    unsafe {
        check(libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()))?;
        check(libc::syscall(libc::SYS_setresgid, gid, gid, gid))?;
        check(libc::syscall(libc::SYS_setresuid, uid, uid, uid))?;
    }
    Ok(())
}

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapabilityHalf {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Drops all capabilities except these (one bit each).
pub fn limit_capabilities(kept: u64) -> io::Result<()> {
    /// `_LINUX_CAPABILITY_VERSION_3`: 64 bits in two halves.
    const VERSION: u32 = 0x2008_0522;
    let header = CapabilityHeader { version: VERSION, pid: 0 };
    let half = |bits: u64| CapabilityHalf { effective: bits as u32, permitted: bits as u32, inheritable: 0 };
    let data = [half(kept), half(kept >> 32)];
    // SAFETY: header and data have the layout of this version and outlive the call.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) }).map(drop)
}

pub fn die_with_parent() -> io::Result<()> {
    // SAFETY: no memory is involved.
    check(c_long::from(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) })).map(drop)
}

pub fn adopt_orphans() -> io::Result<()> {
    // SAFETY: no memory is involved.
    check(c_long::from(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) })).map(drop)
}

pub fn forbid_new_privileges() -> io::Result<()> {
    // SAFETY: no memory is involved.
    check(c_long::from(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })).map(drop)
}

pub fn name_process(name: &CStr) {
    // SAFETY: the text is terminated. A failure is harmless.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
}

pub fn restrict_with_landlock(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no memory is involved.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) }).map(drop)
}

/// Landlock ABI version of the kernel; 0 for none.
pub fn landlock_version() -> i32 {
    const QUERY_VERSION: u32 = 1;
    // SAFETY: with this flag no memory is involved.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, QUERY_VERSION) };
    version.max(0) as i32
}

/// Installs a seccomp filter, irrevocably.
pub fn install_filter(program: &[libc::sock_filter]) -> io::Result<()> {
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: program and filter outlive the call, which only reads them.
    check(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const filter) }).map(drop)
}

pub fn set_limit(resource: libc::__rlimit_resource_t, value: u64) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` outlives both calls.
    unsafe {
        check(c_long::from(libc::getrlimit(resource, &raw mut limit)))?;
        // At the hard CPU limit the kernel sends SIGKILL instead of SIGXCPU, which hides the cause.
        let hard = if resource == libc::RLIMIT_CPU { value.saturating_add(1) } else { value };
        // Never above the host's limit.
        limit.rlim_max = limit.rlim_max.min(hard);
        limit.rlim_cur = limit.rlim_max.min(value);
        check(c_long::from(libc::setrlimit(resource, &raw const limit))).map(drop)
    }
}

/// Raises the open file limit of this process to the hard limit.
pub fn raise_file_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` outlives both calls. A failure is harmless.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Unblocks all signals and restores SIGPIPE, which Rust's runtime ignores. Exec resets all other handlers.
pub fn reset_signals() {
    // SAFETY: an empty mask and the default action are valid.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Blocks these signals and returns a signalfd for them.
pub fn signals(numbers: &[c_int]) -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised before it is used and outlives the calls.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for number in numbers {
            libc::sigaddset(&raw mut set, *number);
        }
        check(c_long::from(libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut())))?;
        let descriptor =
            check(c_long::from(libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)))?;
        Ok(OwnedFd::from_raw_fd(descriptor as RawFd))
    }
}

/// Next pending signal, with its payload.
pub fn next_signal(signals: BorrowedFd<'_>) -> Option<(c_int, i32)> {
    // SAFETY: an all-zero structure is valid, and the kernel writes at most its size.
    unsafe {
        let mut info: libc::signalfd_siginfo = std::mem::zeroed();
        let size = size_of::<libc::signalfd_siginfo>();
        let read = libc::read(signals.as_raw_fd(), (&raw mut info).cast(), size);
        (read == size as isize).then_some((info.ssi_signo as c_int, info.ssi_int))
    }
}

/// Signal that makes an init stop its attempt. A real-time signal, because these are queued: a second ordinary signal
/// is lost while the first is pending.
pub const STOP: c_int = 40;

/// Sends a signal with a payload to the process of a pidfd.
pub fn send_signal(pidfd: BorrowedFd<'_>, signal: c_int, payload: i32) -> io::Result<()> {
    // SAFETY: an all-zero siginfo is valid; its fields for queued signals lie where the C library's structure has them,
    // which `sigqueue` relies on as well.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        info.si_signo = signal;
        info.si_code = libc::SI_QUEUE;
        let fields = (&raw mut info).cast::<i32>();
        // After si_signo, si_errno, si_code and padding: pid, uid, value.
        fields.add(4).write(libc::getpid());
        fields.add(5).write(libc::getuid() as i32);
        fields.add(6).write(payload);
        let done = libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, &raw const info, 0);
        check(done).map(drop)
    }
}

/// Signals a process by its pid; -1 means every process that this one may signal.
pub fn kill(pid: i32, signal: c_int) {
    // SAFETY: no memory is involved. Fails only if the process has already ended.
    unsafe { libc::kill(pid, signal) };
}

/// Result of reaping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    Ended { pid: i32, status: c_int },
    NothingYet,
    NoChildren,
}

/// Reaps an ended child; with `wait`, blocks until one has ended.
pub fn reap(wait: bool) -> Waited {
    let mut status = 0;
    loop {
        let flags = libc::__WALL | if wait { 0 } else { libc::WNOHANG };
        // SAFETY: `status` outlives the call.
        match unsafe { libc::waitpid(-1, &raw mut status, flags) } {
            0 => return Waited::NothingYet,
            pid if pid > 0 => return Waited::Ended { pid, status },
            _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return Waited::NoChildren,
        }
    }
}

/// Resource usage of all reaped children: CPU time in microseconds, and peak memory of the largest one in bytes.
pub fn children_usage() -> (u64, u64) {
    // SAFETY: an all-zero structure is valid and outlives the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    (micros(usage.ru_utime) + micros(usage.ru_stime), usage.ru_maxrss as u64 * 1024)
}

/// Bytes available in a pipe.
pub fn readable_bytes(pipe: BorrowedFd<'_>) -> usize {
    let mut count: c_int = 0;
    // SAFETY: the kernel writes one int.
    unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut count) };
    count.max(0) as usize
}

/// Replaces the program of this process; returns only on failure.
pub fn execute(program: &CStr, arguments: &Pointers, environment: &Pointers) -> io::Error {
    // SAFETY: a `Pointers` ends with a null pointer, and all its texts are terminated.
    unsafe { libc::execve(program.as_ptr(), arguments.0.as_ptr(), environment.0.as_ptr()) };
    io::Error::last_os_error()
}

/// Null-terminated array of C strings.
pub struct Pointers(
    Vec<*const libc::c_char>,
    #[expect(dead_code, reason = "what the pointers point to")] Vec<std::ffi::CString>,
);

impl Pointers {
    pub fn new(texts: Vec<std::ffi::CString>) -> Self {
        let pointers = texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect();
        Self(pointers, texts)
    }
}

/// Brings up the loopback interface of this process's network namespace.
pub fn raise_loopback() -> io::Result<()> {
    // SAFETY: an all-zero ifreq is valid; the name fits; the descriptor is closed by its owner.
    unsafe {
        let socket = check(c_long::from(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0)))?;
        let socket = OwnedFd::from_raw_fd(socket as RawFd);
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
        check(c_long::from(libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request))).map(drop)
    }
}

/// Closes every descriptor except these.
pub fn close_all_but(kept: &mut Vec<RawFd>) {
    kept.sort_unstable();
    kept.dedup();
    let mut from: RawFd = 0;
    for descriptor in kept.iter().copied().chain([RawFd::MAX]) {
        if from < descriptor {
            // SAFETY: this forked process uses none of the owners of these descriptors again.
            unsafe { libc::close_range(from as u32, descriptor as u32 - 1, 0) };
        }
        from = descriptor.saturating_add(1);
    }
}

/// Duplicates `from` as `to`, inheritable.
pub fn redirect(from: RawFd, to: RawFd) -> io::Result<()> {
    // SAFETY: `to` is a standard descriptor or the spawner's listener number in a process about to exec: nothing owns
    // it.
    check(c_long::from(unsafe { libc::dup2(from, to) })).map(drop)
}

pub fn write_to(descriptor: RawFd, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: pointer and length are those of one slice.
    check(unsafe { libc::write(descriptor, bytes.as_ptr().cast(), bytes.len()) } as c_long).map(drop)
}

/// Lets this process write its own /proc files after switching users.
pub fn make_dumpable() {
    // SAFETY: no memory is involved.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
}

/// Makes a descriptor inheritable.
pub fn keep_open(descriptor: RawFd) -> io::Result<()> {
    // SAFETY: no memory is involved.
    check(c_long::from(unsafe { libc::fcntl(descriptor, libc::F_SETFD, 0) })).map(drop)
}

/// Takes ownership of a descriptor inherited from the parent.
pub fn own(descriptor: RawFd) -> OwnedFd {
    // SAFETY: called once, at the start of a process whose parent has passed it; nothing else owns it.
    let owned = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let _ = rustix::io::fcntl_setfd(&owned, rustix::io::FdFlags::CLOEXEC);
    owned
}
