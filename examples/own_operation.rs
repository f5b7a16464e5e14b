// own_operation.rs -- own_operation.c in Rust, by the C interface.   SPDX-License-Identifier: MIT
//
//     rustc own_operation.rs -L "$(pkg-config --variable=libdir tutti)" -l tutti && ./own_operation
//
// The declarations are those of <tutti/op.h>, <tutti/tensor.h> and <tutti/status.h> that it uses.
#![allow(dead_code)]
use std::ffi::{c_char, c_int, c_uint, c_void, CStr};
use std::ptr::{null, null_mut};
use std::slice::{from_raw_parts, from_raw_parts_mut};

#[repr(C)]
struct Shape {
    n: c_int,
    d: [i64; 6],
}
#[repr(C)]
struct Array {
    p: *const f32,
    shape: Shape,
    dtype: c_int,
}
#[repr(C)]
struct Args {
    cx: *mut c_void,
    attributes: *const c_void,
    n_src: c_int,
    sources: *const *mut c_void,
    shape: Shape,
    src: *const *const f32,
    dsrc: *const *mut f32,
    y: *mut f32,
    indices: *mut i64,
    dy: *const f32,
    kept: *mut f32,
    count: i64,
    internal: *const c_void,
    reserved: [u64; 4],
}
#[repr(C)]
struct Op {
    name: *const c_char,
    shape: Option<extern "C" fn(*const Args, *mut Shape, *mut c_int) -> c_int>,
    forward: extern "C" fn(*const Args),
    backward: extern "C" fn(*const Args),
    no_grad: bool,
    elementwise: bool,
    backward_reads: c_uint,
    activations: c_uint,
    autocast: c_int,
    keeps: Option<extern "C" fn(*const Args) -> i64>,
    reserved: [u64; 4],
}
unsafe impl Sync for Op {} // it is constant
type Call = extern "C" fn(*const *mut c_void, *mut c_void) -> *mut c_void;

extern "C" {
    fn tutti_op_run(op: *const Op, src: *const *mut c_void, n_src: c_int, attributes: *const c_void, bytes: usize) -> *mut c_void;
    fn tutti_op_check(call: Call, arg: *mut c_void, sources: *const Array, n: c_int, opts: *const c_void) -> c_int;
    fn tutti_last_error() -> *const c_char;
    fn tutti_status_exit_code(status: c_int) -> c_int;
}

extern "C" fn forward(p: *const Args) {
    unsafe {
        let (p, n, b) = (&*p, (*p).count as usize, *(*p).attributes.cast::<f32>());
        let (x, y) = (from_raw_parts(*p.src, n), from_raw_parts_mut(p.y, n));
        for i in 0..n {
            y[i] = (x[i] + (x[i] * x[i] + b).sqrt()) / 2.0;
        }
    }
}

extern "C" fn backward(p: *const Args) {
    unsafe {
        let (p, n, b) = (&*p, (*p).count as usize, *(*p).attributes.cast::<f32>());
        let (x, dy, dx) = (from_raw_parts(*p.src, n), from_raw_parts(p.dy, n), from_raw_parts_mut(*p.dsrc, n));
        for i in 0..n {
            dx[i] = dy[i] * (1.0 + x[i] / (x[i] * x[i] + b).sqrt()) / 2.0;
        }
    }
}

static SQUAREPLUS: Op = Op {
    name: "squareplus\0".as_ptr().cast(),
    shape: None,
    forward,
    backward,
    no_grad: false,
    elementwise: true,
    backward_reads: 1 << 0,
    activations: 1 << 0,
    autocast: 0,
    keeps: None,
    reserved: [0; 4],
};

#[no_mangle]
pub extern "C" fn squareplus(x: *mut c_void, b: f32) -> *mut c_void {
    unsafe { tutti_op_run(&SQUAREPLUS, &x, 1, (&b as *const f32).cast(), 4) }
}

extern "C" fn call(src: *const *mut c_void, _: *mut c_void) -> *mut c_void {
    squareplus(unsafe { *src }, 4.0)
}

fn main() {
    let x = [-2f32, -0.5, 0.0, 0.5, 2.0, 30.0];
    let source = Array { p: x.as_ptr(), shape: Shape { n: 2, d: [2, 3, 0, 0, 0, 0] }, dtype: 0 };
    unsafe {
        let status = tutti_op_check(call, null_mut(), &source, 1, null());
        if status != 0 {
            eprintln!("{}", CStr::from_ptr(tutti_last_error()).to_string_lossy());
            std::process::exit(tutti_status_exit_code(status));
        }
    }
    println!("squareplus is right");
}
