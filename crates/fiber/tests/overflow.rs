//! Tests that a stack overflow ends the process with a message that names the remedy, and that other faults
//! behave as before.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::mpsc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use weftwork_fiber::{Config, blocking, on_large_stack, run_with, spawn, yield_now};

const ROLE: &str = "FIBER_OVERFLOW_TEST_ROLE";

const SIGABRT: i32 = 6;

/// Printed by a role that ran to its end.
const DONE: &str = "all of it ran";

/// Runs this test program again, in a role that must end the process.
fn child(role: &str) -> Output {
    command(role).output().unwrap()
}

fn command(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "role_of_a_child", "--nocapture", "--test-threads=1"]).env(ROLE, role);
    command
}

#[inline(never)]
fn recurse(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 64]);
    if depth == 0 { 0 } else { recurse(depth - 1) + frame[63] }
}

#[inline(never)]
fn large_frame() -> u8 {
    std::hint::black_box([1_u8; 512 << 10])[4_097]
}

/// Runs `work` in a destructor of a cancelled fiber.
fn in_a_fiber_that_unwinds(work: fn()) {
    struct Last(fn());
    impl Drop for Last {
        fn drop(&mut self) {
            assert!(std::thread::panicking());
            (self.0)();
            println!("{DONE}");
        }
    }
    let fiber = spawn(move || {
        let _last = Last(work);
        loop {
            yield_now();
        }
    });
    yield_now();
    fiber.cancel();
    assert!(fiber.join().is_err());
}

/// Leaves the process enough memory for its allocations, but not for a large stack or the stack of a thread.
fn take_all_memory() {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    let bytes = pages * rustix::param::page_size() as u64 + (512 << 10);
    setrlimit(Resource::As, Rlimit { current: Some(bytes), ..getrlimit(Resource::As) }).unwrap();
}

#[test]
fn role_of_a_child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let config = if role == "panic" { Config::new() } else { Config::new().stack_bytes(100_000) };
    let role = move || {
        yield_now();
        match role.as_str() {
            "recursion" => drop(std::hint::black_box(recurse(1 << 40))),
            "no threads" => drop(std::hint::black_box(blocking(large_frame))),
            "unwinding" => in_a_fiber_that_unwinds(|| assert_eq!(blocking(large_frame), 1)),
            "unwinding without memory" => {
                take_all_memory();
                in_a_fiber_that_unwinds(|| assert_eq!(blocking(|| 7), 7));
            }
            "no threads and no memory" => {
                take_all_memory();
                assert_eq!(blocking(|| 7), 7);
                println!("{DONE}");
            }
            "no second thread" => {
                let (enters, has_entered) = mpsc::channel();
                let (go, wait) = mpsc::channel();
                let first = spawn(move || {
                    blocking(move || {
                        enters.send(()).unwrap();
                        wait.recv().unwrap();
                    });
                });
                yield_now();
                has_entered.recv().unwrap();
                take_all_memory();
                let second = spawn(|| blocking(|| 7));
                yield_now();
                go.send(()).unwrap();
                first.join().unwrap();
                assert_eq!(second.join().unwrap(), 7);
                println!("{DONE}");
            }
            "large stack" => drop(std::hint::black_box(on_large_stack(|| recurse(1 << 40)))),
            "large stack left" => {
                on_large_stack(yield_now);
                recurse(1 << 40);
            }
            "large frame" => drop(std::hint::black_box(large_frame())),
            "panic" => panic!("a panic with its backtrace fits the stack"),
            other => panic!("no such role: {other}"),
        }
    };
    if std::env::var(ROLE).is_ok_and(|role| role == "thread overflow") {
        // No fiber runs, so the previous handler must run.
        run_with(&config, yield_now).unwrap();
        std::hint::black_box(recurse(1 << 40));
    }
    run_with(&config, role).unwrap();
}

fn check_overflow(role: &str) {
    // Whole pages: 100,000 bytes are rounded up.
    let bytes = 100_000_usize.next_multiple_of(rustix::param::page_size());
    check_message(
        role,
        &format!(
            "fiber stack overflow: the fiber needs more than its {bytes} bytes: raise stack_bytes (fiber_stack_bytes of weftwork)"
        ),
    );
}

fn check_message(role: &str, message: &str) {
    let output = child(role);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(message), "{said}");
    assert_eq!(output.status.signal(), Some(SIGABRT), "{:?}", output.status);
}

#[test]
fn recursion_past_the_stack_says_what_to_raise() {
    check_overflow("recursion");
}

#[test]
fn an_overflow_names_the_stack_that_it_was_of() {
    check_message(
        "large stack",
        "a call in on_large_stack needs more than its 2097152 bytes: run it on a thread",
    );
    check_overflow("large stack left");
}

// With AddressSanitizer rustc emits no stack probes, so a large frame may step over the guard page there.
#[cfg(not(feature = "sanitizer"))]
#[test]
fn a_frame_larger_than_the_stack_does_not_step_over_the_guard() {
    check_overflow("large frame");
}

#[test]
fn an_overflow_outside_a_fiber_is_left_to_the_handler_before() {
    let output = child("thread overflow");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("fiber stack overflow"), "{said}");
    assert!(output.status.signal().is_some() || cfg!(feature = "sanitizer"), "{:?}: {said}", output.status);
    assert!(said.contains("overflow"), "{said}");
}

#[test]
fn a_panic_with_a_full_backtrace_fits_the_default_stack() {
    let arguments = ["--exact", "role_of_a_child", "--nocapture", "--test-threads=1"];
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(arguments).env(ROLE, "panic").env("RUST_BACKTRACE", "full").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("a panic with its backtrace fits") && said.contains("stack backtrace"), "{said}");
    assert_eq!(output.status.signal(), None);
}

/// Returns a command whose process cannot get the stack of a std thread.
fn without_threads(role: &str) -> Command {
    let mut command = command(role);
    command.env("RUST_MIN_STACK", (1_u64 << 60).to_string());
    command
}

#[test]
fn what_blocks_has_a_large_stack_where_no_thread_can_be_had() {
    let output = without_threads("no threads").output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn check_done(role: &str) {
    check_all_ran(command(role));
}

fn check_all_ran(mut command: Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains(DONE), "{output:?}");
}

#[test]
fn what_blocks_has_a_large_stack_in_a_fiber_that_unwinds() {
    check_done("unwinding");
}

// AddressSanitizer takes memory of its own. The other systems do not report how much memory a process has.
#[cfg(all(target_os = "linux", not(feature = "sanitizer")))]
#[test]
fn what_blocks_in_a_fiber_that_unwinds_runs_where_no_large_stack_can_be_had() {
    check_done("unwinding without memory");
}

#[cfg(all(target_os = "linux", not(feature = "sanitizer")))]
#[test]
fn what_blocks_runs_where_neither_a_thread_nor_a_large_stack_can_be_had() {
    check_all_ran(without_threads("no threads and no memory"));
}

#[cfg(all(target_os = "linux", not(feature = "sanitizer")))]
#[test]
fn what_blocks_waits_for_the_one_thread_there_is_where_no_other_can_be_had() {
    check_done("no second thread");
}
