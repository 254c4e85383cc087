//! Choice of the global allocator at run time.
//!
//! A server allocates jobs on one thread and frees them on another, which is slow with the system allocator. A spawner
//! forks constantly, and every touched page makes a fork slower: the system allocator is better there, because it
//! touches fewer pages.

#![expect(unsafe_code, reason = "implements GlobalAlloc by delegation to one of two allocators")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering};

use mimalloc::MiMalloc;

static USE_SYSTEM: AtomicBool = AtomicBool::new(false);

/// Switches to the system allocator.
///
/// # Safety
/// No allocation made before may be freed or reallocated afterwards.
pub unsafe fn use_system() {
    USE_SYSTEM.store(true, Ordering::Relaxed);
}

pub struct Allocator;

// SAFETY: both allocators uphold the contract, and the choice changes only as `use_system` permits.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract.
        unsafe { if USE_SYSTEM.load(Ordering::Relaxed) { System.alloc(layout) } else { MiMalloc.alloc(layout) } }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract.
        unsafe {
            if USE_SYSTEM.load(Ordering::Relaxed) { System.alloc_zeroed(layout) } else { MiMalloc.alloc_zeroed(layout) }
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller upholds the contract.
        unsafe {
            if USE_SYSTEM.load(Ordering::Relaxed) {
                System.realloc(pointer, layout, size)
            } else {
                MiMalloc.realloc(pointer, layout, size)
            }
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract.
        unsafe {
            if USE_SYSTEM.load(Ordering::Relaxed) {
                System.dealloc(pointer, layout)
            } else {
                MiMalloc.dealloc(pointer, layout)
            }
        }
    }
}
