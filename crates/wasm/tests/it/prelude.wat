    ;; Prelude of the test guests. Results of host calls are stored at address 0; data starts at 1024.
    (import "libc" "memory" (memory $memory 1))
    (import "wasi" "poll" (func $poll (param i32 i32 i32)))
    (import "wasi" "block" (func $block (param i32)))
    (import "wasi" "blocking-read" (func $blocking-read (param i32 i64 i32)))
    (import "wasi" "blocking-write-and-flush" (func $blocking-write-and-flush (param i32 i32 i32 i32)))
    (import "wasi" "stream-write" (func $stream-write (param i32 i32 i32 i32)))
    (import "wasi" "get-environment" (func $get-environment (param i32)))
    (import "wasi" "get-arguments" (func $get-arguments (param i32)))
    (import "wasi" "exit" (func $exit (param i32)))
    (import "wasi" "exit-with-code" (func $exit-with-code (param i32)))
    (import "wasi" "get-stdin" (func $get-stdin (result i32)))
    (import "wasi" "get-stdout" (func $get-stdout (result i32)))
    (import "wasi" "get-stderr" (func $get-stderr (result i32)))
    (import "wasi" "subscribe-duration" (func $subscribe-duration (param i64) (result i32)))
    (import "wasi" "get-random-bytes" (func $get-random-bytes (param i64 i32)))
    (import "wasi" "open-at" (func $open-at (param i32 i32 i32 i32 i32 i32 i32)))
    (import "wasi" "read" (func $read (param i32 i64 i64 i32)))
    (import "wasi" "write" (func $write (param i32 i32 i32 i64 i32)))
    (import "wasi" "set-size" (func $set-size (param i32 i64 i32)))
    (import "wasi" "write-via-stream" (func $write-via-stream (param i32 i64 i32)))
    (import "wasi" "symlink-at" (func $symlink-at (param i32 i32 i32 i32 i32 i32)))
    (import "wasi" "create-directory-at" (func $create-directory-at (param i32 i32 i32 i32)))
    (import "wasi" "get-directories" (func $get-directories (param i32)))
    (import "wasi" "create-tcp-socket" (func $create-tcp-socket (param i32 i32)))

    (func $print (param $at i32) (param $len i32)
      (call $blocking-write-and-flush (call $get-stdout) (local.get $at) (local.get $len) (i32.const 0)))

    ;; Exits with the error code of the last call, if any, plus 100. The address of the code depends on the size of the
    ;; success value.
    (func $check (param $code-at i32)
      (if (i32.load8_u (i32.const 0))
        (then (call $exit-with-code (i32.add (i32.const 100) (i32.load8_u (local.get $code-at)))))))

    ;; The n-th preopened directory.
    (func $directory (param $n i32) (result i32)
      (call $get-directories (i32.const 0))
      (i32.load (i32.add (i32.load (i32.const 0)) (i32.mul (local.get $n) (i32.const 12)))))

    ;; Opens a file. $flags: 1 to read, 2 to write. $how: 1 to create.
    (func $open (param $directory i32) (param $at i32) (param $len i32) (param $how i32) (param $flags i32) (result i32)
      (call $open-at (local.get $directory) (i32.const 1) (local.get $at) (local.get $len)
        (local.get $how) (local.get $flags) (i32.const 0))
      (call $check (i32.const 4))
      (i32.load (i32.const 4)))
