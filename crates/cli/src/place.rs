//! Addresses to listen at: from flags, sockets of a supervisor, `WEFT_HOST` and `WEFT_PORT`, `HOST` and `PORT`, or the
//! default, in this order.

use crate::args::{Options, Usage, host, port};

const HOST: &str = "127.0.0.1";
const PORT: u16 = 8080;

/// Address for [`weftwork::Server::bind`], with the variables it came from for error messages.
#[derive(Debug, PartialEq)]
pub(crate) struct Place {
    pub(crate) address: String,
    /// For example `HOST` or `WEFT_PORT`. Empty for flags and defaults, which need no explanation.
    pub(crate) from: Vec<&'static str>,
}

/// Returns all addresses to listen at. `are_passed` says whether a supervisor has passed sockets. `variable` reads the
/// environment and treats an empty variable as missing.
pub(crate) fn places(
    options: &Options,
    are_passed: bool,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Vec<Place>, Usage> {
    let bound = options.binds.iter().map(|address| Place { address: address.clone(), from: Vec::new() });
    let mut places: Vec<Place> = bound.collect();
    if !places.is_empty() && options.hosts.is_empty() && options.port.is_none() {
        return Ok(places);
    }
    if are_passed && options.hosts.is_empty() && options.port.is_none() {
        return Ok(vec![Place { address: "systemd:*".into(), from: vec!["LISTEN_FDS"] }]);
    }
    let first = |names: [&'static str; 2]| names.into_iter().find_map(|name| Some((name, variable(name)?)));
    let (hosts, host_from) = match first(["WEFT_HOST", "HOST"]) {
        _ if !options.hosts.is_empty() => (options.hosts.clone(), None),
        Some((name, text)) => (vec![host(name, text)?], Some(name)),
        None => (vec![HOST.to_owned()], None),
    };
    let (port, port_from) = match (options.port, first(["WEFT_PORT", "PORT"])) {
        (Some(port), _) => (port, None),
        (None, Some((name, text))) => (port(name, &text)?, Some(name)),
        (None, None) => (PORT, None),
    };
    let from: Vec<&'static str> = host_from.into_iter().chain(port_from).collect();
    places.extend(hosts.iter().map(|host| Place { address: join(host, port), from: from.clone() }));
    Ok(places)
}

/// Joins host and port. An IPv6 address needs brackets before a port (RFC 3986 section 3.2.2).
pub(crate) fn join(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') {
        return format!("[{host}]:{port}");
    }
    format!("{host}:{port}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(options: Options, environment: &[(&str, &str)]) -> Result<Vec<String>, Usage> {
        let variable = |name: &str| {
            environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        Ok(places(&options, false, variable)?.into_iter().map(|place| place.address).collect())
    }

    #[track_caller]
    fn check(hosts: &[&str], port: Option<u16>, binds: &[&str], environment: &[(&str, &str)], want: &[&str]) {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let options = Options { hosts: owned(hosts), port, binds: owned(binds), ..Options::default() };
        assert_eq!(found(options, environment).unwrap(), want);
    }

    #[test]
    fn the_stronger_source_wins() {
        let weak = [("HOST", "10.0.0.1"), ("PORT", "1")];
        let strong = [("HOST", "10.0.0.1"), ("PORT", "1"), ("WEFT_HOST", "10.0.0.2"), ("WEFT_PORT", "2")];
        check(&[], None, &[], &[], &["127.0.0.1:8080"]);
        check(&[], None, &[], &weak, &["10.0.0.1:1"]);
        check(&[], None, &[], &strong, &["10.0.0.2:2"]);
        check(&["h"], None, &[], &strong, &["h:2"]);
        check(&[], Some(3), &[], &strong, &["10.0.0.2:3"]);
        check(&["h"], Some(3), &[], &strong, &["h:3"]);
    }

    #[test]
    fn several_places() {
        check(&["a", "::1", "[::2]"], Some(0), &[], &[], &["a:0", "[::1]:0", "[::2]:0"]);
        check(&[], None, &[], &[("HOST", "fe80::1%2")], &["[fe80::1%2]:8080"]);
        check(&[], None, &["unix:/s", ":80"], &[("PORT", "1")], &["unix:/s", ":80"]);
        check(&[], Some(1), &["unix:/s"], &[], &["unix:/s", "127.0.0.1:1"]);
    }

    #[test]
    fn sockets_that_are_passed_come_before_variables_and_after_flags() {
        let check = |options: &Options, want: &str| {
            let found = places(options, true, |_| Some("1".into())).unwrap();
            let found: Vec<&str> = found.iter().map(|place| place.address.as_str()).collect();
            assert_eq!(found, [want]);
        };
        check(&Options::default(), "systemd:*");
        check(&Options { binds: vec!["fd:3".into()], ..Options::default() }, "fd:3");
        check(&Options { port: Some(2), ..Options::default() }, "1:2");
        check(&Options { hosts: vec!["h".into()], ..Options::default() }, "h:1");
    }

    #[test]
    fn a_bad_variable_is_named() {
        let Usage(message) = found(Options::default(), &[("PORT", "http")]).unwrap_err();
        assert_eq!(message, "invalid PORT \"http\": expected a number from 0 to 65535");
        let wanted = "a host without a port (for a port: --port, or --bind for both)";
        for name in ["HOST", "WEFT_HOST"] {
            let Usage(message) = found(Options::default(), &[(name, "a:80")]).unwrap_err();
            assert_eq!(message, format!("invalid {name} \"a:80\": expected {wanted}"));
        }
        check(&["h"], None, &[], &[("HOST", "a:80")], &["h:8080"]);
    }
}
