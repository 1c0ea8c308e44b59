//! The program of the bench.

use std::process::ExitCode;

fn main() -> ExitCode {
    weftwork_bench::main()
}
