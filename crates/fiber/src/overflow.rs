//! Reports a stack overflow of a fiber. One of the two files with `unsafe`.
//!
//! The guard page turns an overflow into SIGSEGV (SIGBUS on some systems). A handler on an alternate stack
//! checks whether the address is in the guard page of the running fiber. If so, it writes a message with the
//! remedy and aborts. Otherwise it passes the signal to the previous handler (Rust's own, or a sanitizer's).
//! Rust code cannot skip a guard page, because its stack probes touch every page of a large frame.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ops::Range;
use std::sync::{Once, OnceLock};
use std::{io, mem, ptr};

use crate::stack::GuardedStack;

/// The guard page of a stack, and the values of its overflow message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guarded {
    low: usize,
    high: usize,
    usable_bytes: usize,
    owner: Owner,
}

/// The owner of a stack.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owner {
    Fiber,
    /// A call of `on_large_stack`.
    Call,
}

impl Guarded {
    pub(crate) fn new(stack: &GuardedStack, owner: Owner) -> Self {
        let Range { start: low, end: high } = stack.guard();
        Guarded { low, high, usable_bytes: stack.usable_bytes(), owner }
    }
}

thread_local! {
    // Const and without a destructor, because the signal handler may read it at any time.
    static RUNNING: Cell<Option<Guarded>> = const { Cell::new(None) };
}

/// Returns the stack that this thread runs on, if it is not its own.
pub(crate) fn guarded() -> Option<Guarded> {
    RUNNING.get()
}

/// Sets the stack that this thread runs on.
pub(crate) fn set_guarded(guarded: Option<Guarded>) {
    RUNNING.set(guarded);
}

const SIGNALS: [libc::c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

static PREVIOUS: OnceLock<[libc::sigaction; 2]> = OnceLock::new();

/// Keeps the alternate signal stack of the calling thread. `None` if the thread already had one.
#[derive(Debug)]
pub(crate) struct SignalStack(Option<Vec<u8>>);

/// Installs the handler, once for the process, and an alternate stack for the calling thread.
///
/// # Errors
///
/// Fails if the kernel rejects one of the two.
pub(crate) fn install() -> io::Result<SignalStack> {
    static INSTALL: Once = Once::new();
    let mut result = Ok(());
    INSTALL.call_once(|| result = install_handlers());
    result?;
    SignalStack::install()
}

fn install_handlers() -> io::Result<()> {
    // SAFETY: an all-zero sigaction is a valid value (default action, empty mask), and the calls read and write
    // only these locals. The old actions are stored before the new handler can run.
    unsafe {
        let mut previous: [libc::sigaction; 2] = mem::zeroed();
        for (signal, old) in SIGNALS.into_iter().zip(&mut previous) {
            succeeded(libc::sigaction(signal, ptr::null(), old))?;
        }
        let _ = PREVIOUS.set(previous);
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = handle as extern "C" fn(_, _, _) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        for signal in SIGNALS {
            succeeded(libc::sigaction(signal, &action, ptr::null_mut()))?;
        }
    }
    Ok(())
}

fn succeeded(returned: libc::c_int) -> io::Result<()> {
    if returned == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl SignalStack {
    fn install() -> io::Result<Self> {
        // SAFETY: an all-zero stack_t is valid and the first call only fills it in. The vector's heap block
        // stays where it is until `drop` has withdrawn it from the kernel, on this thread: the holder is !Send.
        unsafe {
            let mut now: libc::stack_t = mem::zeroed();
            succeeded(libc::sigaltstack(ptr::null(), &mut now))?;
            if now.ss_flags & libc::SS_DISABLE == 0 {
                return Ok(SignalStack(None));
            }
            let mut bytes = vec![0_u8; libc::SIGSTKSZ.max(64 << 10)];
            let stack = libc::stack_t { ss_sp: bytes.as_mut_ptr().cast(), ss_flags: 0, ss_size: bytes.len() };
            succeeded(libc::sigaltstack(&stack, ptr::null_mut()))?;
            Ok(SignalStack(Some(bytes)))
        }
    }
}

impl Drop for SignalStack {
    fn drop(&mut self) {
        let Some(bytes) = &self.0 else { return };
        // SAFETY: an all-zero stack_t is valid, and the first call only fills it in. The second call removes the
        // stack that `install` set, if it is still in use. For that it needs a zeroed stack_t with SS_DISABLE.
        unsafe {
            let mut now: libc::stack_t = mem::zeroed();
            let is_known = libc::sigaltstack(ptr::null(), &mut now) == 0;
            // Other code may have set another stack since.
            if is_known && now.ss_sp.cast::<u8>().cast_const() != bytes.as_ptr() {
                return;
            }
            let mut off: libc::stack_t = mem::zeroed();
            off.ss_flags = libc::SS_DISABLE;
            libc::sigaltstack(&off, ptr::null_mut());
        }
    }
}

/// Async-signal-safe: no allocation, no lock, only write(2), abort(3) and sigaction(2).
extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to an SA_SIGINFO handler of SIGSEGV and SIGBUS.
    let address = unsafe { (*info).si_addr() } as usize;
    match RUNNING.get() {
        Some(stack) if (stack.low..stack.high).contains(&address) => report_and_abort(stack),
        _ => chain(signal, info, context),
    }
}

fn report_and_abort(stack: Guarded) -> ! {
    let (who, remedy) = match stack.owner {
        Owner::Fiber => {
            (b"the fiber needs".as_slice(), b"raise stack_bytes (fiber_stack_bytes of weftwork)".as_slice())
        }
        Owner::Call => (b"a call in on_large_stack needs".as_slice(), b"run it on a thread".as_slice()),
    };
    let mut digits = [0_u8; 20];
    let bytes = decimal(stack.usable_bytes, &mut digits);
    for text in [b"\nfiber stack overflow: ", who, b" more than its ", bytes, b" bytes: ", remedy, b"\n"] {
        // SAFETY: the pointer and length are of one live slice. A failed write changes nothing: we abort anyway.
        unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    }
    std::process::abort()
}

fn decimal(mut number: usize, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}

fn chain(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let at = SIGNALS.iter().position(|&known| known == signal);
    let previous = PREVIOUS.get().zip(at).map(|(actions, at)| actions[at]);
    match previous {
        Some(action) if action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN => {
            // SAFETY: sigaction(2) returned this address as the handler of this signal. SA_SIGINFO tells which
            // of the two signatures it has. The handler gets the arguments of this call.
            unsafe {
                if action.sa_flags & libc::SA_SIGINFO != 0 {
                    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                        mem::transmute(action.sa_sigaction);
                    handler(signal, info, context);
                } else {
                    let handler: extern "C" fn(libc::c_int) = mem::transmute(action.sa_sigaction);
                    handler(signal);
                }
            }
        }
        // With the default action back in place the access faults again and ends the process.
        // SAFETY: signal(2) with SIG_DFL has no other effect.
        _ => unsafe {
            libc::signal(signal, libc::SIG_DFL);
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_writes_what_format_does() {
        for number in [0, 9, 10, 65_536, usize::MAX] {
            assert_eq!(decimal(number, &mut [0; 20]), number.to_string().as_bytes());
        }
    }
}
