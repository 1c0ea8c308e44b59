//! Tests which variables a server reads. The test runs itself again with variables, because they belong to the whole
//! process.

// Each test binary uses a part of it.
#[allow(dead_code)]
mod support;

use std::process::Command;

use support::Client;
use weftwork::{Engine, Request, Server, Source};

const CHILD: &str = "WEFTWORK_TEST_ENVIRONMENT";

fn in_a_process_with(test: &str, variables: &[(&str, &str)], check: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return check();
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture"]).env(CHILD, "1").envs(variables.iter().copied());
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// The variables expect the PROXY protocol of the site's proxy. Prometheus connects to the second server directly.
#[test]
fn a_second_server_is_not_hit_by_the_variables_of_the_site() {
    let variables = [
        ("WEFT_PROXY_PROTOCOL", "on"),
        ("WEFT_TRUSTED_PROXIES", "127.0.0.0/8"),
        ("WEFT_HEAD_TIMEOUT", "3s"),
        ("WEFT_ENGINE", "workers:1"),
        ("METRICS_HEAD_TIMEOUT", "4s"),
        ("METRICS_ENGINE", "pool:1"),
    ];
    in_a_process_with("a_second_server_is_not_hit_by_the_variables_of_the_site", &variables, || {
        let bind = || Server::bind("127.0.0.1:0").unwrap();
        let start = |server: Server| server.start(|_: &mut Request| "metrics").unwrap();

        let site = start(bind().admin("127.0.0.1:0", |_: &mut Request| "probe").unwrap());
        assert!(site.settings().proxy_protocol && site.engine() == Engine::Workers { listeners: Some(1) });
        assert_eq!(Client::connect(&site).get("/").status, 400, "there is no PROXY header");
        Client::connect_to(&site.admin_addresses()[0]).get("/").is(200, "probe");

        let set = bind().settings(|s| s.threads_max(9)).without_env();
        let without = start(set);
        assert_eq!((without.engine(), without.settings().threads_max), (Engine::default(), 9));
        assert!(without.settings().list().iter().all(|setting| setting.source != Source::Environment));
        Client::connect(&without).get("/").is(200, "metrics");

        for prefix in ["METRICS", "METRICS_"] {
            let set = bind().engine(Engine::Adaptive { loops: Some(1) }).env_prefix(prefix).unwrap();
            assert_eq!(start(set).engine(), Engine::Adaptive { loops: Some(1) }, "code wins");
            let prefixed = start(bind().env_prefix(prefix).unwrap());
            assert_eq!(prefixed.engine(), Engine::Pool { standby: Some(1) });
            assert_eq!(prefixed.settings().head_timeout.as_secs(), 4);
            Client::connect(&prefixed).get("/").is(200, "metrics");
        }
    });
}

#[test]
fn an_invalid_variable_stops_only_the_servers_that_read_it() {
    let variables = [("WEFT_HEAD_TIMEOUT", "soon"), ("ADMIN_THREADS_MAX", "1"), ("BAD_ENGINE", "steam")];
    in_a_process_with("an_invalid_variable_stops_only_the_servers_that_read_it", &variables, || {
        let bind = || Server::bind("127.0.0.1:0").unwrap();
        let start =
            |server: Server| server.start(|_: &mut Request| "hello").map_err(|error| error.to_string());
        let error = start(bind()).unwrap_err();
        assert!(error.starts_with("WEFT_HEAD_TIMEOUT: invalid head_timeout \"soon\""), "{error}");
        let error = start(bind().env_prefix("ADMIN").unwrap()).unwrap_err();
        assert!(error.starts_with("ADMIN_THREADS_MAX: invalid threads_max 1"), "{error}");
        let error = start(bind().env_prefix("BAD").unwrap()).unwrap_err();
        assert!(error.starts_with("BAD_ENGINE: unknown engine \"steam\""), "{error}");
        drop(start(bind().without_env()).unwrap());
        drop(start(bind().env_prefix("OTHER").unwrap()).unwrap());
    });
}

#[test]
fn a_prefix_is_a_name_of_its_own() {
    for prefix in ["", "_", "WEFT_ADMIN", "A=B"] {
        let error = Server::bind("127.0.0.1:0").unwrap().env_prefix(prefix).unwrap_err().to_string();
        assert!(error.contains("invalid prefix") && error.contains("ADMIN"), "{prefix:?}: {error}");
    }
    Server::bind("127.0.0.1:0").unwrap().env_prefix("WEFT").unwrap();
}
