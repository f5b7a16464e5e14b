// all_reduce.rs -- Rust over the small library, by its C interface.   SPDX-License-Identifier: MIT
//
//     rustc all_reduce.rs -L "$(pkg-config --variable=libdir tutti_comm)" -l tutti_comm && tutti run -n 2 ./all_reduce
//
// The declarations are those of <tutti/group.h> and <tutti/status.h> that it uses.
use std::ffi::{c_char, c_int, c_void, CStr};
use std::ptr::{null, null_mut};

#[repr(C)]
struct Buf {
    p: *mut c_void,
    count: usize,
    dtype: c_int,
    stream: *mut c_void, // null: memory of the host
}
const F64: c_int = 1;
const SUM: c_int = 0;

extern "C" {
    fn tutti_group_init(group_p: *mut *mut c_void, opts: *const c_void) -> c_int;
    fn tutti_group_free(group: *mut c_void);
    fn tutti_group_rank(group: *const c_void) -> c_int;
    fn tutti_group_size(group: *const c_void) -> c_int;
    fn tutti_all_reduce(group: *mut c_void, buf: Buf, op: c_int, work_p: *mut *mut c_void) -> c_int;
    fn tutti_last_error() -> *const c_char;
    fn tutti_status_exit_code(status: c_int) -> c_int;
}

/// Ends the process with the library's message and exit code unless all is well.
fn must(status: c_int) {
    if status != 0 {
        unsafe {
            eprintln!("{}", CStr::from_ptr(tutti_last_error()).to_string_lossy());
            std::process::exit(tutti_status_exit_code(status));
        }
    }
}

fn main() {
    let mut group = null_mut();
    unsafe {
        must(tutti_group_init(&mut group, null()));
        let (rank, size) = (tutti_group_rank(group), tutti_group_size(group));
        let mut x: Vec<f64> = (0..1000).map(|i| f64::from(rank + i)).collect();
        let buf = Buf { p: x.as_mut_ptr().cast(), count: x.len(), dtype: F64, stream: null_mut() };
        must(tutti_all_reduce(group, buf, SUM, null_mut()));
        if rank == 0 {
            println!("{size} ranks, sum of the last elements {}", x[999]);
        }
        tutti_group_free(group);
    }
}
