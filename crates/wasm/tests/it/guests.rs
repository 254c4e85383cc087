//! Test components as WebAssembly text; the tests need no WebAssembly toolchain.

use bytes::Bytes;

const WORLD: &str = include_str!("world.wat");
const PRELUDE: &str = include_str!("prelude.wat");

/// Host functions: instance, name in the instance, name in the guest.
const FUNCTIONS: [(&str, &str, &str); 23] = [
    ("poll", "poll", "poll"),
    ("poll", "[method]pollable.block", "block"),
    ("streams", "[method]input-stream.blocking-read", "blocking-read"),
    ("streams", "[method]output-stream.blocking-write-and-flush", "blocking-write-and-flush"),
    ("streams", "[method]output-stream.write", "stream-write"),
    ("environment", "get-environment", "get-environment"),
    ("environment", "get-arguments", "get-arguments"),
    ("exit", "exit", "exit"),
    ("exit", "exit-with-code", "exit-with-code"),
    ("stdin", "get-stdin", "get-stdin"),
    ("stdout", "get-stdout", "get-stdout"),
    ("stderr", "get-stderr", "get-stderr"),
    ("clock", "subscribe-duration", "subscribe-duration"),
    ("random", "get-random-bytes", "get-random-bytes"),
    ("files", "[method]descriptor.open-at", "open-at"),
    ("files", "[method]descriptor.read", "read"),
    ("files", "[method]descriptor.write", "write"),
    ("files", "[method]descriptor.set-size", "set-size"),
    ("files", "[method]descriptor.write-via-stream", "write-via-stream"),
    ("files", "[method]descriptor.symlink-at", "symlink-at"),
    ("files", "[method]descriptor.create-directory-at", "create-directory-at"),
    ("preopens", "get-directories", "get-directories"),
    ("tcp-create", "create-tcp-socket", "create-tcp-socket"),
];

/// Component whose core module consists of the prelude and this body. It must export `run`, which returns 0 on success.
pub fn guest(body: &str) -> Bytes {
    let lower = |(instance, function, name): (&str, &str, &str)| {
        format!(
            "  (core func ${name} (canon lower (func ${instance} \"{function}\") \
             (memory $memory) (realloc $realloc)))\n"
        )
    };
    let lowered: String = FUNCTIONS.into_iter().map(lower).collect();
    let exports: String = FUNCTIONS.iter().map(|(_, _, name)| format!("(export \"{name}\" (func ${name})) ")).collect();
    wat(&format!(
        "(component\n{WORLD}\n{lowered}
          (core module $main-module\n{PRELUDE}\n{body}\n)
          (core instance $main (instantiate $main-module
            (with \"libc\" (instance $libc)) (with \"wasi\" (instance {exports}))))
          {})",
        entry("main")
    ))
}

/// Component without imports.
pub fn standalone(body: &str) -> Bytes {
    wat(&format!(
        "(component (core module $main-module {body}) (core instance $main (instantiate $main-module)) {})",
        entry("main")
    ))
}

pub fn noop() -> Bytes {
    standalone("(memory 1) (func (export \"run\") (result i32) i32.const 0)")
}

/// Prints one byte, then repeats `body` forever.
pub fn endless(body: &str) -> Bytes {
    guest(&format!(
        "(func (export \"run\") (result i32)
           (call $print (i32.const 1024) (i32.const 1))
           (loop $forever {body} (br $forever))
           unreachable)"
    ))
}

pub fn wat(text: &str) -> Bytes {
    wat::parse_str(text).unwrap_or_else(|error| panic!("{error}")).into()
}

fn entry(instance: &str) -> String {
    format!(
        "(func $run (result (result)) (canon lift (core func ${instance} \"run\")))
         (instance $entry (export \"run\" (func $run)))
         (export \"wasi:cli/run@0.2.0\" (instance $entry))"
    )
}
