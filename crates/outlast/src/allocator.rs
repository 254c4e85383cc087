//! Which allocator serves this process.
//!
//! A server allocates jobs on one thread and frees them on another, which the system's allocator is slow at. A spawner
//! forks all the time and pays for every page that it has touched: there the system's allocator is better, since it keeps
//! things together.

#![expect(unsafe_code, reason = "an allocator is unsafe by nature; this one only chooses between two")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering};

use mimalloc::MiMalloc;

static DENSE: AtomicBool = AtomicBool::new(false);

/// Chooses the system's allocator from here on.
///
/// # Safety
/// Nothing that was allocated before may be freed afterwards.
pub unsafe fn use_system() {
    DENSE.store(true, Ordering::Relaxed);
}

pub struct Allocator;

// SAFETY: both keep the contract, and which of the two it is changes only where `use_system` allows it.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract.
        unsafe { if DENSE.load(Ordering::Relaxed) { System.alloc(layout) } else { MiMalloc.alloc(layout) } }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract.
        unsafe {
            if DENSE.load(Ordering::Relaxed) { System.alloc_zeroed(layout) } else { MiMalloc.alloc_zeroed(layout) }
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract.
        unsafe {
            if DENSE.load(Ordering::Relaxed) {
                System.realloc(pointer, layout, size)
            } else {
                MiMalloc.realloc(pointer, layout, size)
            }
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe {
            if DENSE.load(Ordering::Relaxed) {
                System.dealloc(pointer, layout)
            } else {
                MiMalloc.dealloc(pointer, layout)
            }
        }
    }
}
