;; A component that greets whom its first argument names. README.md shows how it is run.
;; hello.wasm beside it is this text in binary form; a test holds the two together.
(component
  ;; What it needs of its host, in the words of WASI 0.2: its arguments, and a place to write to.
  (import "wasi:io/error@0.2.0" (instance $error
    (export "error" (type (sub resource)))))
  (alias export $error "error" (type $error-type))
  (import "wasi:io/streams@0.2.0" (instance $streams
    (export "output-stream" (type $out (sub resource)))
    (alias outer 1 $error-type (type $error-outer))
    (export "error" (type $error (eq $error-outer)))
    (type $stream-error-type (variant (case "last-operation-failed" (own $error)) (case "closed")))
    (export "stream-error" (type $stream-error (eq $stream-error-type)))
    (export "[method]output-stream.blocking-write-and-flush"
      (func (param "self" (borrow $out)) (param "contents" (list u8)) (result (result (error $stream-error)))))))
  (alias export $streams "output-stream" (type $output-stream-type))
  (import "wasi:cli/stdout@0.2.0" (instance $stdout
    (alias outer 1 $output-stream-type (type $outer))
    (export "output-stream" (type $out (eq $outer)))
    (export "get-stdout" (func (result (own $out))))))
  (import "wasi:cli/environment@0.2.0" (instance $environment
    (export "get-arguments" (func (result (list string))))))

  ;; Its memory, and the least that can be called an allocator: what the host brings is put behind what came before.
  (core module $memory-module
    (memory (export "memory") 1)
    (global $next (mut i32) (i32.const 4096))
    (func (export "realloc") (param $old i32) (param $old-size i32) (param $align i32) (param $size i32) (result i32)
      (local $at i32)
      (local.set $at (i32.and (i32.add (global.get $next) (i32.const 7)) (i32.const -8)))
      (global.set $next (i32.add (local.get $at) (local.get $size)))
      (if (i32.gt_u (global.get $next) (i32.const 65536)) (then unreachable))
      (local.get $at)))
  (core instance $host (instantiate $memory-module))
  (alias core export $host "memory" (core memory $memory))
  (alias core export $host "realloc" (core func $realloc))

  (core func $get-stdout (canon lower (func $stdout "get-stdout")))
  (core func $get-arguments
    (canon lower (func $environment "get-arguments") (memory $memory) (realloc $realloc)))
  (core func $write
    (canon lower (func $streams "[method]output-stream.blocking-write-and-flush") (memory $memory) (realloc $realloc)))

  (core module $main-module
    (import "host" "memory" (memory 1))
    (import "wasi" "get-stdout" (func $get-stdout (result i32)))
    (import "wasi" "get-arguments" (func $get-arguments (param i32)))
    (import "wasi" "write" (func $write (param i32 i32 i32 i32)))
    (data (i32.const 1024) "hello, \0anobody")

    ;; Answers of the host are put at 0.
    (func $print (param $at i32) (param $len i32)
      (call $write (call $get-stdout) (local.get $at) (local.get $len) (i32.const 0)))

    ;; 0: all is well.
    (func (export "run") (result i32)
      (local $argument i32)
      (call $print (i32.const 1024) (i32.const 7))
      (call $get-arguments (i32.const 16))
      (if (i32.gt_u (i32.load (i32.const 20)) (i32.const 1))
        (then
          ;; The second of the list: the first is the name of the program.
          (local.set $argument (i32.add (i32.load (i32.const 16)) (i32.const 8)))
          (call $print (i32.load (local.get $argument)) (i32.load offset=4 (local.get $argument))))
        (else (call $print (i32.const 1032) (i32.const 6))))
      (call $print (i32.const 1031) (i32.const 1))
      (i32.const 0)))
  (core instance $main (instantiate $main-module
    (with "host" (instance $host))
    (with "wasi" (instance
      (export "get-stdout" (func $get-stdout))
      (export "get-arguments" (func $get-arguments))
      (export "write" (func $write))))))

  (func $run (result (result)) (canon lift (core func $main "run")))
  (instance $entry (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $entry)))
