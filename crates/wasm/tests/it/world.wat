  ;; Imports of the test guests: a subset of WASI 0.2.
  (import "wasi:io/error@0.2.0" (instance $error
    (export "error" (type (sub resource)))))
  (alias export $error "error" (type $error-type))

  (import "wasi:io/poll@0.2.0" (instance $poll
    (export "pollable" (type $pollable (sub resource)))
    (export "[method]pollable.block" (func (param "self" (borrow $pollable))))
    (export "poll" (func (param "in" (list (borrow $pollable))) (result (list u32))))))
  (alias export $poll "pollable" (type $pollable-type))

  (import "wasi:io/streams@0.2.0" (instance $streams
    (export "input-stream" (type $in (sub resource)))
    (export "output-stream" (type $out (sub resource)))
    (alias outer 1 $error-type (type $error-outer))
    (export "error" (type $error (eq $error-outer)))
    (type $stream-error-type (variant (case "last-operation-failed" (own $error)) (case "closed")))
    (export "stream-error" (type $stream-error (eq $stream-error-type)))
    (export "[method]input-stream.blocking-read"
      (func (param "self" (borrow $in)) (param "len" u64) (result (result (list u8) (error $stream-error)))))
    (export "[method]output-stream.blocking-write-and-flush"
      (func (param "self" (borrow $out)) (param "contents" (list u8)) (result (result (error $stream-error)))))
    (export "[method]output-stream.write"
      (func (param "self" (borrow $out)) (param "contents" (list u8)) (result (result (error $stream-error)))))))
  (alias export $streams "input-stream" (type $input-stream-type))
  (alias export $streams "output-stream" (type $output-stream-type))

  (import "wasi:cli/environment@0.2.0" (instance $environment
    (export "get-environment" (func (result (list (tuple string string)))))
    (export "get-arguments" (func (result (list string))))))
  (import "wasi:cli/exit@0.2.0" (instance $exit
    (export "exit" (func (param "status" (result))))
    (export "exit-with-code" (func (param "status-code" u8)))))
  (import "wasi:cli/stdin@0.2.0" (instance $stdin
    (alias outer 1 $input-stream-type (type $outer))
    (export "input-stream" (type $in (eq $outer)))
    (export "get-stdin" (func (result (own $in))))))
  (import "wasi:cli/stdout@0.2.0" (instance $stdout
    (alias outer 1 $output-stream-type (type $outer))
    (export "output-stream" (type $out (eq $outer)))
    (export "get-stdout" (func (result (own $out))))))
  (import "wasi:cli/stderr@0.2.0" (instance $stderr
    (alias outer 1 $output-stream-type (type $outer))
    (export "output-stream" (type $out (eq $outer)))
    (export "get-stderr" (func (result (own $out))))))
  (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
    (alias outer 1 $pollable-type (type $outer))
    (export "pollable" (type $pollable (eq $outer)))
    (export "subscribe-duration" (func (param "when" u64) (result (own $pollable))))))
  (import "wasi:random/random@0.2.0" (instance $random
    (export "get-random-bytes" (func (param "len" u64) (result (list u8))))))

  (import "wasi:filesystem/types@0.2.0" (instance $files
    (export "descriptor" (type $descriptor (sub resource)))
    (alias outer 1 $output-stream-type (type $outer))
    (export "output-stream" (type $out (eq $outer)))
    (type $error-code-type (enum "access" "would-block" "already" "bad-descriptor" "busy" "deadlock" "quota" "exist"
      "file-too-large" "illegal-byte-sequence" "in-progress" "interrupted" "invalid" "io" "is-directory" "loop"
      "too-many-links" "message-size" "name-too-long" "no-device" "no-entry" "no-lock" "insufficient-memory"
      "insufficient-space" "not-directory" "not-empty" "not-recoverable" "unsupported" "no-tty" "no-such-device"
      "overflow" "not-permitted" "pipe" "read-only" "invalid-seek" "text-file-busy" "cross-device"))
    (export "error-code" (type $error-code (eq $error-code-type)))
    (type $path-flags-type (flags "symlink-follow"))
    (export "path-flags" (type $path-flags (eq $path-flags-type)))
    (type $open-flags-type (flags "create" "directory" "exclusive" "truncate"))
    (export "open-flags" (type $open-flags (eq $open-flags-type)))
    (type $descriptor-flags-type (flags "read" "write" "file-integrity-sync" "data-integrity-sync"
      "requested-write-sync" "mutate-directory"))
    (export "descriptor-flags" (type $descriptor-flags (eq $descriptor-flags-type)))
    (export "[method]descriptor.open-at"
      (func (param "self" (borrow $descriptor)) (param "path-flags" $path-flags) (param "path" string)
        (param "open-flags" $open-flags) (param "flags" $descriptor-flags)
        (result (result (own $descriptor) (error $error-code)))))
    (export "[method]descriptor.read"
      (func (param "self" (borrow $descriptor)) (param "length" u64) (param "offset" u64)
        (result (result (tuple (list u8) bool) (error $error-code)))))
    (export "[method]descriptor.write"
      (func (param "self" (borrow $descriptor)) (param "buffer" (list u8)) (param "offset" u64)
        (result (result u64 (error $error-code)))))
    (export "[method]descriptor.set-size"
      (func (param "self" (borrow $descriptor)) (param "size" u64) (result (result (error $error-code)))))
    (export "[method]descriptor.write-via-stream"
      (func (param "self" (borrow $descriptor)) (param "offset" u64) (result (result (own $out) (error $error-code)))))
    (export "[method]descriptor.symlink-at"
      (func (param "self" (borrow $descriptor)) (param "old-path" string) (param "new-path" string)
        (result (result (error $error-code)))))
    (export "[method]descriptor.create-directory-at"
      (func (param "self" (borrow $descriptor)) (param "path" string) (result (result (error $error-code)))))))
  (alias export $files "descriptor" (type $descriptor-type))
  (import "wasi:filesystem/preopens@0.2.0" (instance $preopens
    (alias outer 1 $descriptor-type (type $outer))
    (export "descriptor" (type $descriptor (eq $outer)))
    (export "get-directories" (func (result (list (tuple (own $descriptor) string)))))))

  (import "wasi:sockets/network@0.2.0" (instance $network
    (type $error-code-type (enum "unknown" "access-denied" "not-supported" "invalid-argument" "out-of-memory" "timeout"
      "concurrency-conflict" "not-in-progress" "would-block" "invalid-state" "new-socket-limit" "address-not-bindable"
      "address-in-use" "remote-unreachable" "connection-refused" "connection-reset" "connection-aborted"
      "datagram-too-large" "name-unresolvable" "temporary-resolver-failure" "permanent-resolver-failure"))
    (export "error-code" (type (eq $error-code-type)))
    (type $family-type (enum "ipv4" "ipv6"))
    (export "ip-address-family" (type (eq $family-type)))))
  (alias export $network "error-code" (type $socket-error-type))
  (alias export $network "ip-address-family" (type $family-type))
  (import "wasi:sockets/tcp@0.2.0" (instance $tcp
    (export "tcp-socket" (type (sub resource)))))
  (alias export $tcp "tcp-socket" (type $tcp-socket-type))
  (import "wasi:sockets/tcp-create-socket@0.2.0" (instance $tcp-create
    (alias outer 1 $socket-error-type (type $error-outer))
    (export "error-code" (type $error-code (eq $error-outer)))
    (alias outer 1 $family-type (type $family-outer))
    (export "ip-address-family" (type $family (eq $family-outer)))
    (alias outer 1 $tcp-socket-type (type $socket-outer))
    (export "tcp-socket" (type $socket (eq $socket-outer)))
    (export "create-tcp-socket"
      (func (param "address-family" $family) (result (result (own $socket) (error $error-code)))))))

  ;; The guest's memory and a minimal allocator.
  (core module $libc-module
    (memory (export "memory") 1)
    (global $next (mut i32) (i32.const 32768))
    (func (export "realloc") (param i32 i32) (param $align i32) (param $size i32) (result i32)
      (local $at i32) (local $missing i32)
      (local.set $at (i32.and
        (i32.add (global.get $next) (i32.sub (local.get $align) (i32.const 1)))
        (i32.sub (i32.const 0) (local.get $align))))
      (global.set $next (i32.add (local.get $at) (local.get $size)))
      (local.set $missing (i32.sub
        (i32.shr_u (i32.add (global.get $next) (i32.const 65535)) (i32.const 16))
        (memory.size)))
      (if (i32.gt_s (local.get $missing) (i32.const 0))
        (then (if (i32.eq (memory.grow (local.get $missing)) (i32.const -1)) (then unreachable))))
      (local.get $at)))
  (core instance $libc (instantiate $libc-module))
  (alias core export $libc "memory" (core memory $memory))
  (alias core export $libc "realloc" (core func $realloc))
