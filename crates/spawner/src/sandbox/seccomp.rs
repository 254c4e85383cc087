//! Seccomp filter of sandboxed programs.
//!
//! A deny list: namespaces, dropped capabilities and landlock already isolate a program; the filter reduces the attack
//! surface of the kernel. System calls newer than this list return ENOSYS, which programs can handle.
//!
//! Built here instead of with a crate: two different error codes are needed, and a program laid out as a tree costs the
//! kernel a fraction of a linear list when it is installed, which happens for every attempt.

use libc::c_long;

/// BPF instruction.
pub type Instruction = libc::sock_filter;

/// Newest system call considered by this list.
const LAST_KNOWN_CALL: u32 = 466;
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;
/// First number of the x32 system calls, a second set on x86-64 for an ABI that is hardly used.
const X32_CALLS: u32 = 0x4000_0000;

// Offsets in `seccomp_data`, on little-endian machines.
const AT_NUMBER: u32 = 0;
const AT_ARCHITECTURE: u32 = 4;
const AT_ARGUMENTS: u32 = 16;

const fn low_half_of_argument(index: u32) -> u32 {
    AT_ARGUMENTS + 8 * index
}

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const JUMP_IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const JUMP_IF_ANY_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

const ALLOW: Instruction = returning(libc::SECCOMP_RET_ALLOW);
const KILL: Instruction = returning(libc::SECCOMP_RET_KILL_PROCESS);
const NOT_PERMITTED: Instruction = refusing(libc::EPERM);
const NOT_IMPLEMENTED: Instruction = refusing(libc::ENOSYS);

const fn returning(action: u32) -> Instruction {
    Instruction { code: RETURN, jt: 0, jf: 0, k: action }
}

const fn refusing(errno: i32) -> Instruction {
    returning(libc::SECCOMP_RET_ERRNO | errno as u32)
}

const fn load(offset: u32) -> Instruction {
    Instruction { code: LOAD, jt: 0, jf: 0, k: offset }
}

/// Skips `jt` instructions if the condition holds, `jf` if not.
const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> Instruction {
    Instruction { code, jt, jf, k }
}

/// Calls that fail with EPERM.
const FORBIDDEN: &[c_long] = &[
    // Mounts, roots and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_unshare,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    // The kernel itself.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    libc::SYS_nfsservctl,
    // Large attack surfaces that ordinary programs do not need.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_lookup_dcookie,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_personality,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_uselib,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ustat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_sysfs,
    #[cfg(target_arch = "x86_64")]
    libc::SYS__sysctl,
];

/// Calls that fail with ENOSYS: programs fall back to older calls whose arguments a filter can check.
const HIDDEN: &[c_long] =
    &[libc::SYS_clone3, libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

const NEW_NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

/// Instructions for one system call.
struct Rule {
    call: u32,
    body: Vec<Instruction>,
}

fn rules() -> Vec<Rule> {
    let plain = |calls: &[c_long], action: Instruction| {
        calls.iter().map(|call| Rule { call: *call as u32, body: vec![action] }).collect::<Vec<_>>()
    };
    let mut rules = plain(FORBIDDEN, NOT_PERMITTED);
    rules.extend(plain(HIDDEN, NOT_IMPLEMENTED));
    rules.push(Rule {
        call: libc::SYS_clone as u32,
        body: vec![load(low_half_of_argument(0)), jump(JUMP_IF_ANY_BIT, NEW_NAMESPACES, 0, 1), NOT_PERMITTED, ALLOW],
    });
    rules.push(Rule { call: libc::SYS_socket as u32, body: socket_families() });
    rules.push(Rule { call: libc::SYS_socketpair as u32, body: socket_families() });
    // Injection of input into another process's terminal.
    rules.push(Rule {
        call: libc::SYS_ioctl as u32,
        body: vec![
            load(low_half_of_argument(1)),
            jump(JUMP_IF_EQUAL, libc::TIOCSTI as u32, 1, 0),
            jump(JUMP_IF_EQUAL, libc::TIOCLINUX as u32, 0, 1),
            NOT_PERMITTED,
            ALLOW,
        ],
    });
    rules.sort_by_key(|rule| rule.call);
    rules
}

/// Sockets of other families bypass the network namespace or expose a large part of the kernel.
fn socket_families() -> Vec<Instruction> {
    let refused = refusing(libc::EAFNOSUPPORT);
    vec![
        load(low_half_of_argument(0)),
        jump(JUMP_IF_EQUAL, libc::AF_UNIX as u32, 4, 0),
        jump(JUMP_IF_EQUAL, libc::AF_INET as u32, 3, 0),
        jump(JUMP_IF_EQUAL, libc::AF_INET6 as u32, 2, 0),
        jump(JUMP_IF_EQUAL, libc::AF_NETLINK as u32, 1, 0),
        refused,
        ALLOW,
    ]
}

/// Rules per leaf of the tree, checked one after the other.
const LEAF_RULES: usize = 3;

/// The complete filter.
pub fn program() -> Vec<Instruction> {
    let mut program = vec![
        load(AT_ARCHITECTURE),
        jump(JUMP_IF_EQUAL, ARCHITECTURE, 1, 0),
        KILL,
        load(AT_NUMBER),
        jump(JUMP_IF_AT_LEAST, X32_CALLS, 1, 0),
        jump(JUMP_IF_AT_LEAST, LAST_KNOWN_CALL + 1, 0, 1),
        NOT_IMPLEMENTED,
    ];
    program.extend(tree(&rules()));
    program
}

/// The filter as bytes, for programs that take one from a file.
pub fn bytes() -> Vec<u8> {
    let encode = |instruction: Instruction| {
        let mut bytes = [0; 8];
        bytes[..2].copy_from_slice(&instruction.code.to_ne_bytes());
        (bytes[2], bytes[3]) = (instruction.jt, instruction.jf);
        bytes[4..].copy_from_slice(&instruction.k.to_ne_bytes());
        bytes
    };
    program().into_iter().flat_map(encode).collect()
}

fn tree(rules: &[Rule]) -> Vec<Instruction> {
    if rules.len() <= LEAF_RULES {
        let mut leaf = Vec::new();
        for rule in rules {
            leaf.push(jump(JUMP_IF_EQUAL, rule.call, 0, distance(rule.body.len())));
            leaf.extend(&rule.body);
        }
        leaf.push(ALLOW);
        return leaf;
    }
    let (low, high) = rules.split_at(rules.len() / 2);
    let below = tree(low);
    let mut whole = vec![jump(JUMP_IF_AT_LEAST, high[0].call, distance(below.len()), 0)];
    whole.extend(below);
    whole.extend(tree(high));
    whole
}

fn distance(instructions: usize) -> u8 {
    u8::try_from(instructions).expect("the filter is short enough for its jumps")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Evaluates a filter as the kernel does.
    fn evaluate(program: &[Instruction], number: u32, arguments: [u64; 2]) -> u32 {
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let instruction = program[at];
            at += 1;
            let mut skip = |holds: bool| at += usize::from(if holds { instruction.jt } else { instruction.jf });
            match instruction.code {
                RETURN => return instruction.k,
                LOAD => {
                    accumulator = match instruction.k {
                        AT_NUMBER => number,
                        AT_ARCHITECTURE => ARCHITECTURE,
                        offset => arguments[(offset - AT_ARGUMENTS) as usize / 8] as u32,
                    }
                }
                JUMP_IF_EQUAL => skip(accumulator == instruction.k),
                JUMP_IF_AT_LEAST => skip(accumulator >= instruction.k),
                JUMP_IF_ANY_BIT => skip(accumulator & instruction.k != 0),
                other => panic!("unknown instruction {other}"),
            }
        }
    }

    #[test]
    fn every_call_gets_the_action_of_its_list() {
        let program = program();
        for number in 0..=LAST_KNOWN_CALL {
            let call = c_long::from(number);
            if [libc::SYS_clone, libc::SYS_socket, libc::SYS_socketpair, libc::SYS_ioctl].contains(&call) {
                continue;
            }
            let expected = match call {
                call if FORBIDDEN.contains(&call) => NOT_PERMITTED.k,
                call if HIDDEN.contains(&call) => NOT_IMPLEMENTED.k,
                _ => ALLOW.k,
            };
            assert_eq!(evaluate(&program, number, [0, 0]), expected, "call {number}");
        }
        assert_eq!(evaluate(&program, LAST_KNOWN_CALL + 1, [0, 0]), NOT_IMPLEMENTED.k);
        assert_eq!(evaluate(&program, X32_CALLS + 1, [0, 0]), NOT_IMPLEMENTED.k);
    }

    #[test]
    fn some_actions_depend_on_arguments() {
        let program = program();
        let clone = |flags: i32| evaluate(&program, libc::SYS_clone as u32, [flags as u64, 0]);
        assert_eq!(clone(libc::SIGCHLD), ALLOW.k);
        assert_eq!(clone(libc::CLONE_NEWUSER | libc::SIGCHLD), NOT_PERMITTED.k);
        let socket = |family: i32| evaluate(&program, libc::SYS_socket as u32, [family as u64, 0]);
        assert_eq!(socket(libc::AF_INET6), ALLOW.k);
        assert_eq!(socket(libc::AF_VSOCK), refusing(libc::EAFNOSUPPORT).k);
        let ioctl = |request: u64| evaluate(&program, libc::SYS_ioctl as u32, [0, request]);
        assert_eq!(ioctl(libc::TCGETS), ALLOW.k);
        assert_eq!(ioctl(libc::TIOCSTI), NOT_PERMITTED.k);
        // The kernel, too, reads only the lower half.
        assert_eq!(ioctl(libc::TIOCSTI | 1 << 32), NOT_PERMITTED.k);
    }
}
