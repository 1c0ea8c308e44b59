//! What does `--help` say?

pub(super) const ROOT: &str = "\
Measures weft beside hand-written floors and the servers of others, in one run on this machine.

Usage: weftwork-bench <COMMAND>

Commands:
  quick          weft beside the floors and nginx, in four minutes
  full           the whole grid: every engine, every peer, every workload
  router         a hundred typed routes beside a handler without any
  turns          what a request costs servers that have the load in turn, to a per cent
  report         pages from the JSON of a run
  track          add a run to the history of commits
  compare        a run beside the best of the last commits
  instructions   what the pure parts cost, counted by callgrind
  events         how late a tick reaches ten thousand event streams
  held           whether ten thousand clients are answered whose handlers all wait
  floor          one of the floors alone, until killed
  site           one of the two servers of 'router' alone, until stopped
  soak           hostile clients for minutes, and what they must not change
  slow-heads     very many clients that send a head one byte a second

'weftwork-bench <COMMAND> --help' says more.
";

pub(super) const QUICK: &str = "\
Every comparison in turn: server on one core, load on another, a fresh server each time.

Usage: weftwork-bench quick [OPTIONS]

Options:
  --rounds N             rounds; medians over them are shown [5]
  --seconds S            measured time of each cell, after a short warm-up [1]
  --only A,B,..          workloads: keepalive, close, pipelined, slow-100, slow-400,
                         slow-close-100, slow-close-400 (slow: all four), mixed, idle [all]
  --subjects A,B,..      floor, floor:spawn, nginx, weft, weft:ENGINE, or a peer of 'full' [floor,nginx,weft]
                         (floor:spawn: a new thread for each connection, where handlers block)
  --engine ENGINE        engine of the plain subject weft [its own default]
  --weft PATH            measure this binary instead of building weftwork-cli
  --cores SERVER,LOAD    cores to pin to, or spans of them: 0-3,4-7 gives each server four, and as many
                         workers, loops or GOMAXPROCS [0,1]
  --distance far|near    where the host of a virtual machine moves its cores closer together and apart again: in which
                         of the two places a cell counts [where they mostly are while both are busy]
  --load own|wrk         who asks; wrk takes a thread for each core of the load, own takes one in all; wrk does
                         not do bodies, fields, ranges, churn, fixed rates, mixed and idle [own]
  --idle N               connections of the idle workload [9000]
  --json                 one JSON document instead of the tables
  -h, --help             this text

Ratios to the floor are taken within each round, so that slow drifts of the machine cancel.
'busy' is the server's share of its core, 'others' what strangers took of both: where that is high, only
CPU a request and ratios mean something. 'spread' is how far the rounds lie apart.
Exit code: 0 measured (won or lost), 1 could not measure anything of weft's, 2 wrong arguments, 130 interrupted.
";

pub(super) const TURNS: &str = "\
Servers that run at once and have the load in turn, for some hundredths of a second each or as long as it takes: what
the machine does meanwhile befalls all of them. For differences of a few per cent, between two builds say.

Usage: weftwork-bench turns [OPTIONS]

Options:
  --rounds N             how often each has its turn, 5 at least [300]
  --turn-ms N            how long a turn is [30; 400 where handlers block, 300 with 8 MiB and more under way, 1000 at a
                         fixed rate and for files of 10 MiB]
  --only A,B,..          workloads of 'quick' and 'full', but for mixed and idle [keepalive]
  --subjects A,B,..      as in quick; ratios are to the first one [floor,nginx,weft]
  --beside PATH          another build of weft, on the default engine
  --engine, --weft, --cores: as in quick
  -h, --help             this text

'us/request' is the time of a turn for each answer: what it costs the server, where its core has nothing to wait
for. At a fixed rate CPU is compared, which the kernel tells in ticks of 10 ms: at a low one that takes many rounds. With 8 MiB and more under way each turn has new connections. Only rounds in which the host left the cores where they were are shown, a table for each place.
";

pub(super) const FULL: &str = "\
The whole grid: every engine of weft, the floors, and every server of others that is installed.

Usage: weftwork-bench full [OPTIONS]

Options:
  --rounds N             rounds; medians over them are shown. Columns that take long by themselves (mixed, idle) have
                         one, fixed rates two at most [2]
  --runoff S             how long each has the load once more, but eight turns at least, in turn with the others: the default
                         engine, and up to four others that are within a quarter of a column's first by the medians, or
                         within a tenth by their best round and its worst; that decides the column. With it the whole
                         grid takes some 44 minutes; 0: none [4]
  --seconds S            measured time of each cell, after a short warm-up; at a fixed rate 2 at least, mixed 1.2,
                         files of 10 MiB 1 [0.3]
  --only A,B,..          workloads or families: health, close, zero, slow (with zero-close, slow-close), wait,
                         pipelined, browser, churn, json, echo, mixed, idle, file, rate [all]
  --subjects A,B,..      floor, floor:spawn, weft:ENGINE, nginx, h2o, lighttpd, hyper, axum, axum-blocking,
                         actix-web, ntex, may_minihttp, tiny_http, astra, go-nethttp, go-fasthttp, hunchentoot
                         [all but floor:spawn]
  --json PATH            everything that was measured
  --html PATH            one page with charts
  --markdown PATH        the page of docs/benchmarks.md
  --engine, --weft, --cores, --distance, --load, --idle: as in quick
  -h, --help             this text

Who is not installed is named and left out; scripts/install-peers installs what Debian has. The Rust peers are
built from crates/bench/peers the first time; WEFTWORK_BENCH_PEERS=PATH takes a binary that you have.
Before the race each server is asked to keep nine rules of HTTP/1.1; who ignores Connection: close takes no part
where connections are closed, and is never first; nor is who does not answer then.
";

pub(super) const ROUTER: &str = "\
What typed routes cost: two servers of ours in turn, one handler for all paths (bare), and the same answer behind
#[derive(Routes)] with 100 routes (typed).

Usage: weftwork-bench router [OPTIONS]

Options:
  --rounds N             rounds; who begins alternates [15]
  --seconds S            measured time of each cell, after a short warm-up [1]
  --only A,B             workloads: static, captures [both]
  --engine ENGINE        engine of both [its own default]
  --cores, --load, --json: as in quick
  -h, --help             this text

The target is CPU a request: the median of its ratios to bare, taken round by round, is at most 1.03. The quartiles
of these ratios are beside it: where they lie far apart, the machine was not quiet enough to tell.
Exit code: as with quick.
";

pub(super) const SITE: &str = "\
One of the two servers of 'router', on 127.0.0.1, until stopped.

Usage: weftwork-bench site <bare|typed> --port N [--engine ENGINE]
";

pub(super) const REPORT: &str = "\
Makes the pages of a run again, from its JSON: one of them, or both.

Usage: weftwork-bench report RUN.json [--html PATH] [--markdown PATH]
";

pub(super) const FLOOR: &str = "\
A server that only answers, with canned bytes, on 127.0.0.1, until killed.

Usage: weftwork-bench floor <epoll|threads> --port N [OPTIONS]

Options:
  --port N           port to listen on
  --close            close the connection after each answer
  --pipelined        epoll: count heads, and answer all that came with one write;
                     without it one answer for each read
  --sleep-ms MS      threads: sleep before the answer to GET /slow.. [0]
  --loops N          epoll: threads that each run a loop, and share the port [1]
  --spawn            threads: a new thread for each connection, instead of 512 that accept
  --answer-bytes N   length of the answer, head and body [130]
  -h, --help         this text
";

pub(super) const INSTRUCTIONS: &str = "\
Counts the instructions of the pure parts with callgrind, beside the figures kept in instructions.json.

Usage: weftwork-bench instructions [OPTIONS]

Options:
  --only A,B,..   cases whose names begin so [all]
  --check         fail where a figure has grown by more than 3 %, or a target is missed
  --same-toolchain  with --check: fail where the kept figures are another toolchain's, and nothing could be checked
  --update        keep the new figures
  -h, --help      this text

Figures of another compiler, C library or processor are shown, but fail nothing without --same-toolchain.
";

pub(super) const SOAK: &str = "\
Starts weft demo and sets hostile clients on it: slow heads, slow bodies, slow readers, half-open connections,
clients that vanish, floods, churn, and nonsense. Beside them guests stay who behave: bodies that go both ways at once,
downloads, WebSockets and event streams; and health checks go on.

Usage: weftwork-bench soak [OPTIONS]

Options:
  --minutes N            how long [10]
  --only A,B,..          slow-heads, slow-bodies, slow-readers, silent, vanishing, flood, churn, nonsense, duplex,
                         download, socket, feed [all]
  --engine A,B,..        engines of the server, one after the other [its own default]
  --weft PATH            use this binary instead of building weftwork-cli
  --cores SERVER,LOAD    cores to pin to [0,1]
  -h, --help             this text

Well is: memory, descriptors and threads are the same in the last quarter of the run as in the second, whoever
dawdles is ended by its deadline, no guest is ended, answered wrong or left without an answer for 15 s, no health check
fails or takes over 100 ms, and when all have left, the server holds what it held before. A check is 'late' over 100 ms. It is 'excused' where a thread that only sleeps, on the server's
core, woke so late meanwhile that the check would have been in time without it: the machine had other things to do.
The server runs with MALLOC_ARENA_MAX=1, so that what glibc keeps for each thread does not pass for a leak.
Exit code: 0 all well, 1 not, 2 wrong arguments, 130 interrupted.
";

pub(super) const SLOW_HEADS: &str = "\
Starts weft demo, and very many clients that send it a head one byte a second.

Usage: weftwork-bench slow-heads [OPTIONS]

Options:
  --clients N            how many [10000]; the limit of open files has to allow it
  --engine A,B,..        engines of the server, one after the other [its own default]
  --weft PATH            use this binary instead of building weftwork-cli
  --cores SERVER,LOAD    cores to pin to [0,1]
  -h, --help             this text

Well is: all are ended by the deadline of a head (10 s), no thread is started for them, and no health check takes
over 50 ms meanwhile. The engines workers and pool give each client a thread, and cannot be well.
Exit code: 0 all well, 1 not, 2 wrong arguments, 130 interrupted.
";

pub(super) const TRACK: &str = "\
Keeps one line a commit, and says when a commit is worse than the best of the last ones. Ratios to the floor and to
nginx of the same run decide: machines change. 'compare' also fails where a round failed, answers were wrong or missing, or
figures are gone that the history has. Without a history it says so, and compares nothing. Both refuse a run that does not
say which commit it is of: one with --weft, or outside a git checkout.

Usage: weftwork-bench track RUN.json [OPTIONS]
       weftwork-bench compare RUN.json [OPTIONS]

Options:
  --history PATH   JSON lines [bench-history.jsonl]
  --bigger PATH    track: the ratios, for github-action-benchmark's customBiggerIsBetter
  --smaller PATH   track: CPU and p99, for its customSmallerIsBetter
  --html PATH      track: a page that draws the trend
  --last N         compare: commits to compare with [20]
  --least SHARE    compare: fail below this share of the best, above 0 and 1 at most [0.8]
  -h, --help       this text
";
